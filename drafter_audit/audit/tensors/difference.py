"""One pair of tensors becomes one TensorDifference: by value where both hold floats, else byte by byte."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from drafter_audit.audit.tensors.permutations import Order, too_many_rows
from drafter_audit.audit.tensors.reading import Piece, Stored, byte_pieces, pieces_by_place, pieces_by_row
from drafter_audit.audit.tensors.tally import FLOATS, NAMED_ROWS, Tally, narrower
from drafter_audit.audit.tensors.vocabulary import Shared
from drafter_audit.audit.weights import Kind, TensorDifference
from drafter_audit.checkpoint.table import TensorInfo
from drafter_audit.drafter.names import canonical

_SIGNED = {"I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1"}
_INTEGERS = _SIGNED | {"U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "u1", "BOOL": "u1"}
_MAY_BE_REORDERED: frozenset[Kind] = frozenset({"non_finite", "nearly_equal", "unrelated"})
_TABLES = frozenset({"d2t", "t2d"})


def compare_tensor(theirs: Stored, ours: Stored, head_dims: frozenset[int], shared: Shared | None) -> TensorDifference:
    """How ours differs from theirs. Raises what the sources raise.

    `head_dims` are sizes of a head, for permutations; `shared` the rows of lm_head that stand for the same tokens,
    where the draft vocabularies differ.
    """
    first, last = theirs.info, ours.info
    if first.strides or last.strides:
        return _found(theirs, ours, "not_compared", reason="a view in a pickled file: save it contiguous")
    floats = first.dtype in FLOATS and last.dtype in FLOATS
    if shared is not None and floats and _has_the_rows(first, last, shared):
        return _by_token(theirs, ours, shared)
    if first.shape != last.shape:
        return _found(theirs, ours, "other_shape")
    return _by_value(theirs, ours, head_dims) if floats else _by_bytes(theirs, ours)


def _has_the_rows(first: TensorInfo, last: TensorInfo, shared: Shared) -> bool:
    """A side that holds two heads may hold one that the map does not speak of."""
    return first.shape[1:] == last.shape[1:] and (*first.shape[:1], *last.shape[:1]) == shared.of


def is_packed(tensor: TensorDifference) -> bool:
    """Whether a tensor's numbers are no values on their own: anything but floats and the tables of token ids."""
    return not set(tensor.dtypes) <= set(FLOATS) and canonical(tensor.name) not in _TABLES


def is_of_unknown_order(tensor: TensorDifference) -> bool:
    """Whether the rows of a tensor may be the other's in another order, for it has too many to look."""
    return tensor.kind in _MAY_BE_REORDERED and tensor.matched_by == "place" and too_many_rows(tensor.shapes[1])


def _found(theirs: Stored, ours: Stored, kind: Kind, **figures: Any) -> TensorDifference:  # noqa: ANN401
    first, last = theirs.info, ours.info
    return TensorDifference(
        first.name, last.name, kind, shapes=(first.shape, last.shape), dtypes=(first.dtype, last.dtype), **figures
    )


def _by_value(theirs: Stored, ours: Stored, head_dims: frozenset[int]) -> TensorDifference:
    order = None
    if not too_many_rows(ours.info.shape):
        order = Order(theirs, ours, narrower(theirs.info.dtype, ours.info.dtype), head_dims)
    found = _tallied(theirs, ours, pieces_by_place(theirs, ours), order)
    permutation = order.found() if order is not None and found.kind in _MAY_BE_REORDERED else None
    return replace(found, kind="permuted", permutation=permutation, scale=None) if permutation else found


def _by_token(theirs: Stored, ours: Stored, shared: Shared) -> TensorDifference:
    if not len(shared.ours):
        why = "no token has a row on both sides"
        return _found(theirs, ours, "not_compared", rows=0, matched_by="token", reason=why)
    found = _tallied(theirs, ours, pieces_by_row(theirs, ours, shared.theirs, shared.ours))
    rows = tuple(int(shared.ours[row]) for row in found.first_differing)
    return replace(found, matched_by="token", first_differing=rows)


def _tallied(theirs: Stored, ours: Stored, pieces: Iterable[Piece], order: Order | None = None) -> TensorDifference:
    tally = Tally(theirs.info.dtype, ours.info.dtype, ours.width)
    for piece in pieces:
        tally.add(piece)
        if order is not None:
            order.add(piece)
    kind = tally.kind
    return _found(
        theirs,
        ours,
        kind,
        norm_ratio=tally.norm_ratio,
        max_abs=tally.max_abs,
        cosine=tally.cosine,
        rows=tally.rows,
        rows_differing=tally.rows_differing,
        first_differing=tuple(tally.first_differing),
        scale=tally.scale if kind == "scaled" else None,
        non_finite=tally.non_finite,
    )


def _by_bytes(theirs: Stored, ours: Stored) -> TensorDifference:
    """Packed values, token tables, switches. Integers of two sizes are compared as integers; a vector's rows are its
    elements."""
    same = theirs.info.dtype == ours.info.dtype
    if same and not ours.row_bytes:  # rows end inside a byte
        equal = all(first == last for first, last in byte_pieces(theirs, ours))
        return _found(theirs, ours, "bitwise_equal" if equal else "bytes_differ")
    if not same and not {theirs.info.dtype, ours.info.dtype} <= set(_INTEGERS):
        why = f"values of {theirs.info.dtype} and {ours.info.dtype} cannot be set side by side"
        return _found(theirs, ours, "not_compared", reason=why)
    rows, differing, named = 0, 0, list[int]()
    for piece in pieces_by_place(theirs, ours):
        changed = _rows_changed(piece, theirs, ours)
        places = np.flatnonzero(changed)
        named += (places[: NAMED_ROWS - len(named)] + rows).tolist()
        rows, differing = rows + len(changed), differing + len(places)
    kind: Kind = "bytes_differ" if differing else "bitwise_equal" if same else "equal_after_cast"
    return _found(theirs, ours, kind, rows=rows, rows_differing=differing, first_differing=tuple(named))


def _rows_changed(piece: Piece, theirs: Stored, ours: Stored) -> npt.NDArray[np.bool_]:
    width = 1 if len(ours.info.shape) < 2 else ours.width
    if theirs.info.dtype == ours.info.dtype:
        width = ours.row_bytes * width // ours.width or ours.row_bytes  # elements below a byte: the vector is a row
        x, y = (np.frombuffer(data, np.uint8).reshape(-1, width) for data in piece)
    else:
        dtypes = (_INTEGERS[tensor.info.dtype] for tensor in (theirs, ours))
        x, y = (np.frombuffer(data, dtype).reshape(-1, width) for data, dtype in zip(piece, dtypes, strict=True))
    changed: npt.NDArray[np.bool_] = (x != y).any(axis=1)
    return changed
