"""A recording made ready to be asked about many wirings: its prompts in groups, and side by side in packs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from drafter_audit.errors import RecordingError
from drafter_audit.recording.manifest import Answer, Manifest
from drafter_audit.recording.prompt_file import read_prompt
from drafter_audit.recording.recording import RecordedPrompt, Recording

Rows = npt.NDArray[np.int64]

_PACK_POSITIONS = 4096
_PACK_BYTES = 2**30
"""Of the states of one pack; a prompt that has more is a pack of its own."""
_HELD_BYTES = 2**31
"""Of packs kept from one pass over them to the next."""
_RACE_STARTS, _RACE_PROMPTS = 256, 4


@dataclass(frozen=True)
class Pack:
    """Prompts of one set of boundaries, one after another: `lengths` positions of each with a state, of which the last
    `starts` are where rounds start.

    `rows` says which of all the corpus's starts they are. `tokens` [all tokens], those of each prompt after `offsets`
    of it, `ends` past its last one. `states` [boundaries, T, hidden] in the recorded dtype.
    """

    rows: slice
    lengths: tuple[int, ...]
    starts: tuple[int, ...]
    boundaries: tuple[int, ...]
    tokens: Tensor
    offsets: Tensor
    ends: Tensor
    places: Tensor
    chosen: Tensor
    states: Tensor
    top_ids: Tensor
    top_logits: Tensor
    logsumexp: Tensor
    thoughts: Tensor
    last_normed: Tensor | None = None

    @classmethod
    def of(cls, prompts: Sequence[RecordedPrompt], rows: slice, device: torch.device) -> Pack:
        """`chosen` [n]: which of the T positions rounds start from; `thoughts` [n]: the row of `top_ids` from which the
        first draft's token came. A later step's is as much further on, within the same answer."""
        starts = tuple(prompt.answer_length - 1 for prompt in prompts)
        lengths = tuple(p.prompt_length - 1 + n for p, n in zip(prompts, starts, strict=True))
        counts = torch.tensor([len(prompt.tokens) for prompt in prompts])
        before, begun = counts.cumsum(0) - counts, torch.tensor(lengths).cumsum(0) - torch.tensor(lengths)
        answers = torch.tensor([prompt.answer_length for prompt in prompts])
        said = answers.cumsum(0) - answers
        spans = list(zip(lengths, starts, strict=True))
        moved = [
            torch.repeat_interleave(before, torch.tensor(lengths)),
            torch.repeat_interleave(before + counts, torch.tensor(lengths)),
            torch.cat([torch.arange(n) for n in lengths]),
            torch.cat([int(at) + torch.arange(n - m, n) for at, (n, m) in zip(begun, spans, strict=True)]),
        ]
        tables = [
            torch.cat([prompt.states[:, :n] for prompt, n in zip(prompts, lengths, strict=True)], dim=1),
            *(torch.cat([getattr(p, name) for p in prompts]) for name in ("top_ids", "top_logits", "logsumexp")),
            torch.cat([int(at) + 1 + torch.arange(m) for at, (_, m) in zip(said, spans, strict=True)]),
        ]
        tokens = torch.cat([prompt.tokens for prompt in prompts])
        on_device = [tensor.to(device) for tensor in (tokens, *moved, *tables)]
        behind = [p.last_normed[:n] for p, n in zip(prompts, lengths, strict=True) if p.last_normed is not None]
        normed = torch.cat(behind).to(device) if len(behind) == len(prompts) else None
        made = cls(rows, lengths, starts, prompts[0].boundaries, *on_device)
        return replace(made, last_normed=normed)

    def paired(self, by: int, at: Tensor | None = None) -> Tensor:
        """The token `by` after that of each position, or of the positions `at`. 0 past the end of its text, and in
        the place of its first token, which `Drafter.unroll` is not given either."""
        offsets, ends, places = (x if at is None else x[at] for x in (self.offsets, self.ends, self.places))
        wanted = offsets + places + by
        inside = (places + by >= 1) & (wanted < ends)
        return torch.where(inside, self.tokens[wanted.clamp(0, len(self.tokens) - 1)], 0)

    def thought_after(self, steps: int) -> tuple[Tensor, Tensor]:
        """The row of `top_ids` for a draft `steps` after the first, [n], and whether the answer goes so far."""
        left = torch.cat([torch.arange(n, 0, -1) for n in self.starts]).to(self.thoughts.device)
        return (self.thoughts + steps).clamp(max=len(self.top_ids) - 1), left > steps


@dataclass(frozen=True)
class Corpus:
    """The starts of a recording's prompts, in three groups of prompts: those of the `race`, the rest of the half that
    chooses, and the half that confirms. Prompts of one token's answer have no start and are left out.

    `order` are the prompts, by their place in the recording, in the order of their starts here.
    """

    recording: Recording
    device: torch.device
    order: tuple[int, ...]
    groups: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]

    @classmethod
    def of(cls, recording: Recording, device: torch.device) -> Corpus:
        """Raises RecordingError where no answer has two tokens."""
        answers = recording.manifest.answers
        halves = _halves(answers)
        if not any(halves):
            mend = "record longer answers" + (", without --raw" if recording.manifest.raw else "")
            raise RecordingError("no answer is longer than one token", str(recording.folder), mend)
        race = _race(answers, halves[0])
        rest = tuple(place for place in halves[0] if place not in race)
        groups = (race, rest, halves[1])
        return cls(recording, device, tuple(place for group in groups for place in group), groups)

    @property
    def manifest(self) -> Manifest:
        return self.recording.manifest

    @cached_property
    def prompt_of(self) -> Rows:
        """The prompt of each start, by its place in the recording."""
        return np.repeat(np.array(self.order), [self._starts(place) for place in self.order])

    @cached_property
    def recorded(self) -> tuple[int, ...]:
        """Every boundary that some prompt has."""
        return tuple(sorted({b for place in self.order for b in self.manifest.answers[place].boundaries}))

    def rows_of(self, group: int) -> slice:
        """The starts of one group."""
        counts = [sum(map(self._starts, places)) for places in self.groups]
        return slice(sum(counts[:group]), sum(counts[: group + 1]))

    def packs(self, group: int) -> Iterator[Pack]:
        """The packs of one group, read where they are not held."""
        for number, (places, rows) in enumerate(self._plan[group]):
            key = (group, number)
            pack = self._held.get(key) or self._read(places, rows)
            if key not in self._held and sum(p.states.nbytes for p in self._held.values()) < _HELD_BYTES:
                self._held[key] = pack
            yield pack

    @cached_property
    def _held(self) -> dict[tuple[int, int], Pack]:
        return {}

    @cached_property
    def _plan(self) -> tuple[tuple[tuple[tuple[int, ...], slice], ...], ...]:
        return tuple(tuple(self._cut(group)) for group in range(3))

    def _cut(self, group: int) -> Iterator[tuple[tuple[int, ...], slice]]:
        """One group in packs: prompts that follow one another and have the same boundaries."""
        answers, at, pack = self.manifest.answers, self.rows_of(group).start, list[int]()
        for place in (*self.groups[group], None):
            if pack and (place is None or self._full((*pack, place))):
                count = sum(map(self._starts, pack))
                yield tuple(pack), slice(at, at + count)
                at, pack = at + count, []
            if place is not None:
                pack.append(place)
        assert at == self.rows_of(group).stop, answers

    def _full(self, places: tuple[int, ...]) -> bool:
        answers = [self.manifest.answers[place] for place in places]
        positions = sum(answer.prompt_length + answer.answer_length for answer in answers)
        nbytes = sum(answer.nbytes for answer in answers)
        alike = len({answer.boundaries for answer in answers}) == 1
        return not alike or positions > _PACK_POSITIONS or nbytes > _PACK_BYTES

    def _read(self, places: Sequence[int], rows: slice) -> Pack:
        folder, answers = self.recording.folder, self.manifest.answers
        prompts = [read_prompt(folder / answers[place].file) for place in places]
        for prompt in prompts:
            if not bool(prompt.states.isfinite().all()):
                where = f"prompt {prompt.id!r}"
                raise RecordingError("states that are no finite numbers", where, "record it again, in a wider dtype")
        return Pack.of(prompts, rows, self.device)

    def _starts(self, place: int) -> int:
        return self.manifest.answers[place].answer_length - 1


def _halves(answers: Sequence[Answer]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The prompts, each category's in turn to one half and to the other: the same for the same recording."""
    long_enough = [place for place, answer in enumerate(answers) if answer.answer_length > 1]
    by_category = sorted(long_enough, key=lambda place: (answers[place].category or "", place))
    return tuple(sorted(by_category[0::2])), tuple(sorted(by_category[1::2]))


def _race(answers: Sequence[Answer], half: Sequence[int]) -> tuple[int, ...]:
    """The first prompts of `half` with enough starts, those with the most boundaries before others."""
    race: list[int] = []
    for place in sorted(half, key=lambda place: -len(answers[place].boundaries)):
        starts = sum(answers[p].answer_length - 1 for p in race)
        if starts >= _RACE_STARTS and len(race) >= _RACE_PROMPTS:
            break
        race.append(place)
    return tuple(race)
