"""A folder is opened as a recording, or one line says why not: before anything is replayed on it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from drafter_audit.errors import EXIT_NOT_MEASURED, RecordingError
from drafter_audit.recording.manifest import Manifest, from_text, to_text
from drafter_audit.recording.open import open_recording
from drafter_audit.recording.prompt_file import describe_file, read_prompt, write_prompt
from drafter_audit.recording.recording import RecordedPrompt

MADE = Manifest(
    target="org/target",
    revision="c0ffee",
    dtype="float32",
    num_layers=4,
    hidden_size=3,
    vocab_size=9,
    prompts_name="prompts.jsonl",
    prompts_sha256="0" * 64,
    max_new_tokens=2,
    lookahead=1,
    top=5,
    temperature=0.0,
    seed=0,
    boundaries=(0, 2),
    count=2,
    libraries={"torch": "2.13"},
)


def prompt(name: str, length: int = 3) -> RecordedPrompt:
    made = torch.Generator().manual_seed(length)
    return RecordedPrompt(
        id=name,
        category=None,
        prompt_length=length,
        answer_length=2,
        tokens=torch.arange(length + 3),
        boundaries=(0, 2),
        states=torch.randn((2, length + 1, 3), generator=made),
        top_ids=torch.arange(10).reshape(2, 5) % 9,
        top_logits=torch.randn((2, 5), generator=made),
        logsumexp=torch.randn(2, generator=made),
        gaps=torch.rand(3, generator=made),
        capped=True,
        degenerate=False,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "rec"
    made.mkdir()
    names = ["00000.safetensors", "00001.safetensors"]
    for name, length in zip(names, (3, 4), strict=True):
        write_prompt(made / name, prompt(name, length))
    answers = tuple(describe_file(made / name) for name in names)
    (made / "manifest.json").write_text(to_text(replace(MADE, answers=answers), "finished"))
    return made


def test_what_was_written_is_read(folder: Path) -> None:
    read = list(open_recording(folder).prompts())
    assert [each.id for each in read] == ["00000.safetensors", "00001.safetensors"]
    for each, length in zip(read, (3, 4), strict=True):
        for name, value in vars(prompt(each.id, length)).items():
            found = getattr(each, name)
            assert (
                torch.equal(found, value) and found.dtype == value.dtype if torch.is_tensor(value) else found == value
            )


def test_a_manifest_is_read_as_it_was_written() -> None:
    assert from_text(to_text(MADE, "in progress"), "here") == (MADE, "in progress")


def edited(**changes: object) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        path = folder / "manifest.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return edit


def cut(name: str, to: int) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        path = folder / name
        path.write_bytes(path.read_bytes()[:to])

    return edit


def swapped(folder: Path) -> None:
    one, other = folder / "00000.safetensors", folder / "00001.safetensors"
    data = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(data)


def other_file(folder: Path) -> None:
    from safetensors.torch import save_file

    save_file({"tokens": torch.zeros(3)}, folder / "00001.safetensors")


def lacking_a_tensor(folder: Path) -> None:
    one = prompt("00001.safetensors", 4)
    write_prompt(folder / "00001.safetensors", replace(one, states=one.states[:, :-1]))


BROKEN: dict[str, tuple[Callable[[Path], object], str]] = {
    "no folder": (shutil.rmtree, "no recording, it has no manifest.json"),
    "an empty folder": (lambda f: [path.unlink() for path in f.iterdir()], "no recording, it has no manifest.json"),
    "a manifest cut short": (cut("manifest.json", 100), "not JSON"),
    "an empty manifest": (cut("manifest.json", 0), "not JSON"),
    "a list": (lambda f: (f / "manifest.json").write_text("[]"), "not a JSON object but a list"),
    "another schema": (edited(schema_version=2), r"schema_version 2, .*this release reads version 1"),
    "no status": (edited(status="done"), "status 'done'"),
    "unfinished": (edited(status="in progress"), "unfinished: 2 of 2 prompts are recorded, .*it goes on"),
    "no answers": (edited(answers=[], count=0), "empty: it holds no prompts"),
    "fewer answers": (edited(count=3), "2 answers of 3 prompts"),
    "an unknown field": (edited(colour="red"), "fields missing or unknown: colour"),
    "a field of another type": (edited(seed="0"), "seed is '0'"),
    "a truth for a number": (edited(count=True), "count is True"),
    "answers of another form": (edited(answers=[{"file": "00000.safetensors"}]), "fields missing or unknown"),
    "a file that is gone": (lambda f: (f / "00001.safetensors").unlink(), "the file of prompt '00001.*' is missing"),
    "a file cut short": (cut("00001.safetensors", 900), "cut short: .*delete that file"),
    "a file without a header": (cut("00001.safetensors", 5), "cut short: 5 bytes"),
    "another file": (other_file, "a file that is no part of a recording"),
    "states of another length": (lacking_a_tensor, "tensors missing or of another length: state.0, state.2"),
    "files swapped": (swapped, "it is another file than the manifest says"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_no_whole_recording_is_refused(folder: Path, name: str) -> None:
    spoil, told = BROKEN[name]
    spoil(folder)
    with pytest.raises(RecordingError, match=told) as failure:
        open_recording(folder)
    assert failure.value.exit_code == EXIT_NOT_MEASURED
    assert "rec" in failure.value.where


def test_a_recording_from_before_there_were_notes_is_read_as_having_none(folder: Path) -> None:
    path = folder / "manifest.json"
    raw = json.loads(path.read_text())
    del raw["notes"]
    path.write_text(json.dumps(raw))
    assert open_recording(folder).manifest.notes == ()


def test_a_file_outside_the_folder_is_not_read(folder: Path) -> None:
    path = folder / "manifest.json"
    path.write_text(path.read_text().replace('"00001.safetensors"', '"../00001.safetensors"'))
    with pytest.raises(RecordingError, match="is missing"):
        open_recording(folder)


def test_a_flipped_bit_is_found_when_it_is_read(folder: Path) -> None:
    """Of a tensor that is not read it is not."""
    path = folder / "00001.safetensors"
    data = bytearray(path.read_bytes())
    state = prompt("00001.safetensors", 4).states[1].numpy().tobytes()
    data[data.index(state)] ^= 1
    path.write_bytes(data)
    recording = open_recording(folder)
    assert [each.boundaries for each in recording.prompts((0,))] == [(0,), (0,)]
    with pytest.raises(RecordingError, match=r"damaged: state\.2 is not what was written"):
        list(recording.prompts())


def test_a_boundary_that_was_not_recorded(folder: Path) -> None:
    with pytest.raises(RecordingError, match=r"boundary 1, 3 was not recorded, only 0, 2, .*record again"):
        read_prompt(folder / "00000.safetensors", (0, 1, 3))
