"""States that other tools dumped, replayed from the command line: as a recording of the same texts is."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from drafter_audit.cli.main import main
from drafter_audit.model.target.load import load_target
from drafter_audit.recording.open import open_recording

HELD_OUT = Path(__file__).parent / "data/prompts/held_out.jsonl"
TAPS, STEPS = (2, 6, 9), 3
COUNTED = ("rounds", "accepted", "drafted", "tokens", "overshoot", "histogram", "accept_len", "coverage")
Audit = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording of three answers, and the same texts as SpecForge and as vLLM dump them."""
    folder = tmp_path_factory.mktemp("made")
    prompts = folder / "three.jsonl"
    prompts.write_text("".join(HELD_OUT.read_text().splitlines(keepends=True)[::100]))
    asked = ("--target", "tiny-target", "--prompts", str(prompts), "--max-new-tokens", "24", "--lookahead", str(STEPS))
    assert main(("record", *asked, "--boundaries", "0,1,2,3,5,6,7,8,9,10", "-o", str(folder / "rec"))) in (0, 3)
    target = load_target("tiny-target", dtype="float32")
    (folder / "specforge/rows_0-5000").mkdir(parents=True)
    (folder / "vllm").mkdir()
    for number, prompt in enumerate(open_recording(folder / "rec").prompts(())):
        states = target.forward_with_taps(prompt.tokens, TAPS)[1]
        mask = torch.zeros_like(prompt.tokens)
        mask[prompt.prompt_length :] = 1
        aux, last = states.transpose(0, 1).flatten(1)[None].clone(), states[-1:].clone()
        saved = {"input_ids": prompt.tokens.clone(), "loss_mask": mask, "hidden_state": last, "aux_hidden_state": aux}
        torch.save(saved, folder / f"specforge/rows_0-5000/data_{number}.ckpt")
        whole = {"hidden_states": states.transpose(0, 1).contiguous(), "token_ids": prompt.tokens}
        save_file(whole, folder / f"vllm/hs_{number}.safetensors")
    return folder


@pytest.fixture
def audit(capsys: pytest.CaptureFixture[str]) -> Audit:
    def run(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
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


def test_a_dump_of_the_same_texts_counts_what_the_recording_counts(read: Any, made: Path) -> None:
    recorded = read("decode", "tiny", "--recording", str(made / "rec"))
    dumped = read("decode", "tiny", "--recording", str(made / "specforge"), "--boundaries", "2,6,9")
    assert {name: dumped[name] for name in COUNTED} == {name: recorded[name] for name in COUNTED}
    assert (dumped["target"]["ref"], dumped["prompts"]["count"], dumped["tie_epsilon"]) == ("tiny-target", 3, None)
    assert recorded["tie_epsilon"] == 1e-4
    notes = " ".join(dumped["notes"])
    assert "no tie is told" in notes
    assert "of each text the first answer is taken" in notes
    assert "exact" not in notes


def test_slots_are_found_by_a_recording_of_the_same_text(read: Any, made: Path) -> None:
    named = read("decode", "tiny", "--recording", str(made / "vllm"), "--boundaries", "2,6,9")
    found = read("decode", "tiny", "--recording", str(made / "vllm"), "--match", str(made / "rec"))
    assert {name: found[name] for name in COUNTED} == {name: named[name] for name in COUNTED}
    said = [note for note in found["notes"] if note.startswith("slot ")]
    assert [note.split(" (")[0] for note in said] == [f"slot {i} is boundary {b}" for i, b in enumerate(TAPS)]
    assert all("norm ratio 1.000" in note for note in said)


def test_one_drafter_on_two_dumps_shows_the_drift_of_the_target(read: Any, made: Path, tmp_path: Path) -> None:
    """The other target's states are off by half of their size."""
    drifted = tmp_path / "int4"
    drifted.mkdir()
    for number in range(3):
        held = load_file(made / f"vllm/hs_{number}.safetensors")
        noise = torch.randn(held["hidden_states"].shape, generator=torch.Generator().manual_seed(number))
        scale = held["hidden_states"].norm(dim=-1, keepdim=True) / noise.norm(dim=-1, keepdim=True)
        held["hidden_states"] = held["hidden_states"] + 0.5 * scale * noise
        save_file(held, drifted / f"hs_{number}.safetensors")
    both = ("--recording", str(made / "vllm"), "--recording", str(drifted), "--boundaries", "2,6,9")
    told = read("decode", "tiny", *both)
    (pair,) = told["paired"]
    assert pair["difference"] < 0
    lengths = [one["accept_len"] for one in told["results"]]
    assert pair["difference"] == pytest.approx(lengths[1] - lengths[0])


def test_a_sweep_of_dumps(read: Any, made: Path) -> None:
    told = read("sweep", "tiny", "--recording", str(made / "specforge"), "--boundaries", "2,6,9", "--steps", "1-3")
    assert [row["steps"] for row in told["rows"]] == [1, 2, 3]
    assert told["rows"][0]["accept_len"] < told["rows"][2]["accept_len"]


@pytest.mark.parametrize(
    ("more", "code", "says"),
    [((), 3, "no recording"), (("--boundaries", "2,6,9"), 2, "--boundaries says what dumps hold")],
)
def test_dumps_do_not_say_what_servers_are_to_be_asked(
    audit: Audit, made: Path, tmp_path: Path, more: tuple[str, ...], code: int, says: str
) -> None:
    """Without a loss mask their prompts are a token long."""
    words = ("sweep", "tiny", "--engine", "vllm", "--engine-python", "true", "--out", str(tmp_path / "night"))
    found, out, err = audit(*words, "--recording", str(made / "vllm"), *more)
    assert (found, out) == (code, "")
    assert says in err


REFUSED: dict[str, tuple[tuple[str, ...], int, str]] = {
    "no slots": ((), 2, "dumps do not say which boundary"),
    "slots twice": (("--boundaries", "2,6,9", "--match", "rec"), 2, "dumps do not say which boundary"),
    "words": (("--boundaries", "low,high"), 2, "no list of boundaries"),
    "two of three": (("--boundaries", "2,6"), 3, "for 3 slots"),
    "beyond the target": (("--boundaries", "2,6,99"), 3, "boundary 99 of 12 layers"),
    "other taps": (("--boundaries", "2,6,8"), 3, "[9] are not in the dumps"),
    "nothing to match": (("--match", "nowhere"), 3, "no recording"),
    "too many steps": (("--boundaries", "2,6,9", "--steps", "900"), 3, "ask for fewer steps"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_dumps_do_not_say_is_asked_for(audit: Audit, made: Path, case: str) -> None:
    more, code, says = REFUSED[case]
    found, out, err = audit("decode", "tiny", "--recording", str(made / "vllm"), *more)
    assert (found, out) == (code, "")
    assert says in err.splitlines()[-1]


def test_a_text_that_was_not_recorded_is_not_matched(audit: Audit, made: Path, tmp_path: Path) -> None:
    (tmp_path / "ids.jsonl").write_text('{"token_ids": [5, 6, 7, 8, 9, 10, 11, 12]}\n')
    asked = ("--target", "tiny-target", "--prompts", str(tmp_path / "ids.jsonl"), "--max-new-tokens", "4")
    assert audit("record", *asked, "-o", str(tmp_path / "rec"))[0] in (0, 3)
    code, _, err = audit("decode", "tiny", "--recording", str(made / "vllm"), "--match", str(tmp_path / "rec"))
    assert (code, "begins with 4 of its tokens or more" in err) == (3, True)


def test_a_recording_takes_no_slots(audit: Audit, made: Path) -> None:
    code, out, err = audit("decode", "tiny", "--recording", str(made / "rec"), "--boundaries", "2,6,9")
    assert (code, out) == (2, "")
    assert "--boundaries says what dumps hold" in err


def test_a_recording_without_its_manifest_is_no_dump(audit: Audit, made: Path, tmp_path: Path) -> None:
    shutil.copytree(made / "rec", tmp_path / "rec")
    (tmp_path / "rec/manifest.json").unlink()
    code, _, err = audit("decode", "tiny", "--recording", str(tmp_path / "rec"))
    assert (code, "no recording, it has no manifest.json" in err) == (3, True)
