"""A folder of dumps, as a recording that can be replayed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

from drafter_audit.errors import InputsError, NotFoundError
from drafter_audit.recording.dumps.dump import LOOKAHEAD, as_recorded
from drafter_audit.recording.dumps.files import SUFFIXES, read_dump
from drafter_audit.recording.manifest import Manifest
from drafter_audit.recording.recording import RecordedPrompt, Recording

Target = tuple[str, int, int]
"""A reference, its layers, the size of its vocabulary: no dump says them."""


@dataclass(frozen=True)
class DumpRecording(Recording):
    """`files` in order, whose slots are `slots`, boundaries; `notes` says what the dumps do not hold."""

    files: tuple[Path, ...] = ()
    slots: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()

    def prompts(self, boundaries: Sequence[int] | None = None) -> Iterator[RecordedPrompt]:
        """One after another, with all states, or those at `boundaries`. Raises as `open_dumps`, InputsError."""
        for file in self.files:
            recorded = as_recorded(read_dump(file), file.stem, self.slots, self.manifest.lookahead)
            yield recorded if boundaries is None else _only(recorded, boundaries)


def dump_files(folder: Path) -> tuple[Path, ...]:
    """The dumps in `folder`, a file for each text, by the numbers in their names; `folder` may be one file.

    Raises NotFoundError where there are none.
    """
    if folder.is_file():
        return (folder,)
    found = [file for file in folder.rglob("*") if file.name.endswith(SUFFIXES)]
    if not found:
        raise NotFoundError("no dumps", str(folder), f"name a folder with files ending in {', '.join(SUFFIXES)}")
    return tuple(sorted(found, key=_numbers))


def open_dumps(folder: Path, boundaries: Sequence[int], target: Target, lookahead: int = LOOKAHEAD) -> DumpRecording:
    """The dumps in `folder` as a recording of `target`; slot i of each is `boundaries[i]`.

    The first file is read, the others when their turn comes. Raises NotFoundError, CheckpointError, InputsError for
    boundaries that are not its slots' or not the target's.
    """
    files = dump_files(folder)
    first = read_dump(files[0])
    ref, layers, vocabulary = target
    as_recorded(first, files[0].stem, boundaries, lookahead)
    if max(boundaries) > layers:
        raise InputsError(f"boundary {max(boundaries)} of {layers} layers", str(folder), f"name some of 0..{layers}")
    manifest = Manifest(
        target=ref,
        revision=None,
        dtype=str(first.states.dtype).removeprefix("torch."),
        num_layers=layers,
        hidden_size=first.states.shape[-1],
        vocab_size=vocabulary,
        prompts_name=str(folder),
        prompts_sha256=sha256(first.tokens.long().numpy().tobytes()).hexdigest(),
        max_new_tokens=len(first.tokens),
        lookahead=lookahead,
        top=0,
        temperature=0.0,
        seed=0,
    )
    return DumpRecording(folder, manifest, files, tuple(boundaries), tuple(first.notes()))


def _only(recorded: RecordedPrompt, boundaries: Sequence[int]) -> RecordedPrompt:
    absent = [b for b in boundaries if b not in recorded.boundaries]
    if absent:
        what = f"boundary {absent[0]} is not in the dump, which has {list(recorded.boundaries)}"
        raise InputsError(what, recorded.id, "dump it too, or take a drafter of these taps")
    rows = [recorded.boundaries.index(b) for b in boundaries]
    return replace(recorded, boundaries=tuple(boundaries), states=recorded.states[rows])


def _numbers(file: Path) -> list[tuple[int, str]]:
    """hs_9 before hs_10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", str(file))]
