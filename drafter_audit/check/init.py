"""`check --init`: a commented drafter-audit.toml of the checkpoints and recordings that lie in a folder."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from drafter_audit.errors import AuditError, UsageError
from drafter_audit.recording.manifest import Manifest, from_text

_DEPTH = ("*", "*/*")  # how far below the folder is looked
_WEIGHTS = ("*.safetensors", "pytorch_model*.bin")


@dataclass(frozen=True)
class Found:
    """A checkpoint that is a drafter: its path from the folder, the target that it names, the recording of that."""

    path: str
    target: str | None
    recording: str | None


@dataclass(frozen=True)
class Unread:
    """A checkpoint that might be a drafter, and why it cannot be read."""

    path: str
    why: AuditError


def write_project_file(file: Path) -> Iterator[str]:
    """Writes `file` for what lies in its folder, and says what that is. Raises UsageError for a file that exists."""
    folder = file.parent
    checkpoints = tuple(_checkpoints(folder, tuple(_recordings(folder))))
    drafters = [each for each in checkpoints if isinstance(each, Found)]
    try:
        with file.open("x", encoding="utf-8") as written:
            written.write(_text(drafters))
    except FileExistsError:
        raise UsageError("it exists, and is not overwritten", str(file), "edit it, or name another with -c") from None
    except OSError as error:
        raise AuditError(f"cannot write: {error.strerror}", str(file), "choose another folder with -c") from error
    yield f"wrote {file}: {len(drafters)} drafter{'' if len(drafters) == 1 else 's'} found in {folder.absolute()}"
    for each in checkpoints:
        if isinstance(each, Unread):
            yield f"left out {each.path}: {each.why}"
    if not drafters:
        yield "name your drafter in it, and its target or a recording"


def _recordings(folder: Path) -> Iterator[tuple[str, Manifest]]:
    for depth in _DEPTH:
        for manifest in sorted(folder.glob(f"{depth}/manifest.json")):
            try:
                told, _ = from_text(manifest.read_bytes(), str(manifest))
            except (AuditError, OSError):
                continue  # another tool's manifest
            yield _relative(manifest.parent, folder), told


def _checkpoints(folder: Path, recordings: Sequence[tuple[str, Manifest]]) -> Iterator[Found | Unread]:
    for depth in _DEPTH:
        for config in sorted(folder.glob(f"{depth}/config.json")):
            found = _checkpoint(config.parent, folder, recordings)
            if found is not None:
                yield found


def _checkpoint(place: Path, folder: Path, recordings: Sequence[tuple[str, Manifest]]) -> Found | Unread | None:
    """None for what is no drafter."""
    from drafter_audit.drafter.open import open_drafter

    if not any(found for pattern in _WEIGHTS for found in place.glob(pattern)):
        return None
    try:
        spec = open_drafter(str(place), level="drafter")
    except AuditError as error:
        return Unread(_relative(place, folder), error)
    if not spec.is_drafter:
        return None
    width = spec.architecture.target_hidden_size or spec.architecture.hidden_size
    fitting = [(path, told) for path, told in recordings if told.hidden_size == width]
    named = [path for path, told in fitting if told.target == spec.target.ref]
    path = next(iter(named or [path for path, _ in fitting]), None)
    target = spec.target.ref or next((told.target for where, told in fitting if where == path), None)
    return Found(_relative(place, folder), target, path)


def _relative(path: Path, folder: Path) -> str:
    return f"./{path.relative_to(folder).as_posix()}"


def _text(drafters: Sequence[Found]) -> str:
    named = "\n".join(map(_entry, drafters)) or _entry(Found("./ours", None, None))
    return f"{_HEAD}\n{named}\n{_BARS}"


def _entry(found: Found) -> str:
    target = f"target = {json.dumps(found.target)}" if found.target else '# target = "org/name"'
    recording = f"recording = {json.dumps(found.recording)}" if found.recording else '# recording = "./rec"'
    made = "" if found.recording else "  # made by: drafter-audit record --target TARGET -o ./rec"
    return f"[[drafter]]\npath = {json.dumps(found.path)}\n{target}\n{recording}{made}\n"


_HEAD = """\
# The bars of `drafter-audit check`. Every key is told in docs/ci.md of drafter-audit; a key left out asks nothing.
"""

_BARS = """\
[check]
fail_on = "error"            # the least severity of a finding that fails: error, warning or info
# engines = ["vllm", "sglang@0.5.23"]  # what serves it: their treatment of the drafter is judged too
min_accept_len = 1.2         # tokens a round; 1.2 is near chance: raise it to what serving needs
# steps = 3                  # tokens that a round drafts
# min_per_position = [0.6, 0.4, 0.2]  # shares of rounds that accept the draft at each position
# wiring = true              # search the recording (made with --boundaries all) for a better wiring
# reference = "./accepted"   # a drafter to be like
# same_architecture = true
# same_parameters = true
# max_loss = 0.1             # against the baseline, which `check --update-baseline` stores
# baseline = "drafter-audit-baseline.json"
# live = true                # decode beside the target, which takes its weights, and a GPU
# prompts = "prompts.jsonl"  # of live decoding
# max_new_tokens = 256       # of live decoding
# time_limit = 3600          # seconds
"""
