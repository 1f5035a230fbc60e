"""`bench --reference`: an engine beside the replay of a recording. The engine is a stand-in that plays answers whose
rounds a plain loop counted, from scratch, under one wiring or another."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from drafter_audit import load_drafter
from drafter_audit.bench.wire import Answer, Counts
from drafter_audit.cli.main import main
from drafter_audit.facts.pair import folder_of
from drafter_audit.recording.recording import Recording
from tests.engine_servers import engine_python, serving
from tests.plain_rounds import accepted_by_round

STEPS = 3
DECLARED, OFF_BY_ONE = (2, 6, 9), (1, 5, 8)
Script = list[dict[str, Any]]
Played = Callable[[tuple[int, ...]], Script]


@pytest.fixture(scope="module")
def played(tiny_recording: Recording) -> Played:
    """The recorded answers, in the rounds that a drafter of these boundaries takes for them."""
    made: dict[tuple[int, ...], Script] = {}

    def script(boundaries: tuple[int, ...]) -> Script:
        if boundaries not in made:
            made[boundaries] = scripted(tiny_recording, boundaries)
        return json.loads(json.dumps(made[boundaries]))

    return script


def scripted(recording: Recording, boundaries: tuple[int, ...]) -> Script:
    plain = load_drafter("tiny")
    drafter = load_drafter("tiny", wiring=replace(plain.wiring, boundaries=boundaries))
    rows = []
    for prompt in recording.prompts(boundaries):
        lengths = prompt.prompt_length, prompt.answer_length
        with torch.no_grad():
            accepted = accepted_by_round(drafter, prompt.tokens, prompt.states.float(), *lengths, STEPS)
        given, answer = prompt.tokens[: lengths[0]].tolist(), prompt.tokens[lengths[0] : sum(lengths)].tolist()
        rows.append({"id": prompt.id, "prompt": given, "ids": answer, "accepted": accepted, "capped": prompt.capped})
    return rows


def words(folder: Path, recording: Recording, script: Script, engine: str = "sglang", **plan: Any) -> list[str]:
    path = folder / "script.json"
    path.write_text(json.dumps(script))
    return [
        *("bench", "tiny", "--target", "tiny-target", "--engine", engine, "--launch", "--logs", str(folder / "logs")),
        *("--engine-python", engine_python(folder), "--engine-args", "--dtype float32"),
        *("--env", f"STAND_IN={json.dumps({'script': str(path), **plan})}"),
        *("--reference", str(recording.folder), "--format", "json"),
    ]


def beside(capsys: pytest.CaptureFixture[str], command: list[str], code: int) -> dict[str, Any]:
    found = main(command)
    printed = capsys.readouterr()
    assert found == code, printed.err
    told: dict[str, Any] = json.loads(printed.out)
    assert code == 0 or told["reasons"][0] in printed.err
    return told


def accept_len(script: Script) -> float:
    rounds = [accepted for each in script for accepted in each["accepted"]]
    return 1 + sum(rounds) / len(rounds)


def test_an_engine_that_does_what_it_says_is_healthy(tiny_recording, played, tmp_path, capsys) -> None:
    script = played(DECLARED)
    told = beside(capsys, words(tmp_path, tiny_recording, script), 0)
    found = told["reference"]
    assert told["verdict"] == "healthy"
    assert told["accept_len"] == found["accept_len"] == accept_len(script)
    assert (found["difference"], found["difference_interval"], found["opens_at"]) == (0, [0, 0], None)
    assert found["requests"] == {"paired": 20, "same_text": 20, "same": 20}
    assert (found["wiring"]["boundaries"], found["differs"]) == (list(DECLARED), [])
    assert found["release"] == "sglang@0.5.23"


def test_a_gap_is_the_engines_and_where_it_opens_is_told(tiny_recording, played, tmp_path, capsys) -> None:
    right, wrong = played(DECLARED), played(OFF_BY_ONE)
    told = beside(capsys, words(tmp_path, tiny_recording, wrong), 1)
    found, opens = told["reference"], told["reference"]["opens_at"]
    assert told["verdict"] == "engine"
    assert found["difference"] == pytest.approx(accept_len(wrong) - accept_len(right))
    low, high = found["difference_interval"]
    assert low <= found["difference"] <= high < 0
    assert found["requests"]["same_text"] == 20
    assert found["requests"]["same"] < 20
    assert opens["position"] == 0
    assert opens["engine_rate"] == pytest.approx(first_accepted(wrong))
    assert opens["reference_rate"] == pytest.approx(first_accepted(right))
    ours, theirs = (next(each for each in script if each["id"] == opens["request"]) for script in (wrong, right))
    place = next(n for n, (a, b) in enumerate(zip(ours["accepted"], theirs["accepted"], strict=False)) if a != b)
    assert opens["round"] == place
    assert (opens["engine_emitted"], opens["reference_emitted"]) == (
        ours["accepted"][place] + 1,
        theirs["accepted"][place] + 1,
    )


def first_accepted(script: Script) -> float:
    rounds = [accepted for each in script for accepted in each["accepted"]]
    return sum(accepted > 0 for accepted in rounds) / len(rounds)


def test_where_only_rounds_are_told_tokens_per_round_are_compared(tiny_recording, played, tmp_path, capsys) -> None:
    right, wrong = played(DECLARED), played(OFF_BY_ONE)
    told = beside(capsys, words(tmp_path, tiny_recording, wrong, release="0.5.3"), 1)
    found = told["reference"]
    tokens = sum(len(each["ids"]) for each in right)
    rates = [tokens / sum(len(each["accepted"]) for each in script) for script in (wrong, right)]
    assert found["definition"].startswith("N/S")
    assert found["difference"] == pytest.approx(rates[0] - rates[1])
    assert found["opens_at"]["position"] is None
    assert found["opens_at"]["round"] is not None
    assert (told["verdict"], told["accept_len"]) == ("engine", None)


def test_a_claimed_wiring_that_costs_is_the_engines_too(tiny_recording, played, tmp_path, capsys) -> None:
    """vLLM takes ids of outputs for boundaries, and says so: no gap to the reference so wired, and a loss."""
    right, wrong = played(DECLARED), played(OFF_BY_ONE)
    told = beside(capsys, words(tmp_path, tiny_recording, wrong, "vllm"), 1)
    found = told["reference"]
    assert (told["verdict"], found["differs"], found["difference"]) == ("engine", ["boundaries"], 0)
    assert found["wiring"]["boundaries"] == list(OFF_BY_ONE)
    assert found["claim_cost"] == pytest.approx(accept_len(wrong) - accept_len(right))
    assert found["claim_cost_interval"][1] < 0
    assert found["release"] == "vllm@0.32.0 (v1)"  # V2 reads other states, and lies further off
    assert "does not tell its runner" in found["notes"][0]


def test_an_engine_whose_wiring_is_not_known_is_said(tiny_recording, played, tmp_path, capsys) -> None:
    told = beside(capsys, words(tmp_path, tiny_recording, played(DECLARED), release="0.0.1"), 3)
    found = told["reference"]
    assert (told["verdict"], found["wiring"], found["difference"]) == ("inconclusive", None, None)
    assert "sglang 0.0.1 is too old to answer for" in found["not_compared"]


def test_a_text_that_parts_without_a_tie_is_shown(tiny_recording, played, tmp_path, capsys) -> None:
    script = played(DECLARED)
    parted = next(each for each in script if len(each["ids"]) > 20)
    parted["ids"][17] += 1
    command = words(tmp_path, tiny_recording, script)
    found = beside(capsys, command, 0)["reference"]
    assert found["partings"] == [{"request": parted["id"], "token": 17}]
    assert main([*command, "--format", "table"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "Beside the reference loop: healthy" in shown
    assert "19 of 20 answers are the recorded ones, token by token; 20 took the very rounds" in shown
    parting = f"leave the recorded text where there is no tie, {parted['id']} at token 17 first"
    assert f"1 of 20 answers {parting}" in shown


def test_the_view_and_the_row_name_the_gap(tiny_recording, played, tmp_path, capsys) -> None:
    command = words(tmp_path, tiny_recording, played(OFF_BY_ONE))
    assert main([*command, "--format", "table"]) == 1
    shown = " ".join(capsys.readouterr().out.split())
    assert "the gap is the engine's own" in shown
    assert "the gap opens at draft position 0" in shown
    assert "the first request that parts" in shown
    assert main([*command, "--format", "csv"]) == 1
    head, row = capsys.readouterr().out.splitlines()
    assert dict(zip(head.split(","), row.split(","), strict=False))["verdict"] == "engine"


@pytest.mark.parametrize(
    ("more", "code", "reason"),
    [
        (("--prompts", "pack"), 2, "--prompts says what is asked, and the recording says that"),
        (("--max-new-tokens", "8"), 2, "--max-new-tokens says what is asked"),
        (("--steps", "17"), 2, "17 steps on a recording that looks 16 tokens ahead"),
    ],
)
def test_usage(more, code, reason, tiny_recording, tmp_path, capsys) -> None:
    assert main([*words(tmp_path, tiny_recording, []), *more]) == code
    assert reason in capsys.readouterr().err
    assert not (tmp_path / "logs").exists()


def test_a_server_of_more_steps_than_the_recording_looks_ahead_is_refused(tiny_recording, capsys) -> None:
    with serving("sglang", {}, steps=17) as url:
        command = ["bench", "tiny", "--target", str(folder_of("tiny-target")), "--engine", "sglang", "--url", url]
        assert main([*command, "--reference", str(tiny_recording.folder)]) == 3
    assert "it runs 17 steps, and the recording looks 16 tokens ahead" in capsys.readouterr().err


def test_pieces_are_rounds_only_where_their_numbers_say_so() -> None:
    """Several rounds may come as one piece."""
    whole = Answer("p", None, 6, False, 0.1, 0.1, 5, counts=Counts(2, 3), pieces=(1, 3, 2))
    assert whole.rounds == (3, 2)
    assert replace(whole, counts=Counts(3, 2)).rounds is None
    assert replace(whole, pieces=()).rounds is None
