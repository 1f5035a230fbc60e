"""`decode` and `sweep` from the command line, on the reference pair and a recording of it."""

from __future__ import annotations

import csv
import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from drafter_audit.cli.main import main
from drafter_audit.facts.pair import folder_of
from tests.random_drafters import write_random

Audit = Callable[..., tuple[int, str, str]]


HELD_OUT = Path(__file__).parent / "data/prompts/held_out.jsonl"


@pytest.fixture(scope="module")
def prompts(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Three prompts of different kinds."""
    path = tmp_path_factory.mktemp("prompts") / "three.jsonl"
    path.write_text("".join(HELD_OUT.read_text().splitlines(keepends=True)[::100]))
    return str(path)


def made(prompts: str, folder: Path, *more: str) -> str:
    """A recording of the tiny target's answers to `prompts`, cut off at 24 tokens."""
    asked = ("--target", "tiny-target", "--prompts", prompts, "--max-new-tokens", "24", "--lookahead", "10")
    assert main(("record", "tiny", *asked, "-o", str(folder), *more)) in (0, 3)
    return str(folder)


@pytest.fixture(scope="module")
def recording(prompts: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    return made(prompts, tmp_path_factory.mktemp("recordings") / "rec")


@pytest.fixture
def audit(capsys: pytest.CaptureFixture[str]) -> Audit:
    def run(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()  # of what was recorded before
        code = main(arguments)
        return code, *capsys.readouterr()

    return run


@pytest.fixture
def read(audit: Audit) -> Callable[..., dict[str, Any]]:
    def run(*arguments: str) -> dict[str, Any]:
        code, out, err = audit(*arguments, "--format", "json")
        assert code in (0, 3), err
        told: dict[str, Any] = json.loads(out)
        return told

    return run


COUNTED = (
    "rounds",
    "accepted",
    "drafted",
    "tokens",
    "overshoot",
    "histogram",
    "per_prompt",
    "stop",
    "coverage",
    "accept_len",
)


def test_a_replay_counts_what_the_live_run_counts(read: Any, recording: str, prompts: str) -> None:
    live = read("decode", "tiny", "--target", "tiny-target", "--prompts", prompts, "--max-new-tokens", "24")
    replayed = read("decode", "tiny", "--recording", recording)
    assert (live["mode"], replayed["mode"]) == ("live", "replay")
    assert {name: live[name] for name in COUNTED} == {name: replayed[name] for name in COUNTED}
    assert (live["lossless"]["mismatches"], live["ties"], replayed["ties"]) == (0, [], [])
    assert live["timing"]["verify_s"] > 0
    assert (replayed["timing"], replayed["lossless"]) == (None, None)


TREE = ("--steps", "5", "--topk", "4", "--num-draft-tokens", "16")


def test_a_tree_is_counted_alike_live_and_replayed(read: Any, audit: Audit, recording: str, prompts: str) -> None:
    live = read("decode", "tiny", "--target", "tiny-target", "--prompts", prompts, "--max-new-tokens", "24", *TREE)
    replayed = read("decode", "tiny", "--recording", recording, *TREE)
    assert {name: live[name] for name in COUNTED} == {name: replayed[name] for name in COUNTED}
    for told in (live, replayed):
        assert (told["steps"], told["topk"], told["num_draft_tokens"]) == (5, 4, 16)
        assert told["drafted"] == told["rounds"] * 15
        assert sum(told["histogram"]) == told["rounds"]
        assert sum(told["per_position_counts"]) == told["accepted"]
    assert (live["lossless"]["mismatches"], live["ties"]) == (0, [])
    assert replayed["accept_len"] >= read("decode", "tiny", "--recording", recording, *TREE[:2])["accept_len"]
    _, out, _ = audit("decode", "tiny", "--recording", recording, *TREE)
    assert "tree of 5 steps, top-k 4, 16 tokens verified a round" in out


def test_a_sweep_of_trees_has_the_rows_of_each_alone(read: Any, recording: str) -> None:
    cells = ("--steps", "1,3,5", "--topk", "1,2,4", "--num-draft-tokens", "6,16")
    told = read("sweep", "tiny", "--recording", recording, *cells, "--verify-ms", "20", "--draft-ms", "1")
    shapes = [(row["topk"], row["num_draft_tokens"], row["steps"]) for row in told["rows"]]
    trees = [(2, 6, 3), (2, 6, 5), (2, 16, 5), (4, 6, 3), (4, 6, 5), (4, 16, 3), (4, 16, 5)]
    assert shapes == [(1, 2, 1), (1, 4, 3), (1, 6, 5), *trees]
    for row in told["rows"]:
        shape = ("--steps", row["steps"], "--topk", row["topk"], "--num-draft-tokens", row["num_draft_tokens"])
        alone = read("decode", "tiny", "--recording", recording, *map(str, shape))
        shared = ("rounds", "accepted", "drafted", "histogram", "accept_len", "topk", "num_draft_tokens")
        assert {name: row[name] for name in shared} == {name: alone[name] for name in shared}
    assert told["best"]["tokens_per_s"] == max(row["tokens_per_s"] for row in told["rows"])
    assert any("6 at 1 steps, top-k 2; 16 at 1 steps, top-k 2; 16 at 3 steps" in note for note in told["notes"])


def test_sampled_trees_are_refused(audit: Audit, prompts: str) -> None:
    asked = ("--target", "tiny-target", "--prompts", prompts, "--temperature", "0.7", *TREE)
    code, out, err = audit("decode", "tiny", *asked)
    assert (code, out) == (2, "")
    assert "top-k 4 at temperature 0.7, where only chains are verified" in err


def test_the_target_that_the_drafter_names_is_run_where_none_is_named(read: Any, prompts: str) -> None:
    told = read("decode", "tiny", "--prompts", prompts, "--max-new-tokens", "4", "--what-if", "2.8")
    assert told["target"]["ref"] == "tiny-target"
    (worth,) = told["what_if"]
    assert worth["tokens_per_s"] == pytest.approx(told["tokens_per_s"] * 2.8 / told["accept_len"])


def test_several_drafters_are_paired_and_told_by_their_samples(
    audit: Audit, read: Any, recording: str, tmp_path: Path
) -> None:
    shutil.copytree(folder_of("tiny"), tmp_path / "mine")
    (tmp_path / "mine/drafter-audit.toml").write_text(
        '[[drafter]]\ntarget = "tiny-target"\n[drafter.training]\nsamples = 37\n'
    )
    told = read("decode", "tiny", str(tmp_path / "mine"), "--recording", recording)
    assert [one["drafter"]["samples"] for one in told["results"]] == [2500, 37]
    (pair,) = told["paired"]
    assert (pair["difference"], pair["interval"]) == (0.0, [0.0, 0.0])
    _, out, _ = audit("decode", "tiny", str(tmp_path / "mine"), "--recording", recording)
    assert "By training samples" in out


def test_one_drafter_on_several_recordings(read: Any, recording: str) -> None:
    told = read("decode", "tiny", "--recording", recording, "--recording", recording)
    assert len(told["results"]) == 2
    assert told["paired"][0]["difference"] == 0.0


def test_each_recording_lends_what_its_own_target_has(read: Any, recording: str, tmp_path: Path) -> None:
    """As of an old revision and a new one: the second's embedding has its rows in another order."""
    drafter = shutil.copytree(folder_of("tiny"), tmp_path / "drafter")
    weights = load_file(drafter / "model.safetensors")
    save_file({name: one for name, one in weights.items() if "embed" not in name}, drafter / "model.safetensors")
    (drafter / "drafter-audit.toml").unlink()
    recordings = []
    for name in ("old", "new"):
        target = shutil.copytree(folder_of("tiny-target"), tmp_path / name)
        made = shutil.copytree(recording, tmp_path / f"rec-{name}")
        manifest = json.loads((made / "manifest.json").read_text())
        (made / "manifest.json").write_text(json.dumps({**manifest, "target": str(target)}))
        recordings.append(str(made))
    theirs = load_file(target / "model.safetensors")
    theirs["model.embed_tokens.weight"] = theirs["model.embed_tokens.weight"].flip(0).contiguous()
    save_file(theirs, target / "model.safetensors", {"format": "pt"})
    alone = [read("decode", str(drafter), "--recording", each)["accepted"] for each in recordings]
    both = read("decode", str(drafter), "--recording", recordings[0], "--recording", recordings[1])
    assert [one["accepted"] for one in both["results"]] == alone
    assert alone[1] < alone[0]


def test_answers_cut_off_are_shown_and_end_with_3(audit: Audit, recording: str) -> None:
    """24 tokens are too few for most answers."""
    code, out, err = audit("decode", "tiny", "--recording", recording)
    assert (code, "accept_len" in out) == (3, True)
    assert "not measured" in err
    assert audit("sweep", "tiny", "--recording", recording)[0] == 3


def test_a_sweep_has_the_rows_of_replays_at_each_step_count(read: Any, recording: str) -> None:
    told = read("sweep", "tiny", "--recording", recording)
    assert [row["steps"] for row in told["rows"]] == list(range(1, 11))
    for row in told["rows"]:
        alone = read("decode", "tiny", "--recording", recording, "--steps", str(row["steps"]))
        shared = ("rounds", "accepted", "drafted", "histogram", "accept_len")
        assert {name: row[name] for name in shared} == {name: alone[name] for name in shared}
        assert row["interval"] == alone["accept_len_interval"]
        assert row["accept_len"] <= row["ceiling"] <= row["steps"] + 1
    assert told["best"] is None
    assert {row["tokens_per_s"] for row in told["rows"]} == {None}


def test_costs_choose_the_best_step_count(read: Any, recording: str) -> None:
    """A draft step that costs nothing pays to the end, one as dear as a verification not beyond the first few."""
    told = read("sweep", "tiny", "--recording", recording, "--verify-ms", "20", "--draft-ms", "1")
    for row in told["rows"]:
        assert row["tokens_per_s"] == pytest.approx(1000 * row["accept_len"] / (20 + row["steps"]))
    assert told["best"]["tokens_per_s"] == max(row["tokens_per_s"] for row in told["rows"])
    dear = read("sweep", "tiny", "--recording", recording, "--verify-ms", "20", "--draft-ms", "20")
    assert dear["best"]["steps"] < told["best"]["steps"]


def test_costs_come_from_a_live_run(read: Any, recording: str, prompts: str, tmp_path: Path) -> None:
    path = tmp_path / "live.json"
    main(("decode", "tiny", "--prompts", prompts, "--max-new-tokens", "8", "--format", "json", "-o", str(path)))
    live, told = json.loads(path.read_text()), read("sweep", "tiny", "--recording", recording, "--costs", str(path))
    three = next(row for row in told["rows"] if row["steps"] == 3)
    assert three["cycle_ms"] == pytest.approx(1000 * live["cycle_s"])
    assert told["costs"]["from"] == f"measured, {path}"


def test_csv_has_a_row_for_each(audit: Audit, recording: str) -> None:
    _, out, _ = audit("sweep", "tiny", "--recording", recording, "--steps", "1,3,5-6", "--format", "csv")
    assert [row["steps"] for row in csv.DictReader(io.StringIO(out))] == ["1", "3", "5", "6"]


REFUSED: dict[str, tuple[tuple[str, ...], str]] = {
    "too many steps": (("decode", "tiny", "--steps", "11"), "looks 10 tokens ahead"),
    "too many steps to sweep": (("sweep", "tiny", "--steps", "1-11"), "looks 10 tokens ahead"),
    "prompts beside a recording": (("decode", "tiny", "--prompts", "p.jsonl"), "--prompts says how a target is run"),
    "a what-if without a run": (("decode", "tiny", "--what-if", "2"), "--what-if says how a target is run"),
    "a what-if out of reach": (("decode", "tiny", "--what-if", "4.5"), "a round of 3 steps emits 1 to 4 tokens"),
    "a tree of no size": (("decode", "tiny", "--topk", "4"), "number of tokens to verify is not said"),
    "a tree too large": (("decode", "tiny", "--topk", "2", "--num-draft-tokens", "12"), "give 2 to 11"),
    "more beams than tokens": (("decode", "tiny", "--topk", "401", "--num-draft-tokens", "9"), "give 400 or less"),
    "a sweep of trees of no size": (("sweep", "tiny", "--topk", "1,4"), "number of tokens to verify is not said"),
    "sizes of chains": (("sweep", "tiny", "--num-draft-tokens", "4"), "chains alone, which verify steps + 1"),
    "words for beams": (("sweep", "tiny", "--topk", "wide"), "no list of beams: write 1, or 1,4,8"),
    "a what-if beyond a small tree": (
        ("decode", "tiny", "--topk", "4", "--num-draft-tokens", "3", "--what-if", "3.5"),
        "a round of 2 steps emits 1 to 3 tokens",
    ),
    "another number to verify": (("decode", "tiny", "--num-draft-tokens", "3"), "give 4"),
    "no steps": (("sweep", "tiny", "--steps", "3-1"), "no list of step counts"),
    "words for steps": (("sweep", "tiny", "--steps", "all"), "no list of step counts"),
    "one cost": (("sweep", "tiny", "--verify-ms", "3"), "one cost without the other"),
    "a cost of nothing": (("sweep", "tiny", "--verify-ms", "0", "--draft-ms", "1"), "--verify-ms"),
    "costs twice": (("sweep", "tiny", "--verify-ms", "3", "--draft-ms", "1", "--costs", "x"), "both given and taken"),
    "costs from nowhere": (("sweep", "tiny", "--costs", "absent.json"), "it cannot be read"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_usage_is_refused_in_one_line(audit: Audit, recording: str, case: str) -> None:
    arguments, says = REFUSED[case]
    code, out, err = audit(*arguments, "--recording", recording)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert says in err


def test_costs_of_no_live_run_are_refused(audit: Audit, recording: str, tmp_path: Path) -> None:
    path = tmp_path / "replay.json"
    main(("decode", "tiny", "--recording", recording, "--format", "json", "-o", str(path)))
    code, _, err = audit("sweep", "tiny", "--recording", recording, "--costs", str(path))
    assert (code, "no live run with times" in err) == (2, True)


def test_notes_on_prompts_and_the_tie_stand_in_the_result(read: Any, tmp_path: Path) -> None:
    (tmp_path / "turns.jsonl").write_text('{"turns": ["Write the word yes.", "And now?"]}\n')
    told = read("decode", "tiny", "--prompts", str(tmp_path / "turns.jsonl"), "--max-new-tokens", "4")
    assert any("the first alone is asked" in note for note in told["notes"])
    assert (told["tie_epsilon"], told["as_tokens"]) == (1e-4, False)
    assert told["timing"]["prefill_s"] > 0


def test_a_recording_keeps_the_notes_and_every_replay_repeats_them(audit: Audit, read: Any, tmp_path: Path) -> None:
    rows = '{"turns": ["Write the word yes.", "And now?"]}\n' + HELD_OUT.read_text().splitlines()[0]
    (tmp_path / "turns.jsonl").write_text(rows)
    rec = made(str(tmp_path / "turns.jsonl"), tmp_path / "rec")
    for command in ("decode", "sweep"):
        assert any("the first alone is asked" in note for note in read(command, "tiny", "--recording", rec)["notes"])
    (note,) = json.loads((tmp_path / "rec/manifest.json").read_text())["notes"]
    assert note in read("decode", "tiny", "--recording", rec)["notes"]


def test_half_sized_logits_have_wider_ties_and_no_promise(audit: Audit, prompts: str, tmp_path: Path) -> None:
    folder = made(prompts, tmp_path / "rec", "--dtype", "bfloat16")
    out = " ".join(audit("decode", "tiny", "--recording", folder)[1].split())
    assert "a gap of logits below 0.25 is a tie" in out
    assert "recorded in bfloat16, replayed in float32" in out
    assert "exact:" not in out


def test_a_prompt_too_long_is_one_line(audit: Audit, tmp_path: Path) -> None:
    (tmp_path / "long.jsonl").write_text(json.dumps({"prompt": "word " * 3000}) + "\n")
    code, out, err = audit("decode", "tiny", "--target", "tiny-target", "--prompts", str(tmp_path / "long.jsonl"))
    assert (code, out, err.count("\n")) == (3, "", 1)
    assert "do not fit the target's 1024 positions" in err


def test_token_ids_pass_no_chat_template(audit: Audit, tmp_path: Path) -> None:
    (tmp_path / "ids.jsonl").write_text('{"token_ids": [5, 6, 7, 8]}\n')
    shown = audit("decode", "tiny", "--prompts", str(tmp_path / "ids.jsonl"), "--max-new-tokens", "4")[1]
    out = " ".join(shown.split())
    assert "as token ids" in out
    assert "with the chat template" not in out


def test_bare_text_that_the_target_ends_at_once_is_told(audit: Audit, tmp_path: Path) -> None:
    """The reference target answers what passes its chat template, and to most else says its end token."""
    prompts = str(tmp_path / "prompts.jsonl")
    Path(prompts).write_text("".join(HELD_OUT.read_text().splitlines(keepends=True)[:2]))
    rec = made(prompts, tmp_path / "rec", "--raw")
    for how in (("decode", "tiny", "--prompts", prompts, "--raw"), ("sweep", "tiny", "--recording", rec)):
        code, out, err = audit(*how)
        assert (code, out, err.count("\n")) == (3, "", 1)
        assert "bare text that the target ends at once, leave --raw out" in err
    assert "record longer answers, without --raw" in audit("wiring", "tiny", "--recording", rec)[2]


@pytest.mark.parametrize("command", ["decode", "wiring", "record"])
def test_a_vocabulary_smaller_than_the_targets_is_refused_though_the_target_lends_its_rows(
    audit: Audit, prompts: str, tmp_path: Path, command: str
) -> None:
    ref, _ = write_random(tmp_path / "drafter", drop=("embed_tokens.weight",))
    into = ("-o", str(tmp_path / "rec")) if command == "record" else ()
    code, out, err = audit(command, ref, "--target", "tiny-target", "--prompts", prompts, *into)
    assert (code, out, err.count("\n")) == (3, "", 1)
    assert "its vocabulary is of 60 tokens, the target's of 1024" in err
    assert not (tmp_path / "rec").exists()


def test_neither_target_nor_recording(audit: Audit, tmp_path: Path) -> None:
    ref, _ = write_random(tmp_path)
    code, _, err = audit("decode", ref)
    assert (code, "no target is named" in err and "--recording" in err) == (2, True)


def test_a_recording_of_another_target_is_refused(audit: Audit, recording: str, tmp_path: Path) -> None:
    ref, _ = write_random(tmp_path)
    code, out, err = audit("decode", ref, "--recording", recording)
    assert (code, out) == (3, "")
    assert "the recording is of another target" in err


def test_boundaries_that_were_not_recorded_are_named(audit: Audit, prompts: str, tmp_path: Path) -> None:
    folder = made(prompts, tmp_path / "rec", "--boundaries", "2,6")
    code, out, err = audit("decode", "tiny", "--recording", folder)
    assert (code, out) == (3, "")
    assert "[9] were not recorded" in err
    assert f"record --target tiny-target --prompts {prompts}" in err
    assert "--boundaries 2,6,9" in err


def test_a_sampled_recording_says_what_its_counts_are(read: Any, prompts: str, tmp_path: Path) -> None:
    told = read("decode", "tiny", "--recording", made(prompts, tmp_path / "rec", "--temperature", "0.8"))
    assert (told["rule"], told["temperature"], told["ties"]) == ("argmax_draft", 0.8, [])
    assert any("exact in distribution" in note for note in told["notes"])
