"""Which rows of a drafter's table are read, and which of the target's they stand for. Imports numpy.

A sample is deterministic: runs of neighbouring rows, spread evenly from the first row to the last, one request each on
both sides. A head's rows lie scattered in the target, so of each part of the draft vocabulary the run is taken whose
target rows lie closest together: they are read as one range, with the few rows between them.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int64]

MOST_RUNS = 16
LONGEST_RUN = 32
MOST_ROWS = MOST_RUNS * LONGEST_RUN


@dataclass(frozen=True)
class Run:
    """Draft rows `[start, stop)`; their target rows lie in `[low, high)`."""

    start: int
    stop: int
    low: int
    high: int


def choose_runs(targets: Ids, *, row_bytes: int, target_row_bytes: int, budget: int) -> tuple[Run, ...]:
    """Runs that cost at most `budget` bytes on both sides, as many rows as that allows; none where not one row fits.

    `targets` [draft rows] holds the target row of each draft row. Tables of up to 512 rows are taken whole.
    """

    def cost(runs: tuple[Run, ...]) -> int:
        return sum((run.stop - run.start) * row_bytes + (run.high - run.low) * target_row_bytes for run in runs)

    if len(targets) <= MOST_ROWS:
        whole = (_run(targets, 0, len(targets)),)
        if cost(whole) <= budget:
            return whole
    affordable = budget // (row_bytes + target_row_bytes)
    for length in range(min(LONGEST_RUN, max(1, affordable // MOST_RUNS)), 0, -1):
        runs = _spread(targets, min(MOST_RUNS, affordable // length, len(targets) // length), length)
        if runs and cost(runs) <= budget:
            return runs
    return ()


def _spread(targets: Ids, runs: int, length: int) -> tuple[Run, ...]:
    """One run of `length` in each of `runs` equal parts of the table."""
    ends = [len(targets) * part // runs for part in range(runs + 1)] if runs else []
    return tuple(_closest(targets, first, last, length) for first, last in pairwise(ends))


def _closest(targets: Ids, first: int, last: int, length: int) -> Run:
    """The run inside `[first, last)` whose target rows span least: the first such, at the table's end the last."""
    windows = np.lib.stride_tricks.sliding_window_view(targets[first:last], length)
    spans = windows.max(axis=1) - windows.min(axis=1)
    at_end = last == len(targets) and first > 0
    best = len(spans) - 1 - int(np.argmin(spans[::-1])) if at_end else int(np.argmin(spans))
    return _run(targets, first + best, first + best + length)


def _run(targets: Ids, start: int, stop: int) -> Run:
    rows = targets[start:stop]
    return Run(start, stop, int(rows.min()), int(rows.max()) + 1)


def pick_rows(data: bytes, run: Run, targets: Ids, row_bytes: int) -> bytes:
    """Of the target's rows `[low, high)`, those that the run's draft rows stand for, in draft order."""
    table: npt.NDArray[Any] = np.frombuffer(data, np.uint8).reshape(-1, row_bytes)
    return table[targets[run.start : run.stop] - run.low].tobytes()


def row_numbers(runs: tuple[Run, ...], places: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    """Ranges, first and last, of the draft rows that stand at `places` of the sample."""
    rows = [row for run in runs for row in range(run.start, run.stop)]
    ranges: list[tuple[int, int]] = []
    for row in (rows[place] for place in places):
        if ranges and ranges[-1][1] == row - 1:
            ranges[-1] = (ranges[-1][0], row)
        else:
            ranges.append((row, row))
    return tuple(ranges)
