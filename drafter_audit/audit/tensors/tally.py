"""What pieces of two tensors come to: the class and the figures of the whole."""

from __future__ import annotations

from math import isfinite, sqrt

import numpy as np
import numpy.typing as npt

from drafter_audit.audit.tensors.reading import Piece
from drafter_audit.audit.weights import Kind
from drafter_audit.measure.closeness import MOST_DIFFERING, NEAR, Closeness, compare_rows, decode

FLOATS = ("F8_E5M2", "F8_E4M3", "BF16", "F16", "F32", "F64")
"""The dtypes whose values are compared, by rising precision."""

NAMED_ROWS = 8
"""Differing rows that are named."""

_SAME_SCALE = 1e-3  # relative: a scale fitted to thousands of rounded values is more exact than that
_HALF = frozenset({"F8_E5M2", "F8_E4M3", "BF16", "F16"})

Floats = npt.NDArray[np.float32]


def narrower(one: str, other: str) -> str:
    """The one of two dtypes of FLOATS with less precision."""
    return min(one, other, key=FLOATS.index)


class Tally:
    """Sums in float64 over pieces of rows of `width` elements; theirs is the original.

    The class of the whole is that of measure/closeness.py, whose rules for single pieces are put together here; what
    it calls unrelated for a NaN or an infinity is `non_finite`, for figures are of the other rows.
    """

    def __init__(self, their_dtype: str, our_dtype: str, width: int) -> None:
        self._dtypes = (their_dtype, our_dtype)
        self._width = width
        self._squares, self._product, self._zero_rows = [0.0, 0.0], 0.0, 0
        self._bitwise = their_dtype == our_dtype
        self._kinds: set[str] = set()  # of the pieces that hold more than zeros
        self._scales: list[float] = []
        self.rows = self.rows_differing = self.non_finite = 0
        self.max_abs = 0.0
        self.first_differing: list[int] = []

    def add(self, piece: Piece) -> None:
        """The next piece."""
        theirs, ours = piece
        y = decode(ours, self._dtypes[1]).reshape(-1, self._width)
        if self._dtypes[0] == self._dtypes[1] and theirs == ours:
            self._equal(y)
        else:
            self._unequal(piece, decode(theirs, self._dtypes[0]).reshape(-1, self._width), y)
        self.rows += len(y)

    def _equal(self, x: Floats) -> None:
        zero_rows = int((~x.any(axis=1)).sum())
        self._zero_rows += zero_rows
        self._kinds |= {"bitwise_equal"} if zero_rows < len(x) else set()
        self._sum_equal(x)

    def _unequal(self, piece: Piece, x: Floats, y: Floats) -> None:
        if self._settled:
            self._note(np.flatnonzero((x != y).any(axis=1)), int((~(x.any(axis=1) | y.any(axis=1))).sum()))
            self.non_finite += int((~np.isfinite(x)).sum() + (~np.isfinite(y)).sum())
        else:
            self._class(compare_rows(piece[0], self._dtypes[0], piece[1], self._dtypes[1], width=self._width))
        self._sum(x, y)

    @property
    def kind(self) -> Kind:
        """The class of all pieces so far."""
        if self._bitwise:
            return "bitwise_equal"
        if self.non_finite:
            return "non_finite"
        if not self.rows_differing:
            return "equal_after_cast"
        if self.rows_differing < MOST_DIFFERING * (self.rows - self._zero_rows):
            return "nearly_equal"
        if self.scale is not None:
            return "scaled"
        near = all(abs(scale - 1) <= NEAR for scale in self._scales)
        return "nearly_equal" if near and "unrelated" not in self._kinds else "unrelated"

    @property
    def scale(self) -> float | None:
        """The one factor of every piece that differs, None where there is none."""
        low, high = min(self._scales, default=0.0), max(self._scales, default=0.0)
        one = self._kinds == {"scaled"} and high - low <= _SAME_SCALE * abs(high)
        return sum(self._scales) / len(self._scales) if one else None

    @property
    def norm_ratio(self) -> float | None:
        first, last = self._squares
        return sqrt(last / first) if first else None

    @property
    def cosine(self) -> float | None:
        first, last = self._squares
        return self._product / (sqrt(first) * sqrt(last)) if first and last else None

    @property
    def _settled(self) -> bool:
        """Once a piece is unrelated only the number of differing rows matters; half precision knows no cast."""
        return "unrelated" in self._kinds and self._dtypes[0] == self._dtypes[1] and self._dtypes[0] in _HALF

    def _class(self, piece: Closeness) -> None:
        self._bitwise = False
        self._kinds |= {piece.kind} if piece.zero_rows < piece.rows else set()
        self._note(np.array(piece.differing, np.intp), piece.zero_rows)
        self.non_finite += piece.non_finite
        if piece.scale is not None:
            self._scales.append(piece.scale)

    def _note(self, differing: npt.NDArray[np.intp], zero_rows: int) -> None:
        room = NAMED_ROWS - len(self.first_differing)
        self.first_differing += (differing[:room] + self.rows).tolist()
        self.rows_differing += len(differing)
        self._zero_rows += zero_rows

    def _sum(self, x: Floats, y: Floats) -> None:
        p, q = x.astype(np.float64), y.astype(np.float64)
        first, last = _dot(p, p), _dot(q, q)
        if not isfinite(first + last):  # no square of a float32 leaves float64: a value is NaN or infinite
            finite = np.isfinite(p).all(axis=1) & np.isfinite(q).all(axis=1)
            p, q = p[finite], q[finite]
            first, last = _dot(p, p), _dot(q, q)
        self._squares[0] += first
        self._squares[1] += last
        self._product += _dot(p, q)
        q -= p
        self.max_abs = max(self.max_abs, float(np.abs(q, out=q).max(initial=0.0)))

    def _sum_equal(self, x: Floats) -> None:
        p = x.astype(np.float64)
        square = _dot(p, p)
        if not isfinite(square):
            p = p[np.isfinite(p).all(axis=1)]
            square = _dot(p, p)
        self._squares = [self._squares[0] + square, self._squares[1] + square]
        self._product += square


def _dot(p: npt.NDArray[np.float64], q: npt.NDArray[np.float64]) -> float:
    """Not np.vdot: on pieces of this size a BLAS spends its time on waking threads."""
    return float(np.einsum("ij,ij->", p, q))
