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
from drafter_audit.recording.dumps.matching import LEAST_TOKENS, match_boundaries, shared_tokens
from drafter_audit.recording.manifest import Manifest
from drafter_audit.recording.recording import RecordedPrompt, Recording
from drafter_audit.recording.store import FIRST, MANIFEST

Target = tuple[str, int, int]
"""A reference, its layers, the size of its vocabulary: no dump says them."""


_LEAST = 2
"""Tokens of an answer that take a round: the first is the prefill's."""


@dataclass(frozen=True)
class DumpRecording(Recording):
    """`files` in order, whose slots are `slots`, boundaries; `notes` says what the dumps do not hold."""

    files: tuple[Path, ...] = ()
    slots: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def lacks(self) -> tuple[str, ...]:
        return self.notes

    def prompts(self, boundaries: Sequence[int] | None = None) -> Iterator[RecordedPrompt]:
        """One after another, with all states, or those at `boundaries`; a text too short for a round is left out.

        Raises as `open_dumps`; InputsError where every text is too short.
        """
        lookahead, none = self.manifest.lookahead, True
        for file in self.files:
            dump = read_dump(file)
            if dump.room(lookahead) < _LEAST:
                continue
            none = False
            recorded = as_recorded(dump, file.stem, self.slots, lookahead)
            yield recorded if boundaries is None else _only(recorded, boundaries)
        if none:
            what = f"no text has an answer of more than {lookahead + _LEAST - 1} tokens"
            raise InputsError(what, str(self.folder), "ask for fewer steps, or dump longer texts")


def is_dumps(folder: Path) -> bool:
    """Whether there are dumps, and nothing of a recording of our own."""
    if folder.is_file():
        return folder.name.endswith(SUFFIXES)
    ours = (folder / MANIFEST, folder / FIRST)
    return not any(file.exists() for file in ours) and any(_dumped(folder))


def dump_files(folder: Path) -> tuple[Path, ...]:
    """The dumps in `folder`, a file for each text, by the numbers in their names; `folder` may be one file.

    Raises NotFoundError where there are none.
    """
    if folder.is_file():
        return (folder,)
    found = list(_dumped(folder))
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
    as_recorded(first, files[0].stem, boundaries, lookahead=0)
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
        boundaries=tuple(boundaries),
        count=len(files),
    )
    short = f"texts with answers of {lookahead + _LEAST - 1} tokens or fewer are left out, of {len(files):,} dumped"
    return DumpRecording(folder, manifest, files, tuple(boundaries), (*first.notes(), short))


def match_dumps(folder: Path, by: Recording, lookahead: int = LOOKAHEAD) -> DumpRecording:
    """The same of dumps whose slots nobody names: the first dump is set against the prompt of `by`, a recording of the
    target, that begins with most of its tokens. What each slot is stands in `notes`.

    Raises as `open_dumps`; InputsError where `by` has no such prompt, or a slot is not for certain a boundary of it.
    """
    file = dump_files(folder)[0]
    dump = read_dump(file)
    lengths = [(shared_tokens(dump, prompt), prompt.id) for prompt in by.prompts(())]
    most, id = max(lengths, key=lambda each: each[0])
    if most < LEAST_TOKENS:
        what = f"no prompt of {by.folder} begins with {LEAST_TOKENS} of its tokens or more, {most} at most"
        raise InputsError(what, str(file), "record the dumped tokens, as rows of token_ids")
    found = match_boundaries(dump, next(prompt for prompt in by.prompts() if prompt.id == id))
    unclear = [match.text for match in found if not match.clear]
    if unclear:
        mend = "record more boundaries with --boundaries all, or name those of the slots with --boundaries"
        raise InputsError("; ".join(unclear), str(file), mend)
    target = (by.manifest.target, by.manifest.num_layers, by.manifest.vocab_size)
    opened = open_dumps(folder, [match.boundary for match in found], target, lookahead)
    return replace(opened, notes=(*(match.text for match in found), *opened.notes))


def _dumped(folder: Path) -> Iterator[Path]:
    return (file for file in folder.rglob("*") if file.name.endswith(SUFFIXES))


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
