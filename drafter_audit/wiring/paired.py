"""Two wirings set against each other at the very same positions, prompt by prompt."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from drafter_audit.measure.bars import LEAST_PROMPTS, prompts_to_tell
from drafter_audit.measure.bootstrap import Interval, ratio_interval

Values = npt.NDArray[np.float64]
Rows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Paired:
    """`other` less `base`, over the `positions` where both are known. `base` is its mean there. `sums` and `counts` are
    by prompt, from which the interval is made."""

    difference: float
    base: float
    positions: int
    sums: tuple[float, ...]
    counts: tuple[int, ...]

    @property
    def other(self) -> float:
        """Its mean there."""
        return self.base + self.difference

    @property
    def prompts(self) -> int:
        return len(self.counts)

    def interval(self) -> Interval | None:
        """At 95%, by resampling prompts; None of one prompt."""
        return ratio_interval(self.sums, self.counts)

    def needed(self, resolution: float, interval: Interval) -> int:
        """Prompts, in both halves together, at which an interval, now this one, would tell a difference of this size,
        or of `resolution` where that is larger."""
        half = (interval[1] - interval[0]) / 2
        told = prompts_to_tell(2 * self.prompts, half, max(abs(self.difference), resolution))
        return max(2 * LEAST_PROMPTS, told or 0)


def paired(base: Values, other: Values, prompt_of: Rows, rows: slice = slice(None)) -> Paired | None:
    """All [n] by start, NaN where nothing is known; of `rows` alone. None where both are known nowhere."""
    one, two, prompts = base[rows], other[rows], prompt_of[rows]
    both = ~np.isnan(one) & ~np.isnan(two)
    if not both.any():
        return None
    difference, (_, prompt) = (two - one)[both], np.unique(prompts[both], return_inverse=True)
    sums, counts = np.bincount(prompt, weights=difference), np.bincount(prompt)
    return Paired(
        difference=float(difference.mean()),
        base=float(one[both].mean()),
        positions=len(difference),
        sums=tuple(map(float, sums)),
        counts=tuple(map(int, counts)),
    )


def mean_of(values: Values) -> float | None:
    """Of what is known; None where nothing is."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else None


def later_of(kl: Values) -> Values:
    """[steps, n] -> [n]: the mean over the steps after the first, of those that are known."""
    known = ~np.isnan(kl[1:])
    counts = known.sum(axis=0)
    sums = np.where(known, kl[1:], 0.0).sum(axis=0)
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
