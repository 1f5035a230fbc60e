"""Rows of two stored tensors side by side, in pieces: memory does not grow with the tensor.

What is read at once is large, for the Hub answers each request late; what is compared at once is small, for values
take several times their stored size while they are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from drafter_audit.checkpoint.header import DTYPE_BITS
from drafter_audit.checkpoint.table import TensorInfo
from drafter_audit.errors import CheckpointError
from drafter_audit.sources.base import Source

READ_BYTES = 8 * 2**20
"""Of one side at a time, at least one row."""

PIECE_BYTES = 2**18
"""Compared at a time, at least one row: its values in float64 stay in a processor's cache."""

LONGEST_VECTOR = 2**20
"""Bytes up to which a vector is one row."""

Indices = npt.NDArray[np.intp]
Piece = tuple[bytes, bytes]


@dataclass(frozen=True)
class Stored:
    """A tensor and the files it lies in. `on_read` is told the bytes of each read."""

    source: Source
    info: TensorInfo
    on_read: Callable[[int], None]

    @cached_property
    def width(self) -> int:
        """Elements of a row: the last dimension. A vector is one row, unless it is long: then each element is."""
        shape = self.info.shape
        if len(shape) == 1:
            return shape[0] if self.info.nbytes <= LONGEST_VECTOR else 1
        return shape[-1] if shape else 1

    @cached_property
    def rows(self) -> int:
        return prod(self.info.shape) // self.width if self.width else 0

    @cached_property
    def row_bytes(self) -> int:
        """0 where rows end inside a byte, as rows of 4-bit values may."""
        bits = self.width * DTYPE_BITS[self.info.dtype]
        return 0 if bits % 8 else bits // 8

    def read(self, first: int, stop: int) -> bytes:
        """Rows `[first, stop)`. Raises CheckpointError where the file ends before; what the source raises."""
        return self.read_bytes(first * self.row_bytes, stop * self.row_bytes)

    def read_bytes(self, first: int, stop: int) -> bytes:
        """The tensor's bytes `[first, stop)`."""
        start = self.info.start
        data = self.source.read_range(self.info.file, start + first, start + stop)
        self.on_read(len(data))
        if len(data) != stop - first:
            where = f"{self.source.name}/{self.info.file}"
            raise CheckpointError(f"cut short inside tensor {self.info.name!r}", where, "download the real file")
        return data


def pieces_by_place(theirs: Stored, ours: Stored) -> Iterator[Piece]:
    """All rows of two tensors of one shape, in order."""
    step = _rows_in(READ_BYTES, theirs, ours)
    for first in range(0, ours.rows, step):
        stop = min(first + step, ours.rows)
        yield from _cut(theirs, ours, theirs.read(first, stop), ours.read(first, stop))


def pieces_by_row(theirs: Stored, ours: Stored, their_rows: Indices, our_rows: Indices) -> Iterator[Piece]:
    """Row `their_rows[i]` beside row `our_rows[i]`, for all i in order; `our_rows` ascend.

    Rows that ascend on both sides are read together; each byte is read once where both ascend throughout.
    """
    for run in _runs(their_rows, our_rows, _rows_in(READ_BYTES, theirs, ours)):
        yield from _cut(theirs, ours, _gather(theirs, their_rows[run]), _gather(ours, our_rows[run]))


def byte_pieces(theirs: Stored, ours: Stored) -> Iterator[Piece]:
    """All bytes of two tensors of one size, whatever they mean."""
    for first in range(0, ours.info.nbytes, READ_BYTES):
        stop = min(first + READ_BYTES, ours.info.nbytes)
        yield theirs.read_bytes(first, stop), ours.read_bytes(first, stop)


def _rows_in(nbytes: int, *tensors: Stored) -> int:
    return max(1, nbytes // max(1, *(tensor.row_bytes for tensor in tensors)))


def _cut(theirs: Stored, ours: Stored, first: bytes, last: bytes) -> Iterator[Piece]:
    step = _rows_in(PIECE_BYTES, theirs, ours)
    a, b = step * theirs.row_bytes, step * ours.row_bytes
    for piece in range(-(-len(last) // b) if b else 0):
        yield first[piece * a : (piece + 1) * a], last[piece * b : (piece + 1) * b]


def _runs(their_rows: Indices, our_rows: Indices, longest: int) -> Iterator[slice]:
    """Runs in which both ascend and no more than `longest` rows of either side are spanned."""
    start = 0
    theirs: list[Any] = their_rows.tolist()
    ours: list[Any] = our_rows.tolist()
    for at in range(1, len(theirs) + 1):
        if (
            at == len(theirs)
            or theirs[at] <= theirs[at - 1]
            or max(theirs[at] - theirs[start], ours[at] - ours[start]) >= longest
        ):
            yield slice(start, at)
            start = at


def _gather(tensor: Stored, rows: Indices) -> bytes:
    first, stop = int(rows[0]), int(rows[-1]) + 1
    data = tensor.read(first, stop)
    if len(rows) == stop - first:
        return data
    return np.frombuffer(data, np.uint8).reshape(stop - first, -1)[rows - first].tobytes()
