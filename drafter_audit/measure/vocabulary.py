"""What a vocabulary map does: where its entries lead, and whether d2t and t2d tell the same. Imports numpy.

`d2t` [draft vocabulary] holds offsets: draft id i stands for the target id i + d2t[i] (SafeAILab/EAGLE cnets.py, SGLang
and vLLM llama_eagle3.py). A GGUF file holds the target ids themselves. `t2d` [target vocabulary] marks the target ids
that have a draft id; trainers mask the target's logits by it, engines skip it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int64]
Marks = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Slip:
    """How many entries are wrong in one way, and the first of them: draft id `row` (None where the fault is a target id
    without one) and target id `token`."""

    count: int
    token: int
    row: int | None = None

    def to_dict(self) -> dict[str, Any]:
        return {"count": self.count, "first": {"draft_id": self.row, "target_id": self.token}}


@dataclass(frozen=True)
class VocabularyMap:
    """A map in plain numbers.

    `entries` is the length of d2t, `vocabulary` that of the target's vocabulary, None where nothing tells. `identity`:
    each draft id stands for the target id of the same number. `holds_ids`: read as target ids it fits, and read as
    offsets it does not, or no two tokens would be neighbours: `neighbours` counts those that are so as ids, None where
    that tells nothing. `outside`: entries that leave the vocabulary. `repeated`: entries whose target id an earlier one
    has. `descending`: entries below the one before. `marked` is how many target ids t2d marks, None without a t2d;
    `marks_prefix`: they are the first ones. `unmarked`: entries whose target id t2d has and does not mark; `unmapped`:
    target ids that it marks and no entry leads to.
    """

    entries: int
    vocabulary: int | None
    identity: bool
    holds_ids: bool
    outside: Slip | None
    repeated: Slip | None
    descending: Slip | None
    marked: int | None
    marks_prefix: bool
    unmarked: Slip | None
    unmapped: Slip | None
    neighbours: int | None = None


def measure_map(d2t: Ids, t2d: Marks | None, vocabulary: int | None, *, absolute: bool) -> VocabularyMap:
    """The map `d2t` [draft ids], against `t2d` [target ids] where there is one. `absolute`: it holds target ids."""
    rows: Ids = np.arange(len(d2t), dtype=np.int64)
    targets = d2t if absolute else rows + d2t
    outside, repeated = _outside(targets, vocabulary), _repeated(targets)
    unmarked, unmapped = _against_marks(targets, t2d)
    misfits = any(slip is not None for slip in (outside, repeated, unmarked, unmapped))
    neighbours = _neighbours(d2t) if t2d is None and not absolute else None
    return VocabularyMap(
        entries=len(d2t),
        vocabulary=vocabulary,
        identity=bool(len(d2t) and (targets == rows).all()),
        holds_ids=not absolute and (misfits or bool(neighbours)) and _fits(d2t, t2d, vocabulary),
        outside=outside,
        repeated=repeated,
        descending=_slip(np.flatnonzero(np.diff(targets) < 0) + 1, targets),
        marked=None if t2d is None else int(t2d.sum()),
        marks_prefix=t2d is not None and bool(t2d.any() and t2d[: int(t2d.sum())].all()),
        unmarked=unmarked,
        unmapped=unmapped,
        neighbours=neighbours,
    )


def repeats(d2t: Ids) -> Marks:
    """Which neighbours (i, i + 1) have one and the same entry, [draft ids - 1]."""
    same: Marks = np.diff(d2t) == 0
    return same


_TELLING = 20
"""Pairs of entries one apart from which a map without any equal pair is no map of offsets."""


def _neighbours(d2t: Ids) -> int | None:
    """How many entries are the one before and 1, where no two are equal and that tells ids from offsets; else None.

    As offsets equal entries are neighbouring tokens, and entries one apart leave out one token between. Of tokens
    chosen by frequency, or by chance, neighbours are at least as common, so each of n such gaps is the wider one by a
    chance of a half at most: 2^-20 is one in a million. Steps of one size throughout are a pattern, and tell nothing.
    """
    steps = np.diff(d2t)
    if not steps.size or steps.min() < 1 or steps.min() == steps.max():
        return None
    ones = int((steps == 1).sum())
    return ones if ones >= _TELLING else None


def _fits(ids: Ids, t2d: Marks | None, vocabulary: int | None) -> bool:
    """Whether the numbers are target ids: inside the vocabulary, none twice, and those that t2d marks."""
    wrong = (_outside(ids, vocabulary), _repeated(ids), *_against_marks(ids, t2d))
    return len(ids) > 1 and all(slip is None for slip in wrong)


def _outside(targets: Ids, vocabulary: int | None) -> Slip | None:
    above = np.zeros(len(targets), np.bool_) if vocabulary is None else targets >= vocabulary
    return _slip(np.flatnonzero((targets < 0) | above), targets)


def _repeated(targets: Ids) -> Slip | None:
    first = np.zeros(len(targets), np.bool_)
    first[np.unique(targets, return_index=True)[1]] = True
    return _slip(np.flatnonzero(~first), targets)


def _against_marks(targets: Ids, t2d: Marks | None) -> tuple[Slip | None, Slip | None]:
    """The entries that t2d has and does not mark, and the target ids that it marks in vain."""
    if t2d is None:
        return None, None
    inside = (targets >= 0) & (targets < len(t2d))
    unmarked = inside & ~t2d[np.where(inside, targets, 0)] if len(t2d) else inside
    vain = t2d.copy()
    vain[targets[inside]] = False
    unmapped = np.flatnonzero(vain)
    return _slip(np.flatnonzero(unmarked), targets), Slip(unmapped.size, int(unmapped[0])) if unmapped.size else None


def _slip(rows: npt.NDArray[np.intp], targets: Ids) -> Slip | None:
    return Slip(rows.size, int(targets[rows[0]]), int(rows[0])) if rows.size else None
