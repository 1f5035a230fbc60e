"""`record` on the command line: what it says, what it leaves, and that ranks leave the same."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from drafter_audit.cli.main import main
from drafter_audit.errors import EXIT_NOT_MEASURED, EXIT_OK, EXIT_USAGE
from drafter_audit.recording.open import open_recording
from tests.test_target_ranks import START_S, torchrun
from tests.tiny_targets import edit_config, llama

IDS = [list(range(9, 26)), [40, 3, 77, 12]]


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A target whose texts end at the cap alone, and prompts for it."""
    folder = tmp_path_factory.mktemp("here")
    target = llama(folder / "target")
    edit_config(target, eos_token_id=None)
    (folder / "target" / "generation_config.json").unlink()
    rows = [{"token_ids": ids, "id": f"p{index}", "category": "made"} for index, ids in enumerate(IDS)]
    (folder / "prompts.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return folder


def command(here: Path, into: Path, *more: str) -> list[str]:
    given = ["--target", str(here / "target"), "--prompts", str(here / "prompts.jsonl"), "-o", str(into)]
    return ["record", *given, "--max-new-tokens", "5", "--boundaries", "0,2", *more]


def printed(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    return result


def test_the_result_tells_what_was_recorded(here: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(command(here, tmp_path / "rec", "--format", "json")) == EXIT_OK
    out, err = capsys.readouterr()
    result = json.loads(out)
    assert result["target"]["ref"] == str(here / "target")
    assert result["prompts"]["count"] == 2
    assert (result["prompt_tokens"], result["tokens"]) == (len(IDS[0]) + len(IDS[1]), 10)
    assert result["stop"] == {"eos": 0, "cap": 2}
    assert result["bytes"] == sum(path.stat().st_size for path in (tmp_path / "rec").glob("*.safetensors"))
    assert [(each["id"], each["category"], each["boundaries"]) for each in result["per_prompt"]] == [
        ("p0", "made", [0, 2]),
        ("p1", "made", [0, 2]),
    ]
    assert "note: the recording takes up to" in err
    assert "note: 2 of 2 answers are no whole text: 2 hit the cap, 0 loop" in err
    assert "decode and sweep end with exit code 3 on these" in err
    assert "note: 2 answers of two tokens or more: below 16 wiring decides little, and ends with 3" in err
    manifest = json.loads((tmp_path / "rec" / "manifest.json").read_text())
    assert manifest["command"] == result["command"]


@pytest.mark.parametrize("style", ["table", "markdown", "csv"])
def test_every_format(here: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], style: str) -> None:
    assert main(command(here, tmp_path / "rec", "--format", style)) == EXIT_OK
    out = capsys.readouterr().out
    assert ("p1,made,4,5,true,false,0 2," if style == "csv" else "0 (embedding output), 2") in out


def test_the_same_command_goes_on_and_another_is_refused(
    here: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rec = tmp_path / "rec"
    assert main(command(here, rec)) == EXIT_OK
    before = {path.name: path.read_bytes() for path in rec.iterdir()}
    (rec / "00001.safetensors").unlink()
    assert main(command(here, rec)) == EXIT_OK
    assert {path.name: path.read_bytes() for path in rec.iterdir()} == before
    capsys.readouterr()
    assert main(command(here, rec, "--temperature", "0.5")) == EXIT_USAGE
    assert "was made with temperature 0.0, and this command asks for 0.5" in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in rec.iterdir()} == before


@pytest.mark.parametrize(
    ("more", "code", "told"),
    [
        (["--all-tokens", "9"], EXIT_USAGE, "add --boundaries all"),
        (["--boundaries", "0,9"], EXIT_USAGE, "name some of 0..4"),
        (["--boundaries", "few"], EXIT_USAGE, "no list of boundaries"),
        (["--max-new-tokens", "120"], EXIT_NOT_MEASURED, "do not fit the target's 128 positions"),
        (["--prompts", "nowhere.jsonl"], EXIT_NOT_MEASURED, "no such prompt file"),
        (["--target", "./nowhere"], EXIT_NOT_MEASURED, "nowhere"),
    ],
)
def test_what_cannot_be_recorded_is_refused_in_one_line(
    here: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], more: list[str], code: int, told: str
) -> None:
    assert main(command(here, tmp_path / "rec", *more)) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert told in err
    assert err.splitlines()[-1].startswith("error: ")
    assert not (tmp_path / "rec").exists()


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (("--boundaries", "few"), "no list of boundaries"),
        (("--boundaries", "0,9"), "name some of 0..4"),
        (("--max-new-tokens", "120"), "do not fit the target's 128 positions"),
    ],
)
def test_what_the_config_forbids_is_told_before_weights_are_read(
    here: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], more: tuple[str, ...], told: str
) -> None:
    """Of a target whose weights cannot be read: reading them would be the error."""
    shutil.copytree(here / "target", tmp_path / "target")
    (tmp_path / "target" / "model.safetensors").write_bytes(b"")
    asked = command(here, tmp_path / "rec", "--target", str(tmp_path / "target"))
    assert main(asked) == EXIT_NOT_MEASURED
    assert told not in capsys.readouterr().err
    assert main([*asked, *more]) in (EXIT_USAGE, EXIT_NOT_MEASURED)
    assert told in capsys.readouterr().err


def test_two_ranks_record_what_one_process_records(
    here: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command(here, tmp_path / "one", "--format", "json")) == EXIT_OK
    alone = printed(capsys)
    asked = command(here, tmp_path / "two", "--format", "json")
    code, stdout, stderr, _ = torchrun(*asked, module="drafter_audit", limit=2 * START_S)
    assert code == 0, stderr
    varying = {"recording", "command", "bytes"}
    assert {k: v for k, v in json.loads(stdout).items() if k not in varying} == {
        k: v for k, v in alone.items() if k not in varying
    }
    one, two = open_recording(tmp_path / "one"), open_recording(tmp_path / "two")
    assert (one.manifest.ranks, two.manifest.ranks) == (1, 2)
    for ours, theirs in zip(one.prompts(), two.prompts(), strict=True):
        assert torch.equal(ours.tokens, theirs.tokens)
        assert float((ours.states - theirs.states).abs().max()) <= 1e-4
