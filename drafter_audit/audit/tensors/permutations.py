"""Whether one tensor is the other with its rows or heads in another order. Rows are told apart by 64-bit hashes.

Two hashes a row are held until the last row is read, so order is not looked for in tensors of very many rows.
"""

from __future__ import annotations

import hashlib
import re
from array import array
from math import prod

import numpy as np
import numpy.typing as npt

from drafter_audit.audit.tensors.reading import Piece, Stored
from drafter_audit.audit.weights import Permutation
from drafter_audit.checkpoint.header import DTYPE_BITS
from drafter_audit.measure.closeness import decode, round_to

_HEAD_ROWS = re.compile(r"(?:^|\.)(?:q|k|v|qkv)_proj\.(?:weight|bias)$")
_HEAD_COLUMNS = re.compile(r"(?:^|\.)o_proj\.weight$")

MOST_ROWS = 2**19
"""Far above any vocabulary: 8 MiB of hashes."""

Hashes = npt.NDArray[np.int64]


def too_many_rows(shape: tuple[int, ...]) -> bool:
    """Whether order is not looked for in a tensor of this shape. A vector's rows are its elements here."""
    return prod(shape if len(shape) == 1 else shape[:-1]) > MOST_ROWS


class Order:
    """Takes the pieces of two tensors of one shape in order, and says at the end how their order differs.

    A vector's rows are its elements here. `narrower` is the dtype of the two with less precision: both are rounded to
    it before they are hashed, so that a copy in another dtype and another order is found too. `head_dims` are the
    sizes of a head that either side states.
    """

    def __init__(self, theirs: Stored, ours: Stored, narrower: str, head_dims: frozenset[int]) -> None:
        name = ours.info.name
        self._dtypes = (theirs.info.dtype, ours.info.dtype)
        self._narrower = narrower
        self._width = 1 if len(ours.info.shape) == 1 else ours.width
        self._head_dims = sorted(head_dims) if _HEAD_ROWS.search(name) else []
        self._rows = array("q"), array("q")  # not lists: an integer object takes five times the room
        wide = sorted(head_dims) if _HEAD_COLUMNS.search(name) else []
        self._columns = [_Columns(self._width, dim) for dim in wide if self._width % dim == 0]

    def add(self, piece: Piece) -> None:
        """The next piece. Rows equal in place need no hash: their index stands for them."""
        same = self._dtypes[0] == self._dtypes[1] and piece[0] == piece[1]
        if same and not self._columns:
            place = len(self._rows[0])
            count = len(piece[0]) // (self._width * _itemsize(self._dtypes[0]))
            for rows in self._rows:
                rows.extend(range(place, place + count))
            return
        for side, (data, dtype, rows) in enumerate(zip(piece, self._dtypes, self._rows, strict=True)):
            values = self._comparable(data, dtype)
            size = self._width * values.itemsize
            raw = values.tobytes()
            rows.extend(hash(raw[at : at + size]) for at in range(0, len(raw), size))
            for columns in self._columns:
                columns.add(side, values)

    def found(self) -> Permutation | None:
        """What maps theirs to ours, the narrowest statement that holds; None where nothing does."""
        theirs, ours = (np.frombuffer(rows, np.int64) for rows in self._rows)
        for dim in self._head_dims:
            if _interleaved(theirs, ours, dim):
                return "rope_interleave"
        if any(_same_blocks(theirs, ours, dim) for dim in self._head_dims):
            return "heads"
        if any(columns.permuted() for columns in self._columns):
            return "heads"
        return "rows" if np.array_equal(np.sort(theirs), np.sort(ours)) else None

    def _comparable(self, data: bytes, dtype: str) -> npt.NDArray[np.generic]:
        if self._dtypes[0] == self._dtypes[1]:
            return np.frombuffer(data, f"V{_itemsize(dtype)}")
        return round_to(decode(data, dtype), self._narrower) + np.float32(0)  # -0 becomes 0


class _Columns:
    """Blocks of columns, one for each head, each hashed over all rows."""

    def __init__(self, width: int, head_dim: int) -> None:
        self._width, self._head_dim = width, head_dim
        self._hashes = tuple([hashlib.blake2b(digest_size=8) for _ in range(width // head_dim)] for _ in range(2))

    def add(self, side: int, values: npt.NDArray[np.generic]) -> None:
        rows = values.reshape(-1, self._width)
        for head, hashed in enumerate(self._hashes[side]):
            hashed.update(rows[:, head * self._head_dim : (head + 1) * self._head_dim].tobytes())

    def permuted(self) -> bool:
        theirs, ours = (sorted(hashed.digest() for hashed in side) for side in self._hashes)
        return theirs == ours


def interleave(rows: int, head_dim: int) -> npt.NDArray[np.intp]:
    """Where each row of a GGUF q or k projection lies in Hugging Face's, whose heads hold first the one half of each
    rotated pair and then the other; GGUF holds pair beside pair (llama.cpp's convert_hf_to_gguf.py, `permute`).

    >>> interleave(4, 4).tolist()
    [0, 2, 1, 3]
    """
    return np.arange(rows).reshape(-1, 2, head_dim // 2).swapaxes(1, 2).ravel()


def _interleaved(theirs: Hashes, ours: Hashes, head_dim: int) -> bool:
    if head_dim < 4 or head_dim % 2 or len(ours) % head_dim:
        return False
    order = interleave(len(ours), head_dim)
    return np.array_equal(theirs[order], ours) or np.array_equal(ours[order], theirs)


def _same_blocks(theirs: Hashes, ours: Hashes, head_dim: int) -> bool:
    if len(ours) % head_dim:
        return False
    return _blocks(theirs, head_dim) == _blocks(ours, head_dim)


def _blocks(rows: Hashes, head_dim: int) -> list[bytes]:
    return sorted(block.tobytes() for block in rows.reshape(-1, head_dim))


def _itemsize(dtype: str) -> int:
    return DTYPE_BITS[dtype] // 8
