"""A folder becomes a recording that can be replayed, or one line that says why not."""

from __future__ import annotations

from pathlib import Path

from drafter_audit.errors import RecordingError
from drafter_audit.recording.manifest import Answer
from drafter_audit.recording.prompt_file import describe_file
from drafter_audit.recording.recording import Recording
from drafter_audit.recording.store import MANIFEST, read_manifest

_AGAIN = "run the command that made it again: it goes on where it stopped"


def open_recording(path: str | Path) -> Recording:
    """The recording in the folder `path`: its manifest is whole, and every file is there with the header and the size
    that it must have. A file's values are checked when they are read.

    Raises RecordingError for a folder that is no recording, an unfinished or empty one, one of another schema version,
    and for a file that is missing, cut short or another than the manifest says.
    """
    folder = Path(path)
    manifest, status = read_manifest(folder)
    where = str(folder / MANIFEST)
    if status != "finished":
        made = len(list(folder.glob("*.safetensors")))
        raise RecordingError(f"unfinished: {made} of {manifest.count} prompts are recorded", where, _AGAIN)
    if not manifest.answers:
        raise RecordingError("empty: it holds no prompts", where, "record some")
    if len(manifest.answers) != manifest.count:
        told = f"{len(manifest.answers)} answers of {manifest.count} prompts"
        raise RecordingError(told, where, "the manifest is damaged: restore it, or record anew")
    for answer in manifest.answers:
        _check(answer, folder)
    return Recording(folder, manifest)


def _check(answer: Answer, folder: Path) -> None:
    path = folder / answer.file
    if path.parent != folder or not path.is_file():
        raise RecordingError(f"the file of prompt {answer.id!r} is missing", str(path), _AGAIN)
    if describe_file(path) != answer:
        mend = "restore it, or delete it and run the command that made the recording again"
        raise RecordingError("it is another file than the manifest says", str(path), mend)
