"""The folder of a recording while it is made: what is there stays, what is missing is added, another run is refused.

manifest.json comes first, "in progress"; each prompt's file appears whole; the manifest says "finished" at the end. So
a run that is killed anywhere leaves what the same command goes on from.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path

from drafter_audit.errors import AuditError, RecordingError, UsageError
from drafter_audit.recording.manifest import Manifest, from_text, to_text
from drafter_audit.recording.prompt_file import describe_file, write_prompt
from drafter_audit.recording.recording import RecordedPrompt
from drafter_audit.recording.whole_file import PARTS, write_text

MANIFEST = "manifest.json"
FIRST = f"{0:05}.safetensors"
ENGINE = ".engine"
"""The folder where an engine that answers leaves its files, and its log."""

_OURS = (PARTS, ENGINE)


@dataclass(frozen=True)
class Store:
    """A folder that takes the prompts of `manifest`, which says how all of them are made."""

    folder: Path
    manifest: Manifest

    def rows(self, index: int) -> int:
        """How many states each boundary has of prompt `index`, 0 where it is still to be recorded. Raises
        RecordingError for a damaged file."""
        path = self._path(index)
        if not path.exists():
            return 0
        answer = describe_file(path)
        return answer.prompt_length + answer.answer_length - 1

    def add(self, index: int, prompt: RecordedPrompt) -> None:
        """Raises AuditError where the disk refuses."""
        write_prompt(self._path(index), prompt)

    def finish(self) -> None:
        """The manifest with every answer. Raises AuditError where the disk refuses, RecordingError for a damaged
        file."""
        answers = tuple(describe_file(self._path(index)) for index in range(self.manifest.count))
        write_text(self.folder / MANIFEST, to_text(replace(self.manifest, answers=answers), "finished"))

    def _path(self, index: int) -> Path:
        return self.folder / f"{index:05}.safetensors"


def begin(folder: Path, manifest: Manifest) -> Store:
    """The store in `folder`, made where it is not there, gone on with where it was made in the same way.

    Raises UsageError where it holds something else, or a recording made otherwise, and says in what; RecordingError for
    a damaged manifest; AuditError where the disk refuses.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(folder / PARTS, ignore_errors=True)  # of a run that was killed
    except OSError as error:
        raise AuditError(f"cannot write: {error.strerror}", str(folder), "choose another folder") from error
    if (folder / MANIFEST).exists():
        begun = read_manifest(folder)[0]
        _check_same(begun, manifest, folder)
        return Store(folder, replace(begun, answers=()))
    _check_empty(folder)
    write_text(folder / MANIFEST, to_text(manifest, "in progress"))
    return Store(folder, manifest)


def read_manifest(folder: Path) -> tuple[Manifest, str]:
    """The manifest in `folder`, and its status. Raises RecordingError."""
    path = folder / MANIFEST
    try:
        text = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError) as error:
        mend = "name the folder that `drafter-audit record -o` made"
        raise RecordingError(f"no recording, it has no {MANIFEST}", str(folder), mend) from error
    except OSError as error:
        raise RecordingError(f"it cannot be read: {error.strerror}", str(path), "see that it is a file") from error
    return from_text(text, str(path))


def check_folder(folder: Path, **asked: object) -> None:
    """What `begin` refuses for, as far as these fields of the manifest tell: before a target is loaded for it."""
    if (folder / MANIFEST).exists():
        begun, _ = read_manifest(folder)
        _check_same(begun, replace(begun, **asked), folder)  # type: ignore[arg-type]
    elif folder.exists():
        _check_empty(folder)


def _check_empty(folder: Path) -> None:
    """A folder that holds nothing but what a killed run left may be taken."""
    found = (
        sorted(path.name for path in folder.iterdir() if path.name not in _OURS) if folder.is_dir() else [folder.name]
    )
    if found:
        raise UsageError(f"it holds {found[0]!r} and no recording", str(folder), "name a new or empty folder")


def _check_same(begun: Manifest, ours: Manifest, folder: Path) -> None:
    """Raises UsageError that names the first thing in which the recording in `folder` was made otherwise."""
    for name, theirs, wanted in begun.differences(ours):
        what = f"the recording there was made with {name} {theirs!r}, and this command asks for {wanted!r}"
        raise UsageError(what, str(folder), "name a new folder, or ask for the same")
