"""Figures of norm vectors and of blocks of rows that tell trained values from fresh, damaged and misplaced ones.

Imports numpy. What the figures mean is for audit/rules/values.py to say.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from drafter_audit.measure.closeness import decode

Values = npt.NDArray[np.float64]
Marks = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Norm:
    """One norm vector. `name` is as stored; `least` and `greatest` are of its finite values, None where there are none;
    `non_finite` counts the others."""

    name: str
    file: str
    dtype: str
    elements: int
    least: float | None
    greatest: float | None
    non_finite: int

    def is_all(self, value: float) -> bool:
        """Whether every element is exactly that."""
        return self.non_finite == 0 and self.least == self.greatest == value

    def distance(self, value: float) -> float:
        """How far the furthest finite element is from it."""
        return max(abs(end - value) for end in (self.least, self.greatest, value) if end is not None)


@dataclass(frozen=True)
class Block:
    """Rows `[first, first + rows)` of a table, `width` elements each.

    `non_finite` counts elements, `zero_rows` rows of zeros alone, `equal_neighbours` the pairs of neighbouring rows
    that are equal and not zero, of `rows - 1`. `repeats` counts the pairs whose entries in d2t are equal,
    `explained` the equal neighbours among those; both None without a d2t of the table's length.
    The rest is of the rows that are not zero (a fresh nn.Embedding has one, its padding), and None where a value is not
    finite or all are equal: `mean`, `std` and `kurtosis` (3 for normal values, 1.8 for uniform ones); `row_spread` and
    `column_spread`, the standard deviation of the norms of rows (of columns) over their mean.
    """

    first: int
    rows: int
    width: int
    non_finite: int
    zero_rows: int
    equal_neighbours: int
    repeats: int | None = None
    explained: int | None = None
    mean: float | None = None
    std: float | None = None
    kurtosis: float | None = None
    row_spread: float | None = None
    column_spread: float | None = None

    def to_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


def measure_norm(data: bytes, dtype: str, *, name: str, file: str) -> Norm:
    """The figures of one norm vector, `data` as stored in `dtype`. Raises ValueError for a dtype not in DECODABLE."""
    values = decode(data, dtype)
    finite = values[np.isfinite(values)]
    least, greatest = (float(finite.min()), float(finite.max())) if finite.size else (None, None)
    return Norm(name, file, dtype, values.size, least, greatest, values.size - finite.size)


def measure_block(data: bytes, dtype: str, *, first: int, width: int, repeats: Marks | None = None) -> Block:
    """The figures of the rows in `data`; `repeats` [rows - 1] marks the neighbours whose entries in d2t are equal.

    Raises ValueError for a dtype not in DECODABLE.
    """
    values = decode(data, dtype).reshape(-1, width)
    zero: Marks = ~np.any(values, axis=1)
    equal: Marks = np.all(values[1:] == values[:-1], axis=1) & ~zero[1:]
    non_finite = int((~np.isfinite(values)).sum())
    return Block(
        first=first,
        rows=len(values),
        width=width,
        non_finite=non_finite,
        zero_rows=int(zero.sum()),
        equal_neighbours=int(equal.sum()),
        repeats=None if repeats is None else int(repeats.sum()),
        explained=None if repeats is None else int((equal & repeats).sum()),
        **({} if non_finite else _shape(values[~zero].astype(np.float64))),
    )


def _shape(values: Values) -> dict[str, float]:
    """The figures that a fresh table has by its initialisation alone; none for a table of one value, or of none."""
    if not values.size:
        return {}
    mean = float(values.mean())
    off = values - mean
    square = off * off
    variance = float(square.mean())
    if variance == 0:
        return {}
    return {
        "mean": mean,
        "std": variance**0.5,
        "kurtosis": float(np.einsum("ij,ij->", square, square)) / values.size / variance**2,
        "row_spread": _spread(np.einsum("ij,ij->i", values, values)),
        "column_spread": _spread(np.einsum("ij,ij->j", values, values)),
    }


def _spread(squares: Values) -> float:
    norms = np.sqrt(squares)
    return float(norms.std() / norms.mean())
