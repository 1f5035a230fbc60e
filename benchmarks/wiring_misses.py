"""How often a 95% interval over few prompts misses what it is an interval of.

All prompts of a long recording are taken for all that there are, so that the truth is known: the difference between two
wirings over all of them. Prompts are drawn from them, each as likely at each draw, and the intervals are made of these.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from drafter_audit.measure.bootstrap import ratio_interval
from drafter_audit.wiring.paired import Rows, Values, paired

PROMPTS = (2, 3, 4, 6, 8, 12, 16, 32)
_RESAMPLES = 2000


@dataclass(frozen=True)
class Misses:
    """Of `draws` of so many `prompts`: how many intervals leave out the truth, of plain percentiles and of ours; and in
    how many the whole interval lies further from zero than the truth, so that more is claimed than there is."""

    of: str
    prompts: int
    draws: int
    plain: int
    plain_beyond: int
    ours: int
    ours_beyond: int


def misses(name: str, base: Values, other: Values, prompt_of: Rows, draws: int) -> Iterator[Misses]:
    whole = paired(base, other, prompt_of)
    assert whole is not None
    table = np.array([whole.sums, whole.counts], dtype=np.float64)
    for prompts in PROMPTS:
        random = np.random.default_rng(prompts)
        chosen = [table[:, random.integers(0, table.shape[1], prompts)] for _ in range(draws)]
        plain = [percentiles(each, random) for each in chosen]
        ours = [ratio_interval(list(each[0]), list(each[1])) for each in chosen]
        yield Misses(name, prompts, draws, *_counted(plain, whole.difference), *_counted(ours, whole.difference))


def percentiles(table: Values, random: np.random.Generator) -> tuple[float, float]:
    """The plain percentile interval of sum / sum of [2, prompts], resampled."""
    rows = random.integers(0, table.shape[1], (_RESAMPLES, table.shape[1]))
    sums = table[:, rows].sum(axis=2)
    low, high = np.quantile(sums[0] / sums[1], (0.025, 0.975))
    return float(low), float(high)


def _counted(intervals: list[tuple[float, float]] | list[tuple[float, float] | None], truth: float) -> tuple[int, int]:
    known = [each for each in intervals if each is not None]
    outside = [low > truth or high < truth for low, high in known]
    beyond = [low > truth if truth > 0 else high < truth for low, high in known]
    return sum(outside), sum(beyond)
