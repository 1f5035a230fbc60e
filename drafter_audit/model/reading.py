"""Bytes of a checkpoint become tensors, through its source: from a folder or the Hub, safetensors or pickled alike."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType

import torch
from torch import Tensor

from drafter_audit.checkpoint.table import TensorInfo
from drafter_audit.errors import CannotRunError, CheckpointError
from drafter_audit.sources.base import Source

DTYPES = MappingProxyType(
    {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "BOOL": torch.bool}
    | {"I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8}
    | {"F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2}
)
"""The stored dtypes that are read; others are packed."""

_READ_BYTES = 64 * 2**20
"""Asked for at a time: a source answers with the whole of it in memory."""


def read_tensor(source: Source, info: TensorInfo) -> Tensor:
    """The whole of one tensor, as stored. Raises CannotRunError for a dtype or view that is not read, CheckpointError
    where the file ends before; what the source raises."""
    check_readable(source, info)
    try:
        data = bytearray(info.nbytes)
    except MemoryError as error:
        what = f"{info.name} has {info.nbytes} bytes, more than there is memory for"
        raise CannotRunError(what, f"{source.name}/{info.file}", "load it on a larger machine") from error
    for start in range(0, info.nbytes, _READ_BYTES):
        stop = min(start + _READ_BYTES, info.nbytes)
        data[start:stop] = _read(source, info, start, stop)
    return _as_tensor(data, info, info.shape)


def read_rows(source: Source, info: TensorInfo, rows: Sequence[int]) -> Tensor:
    """Some rows of a table [n, width], in the order of `rows`; of what lies between them no more is kept than one read.

    Raises as `read_tensor`; CheckpointError for a row that the table does not have.
    """
    check_readable(source, info)
    row_bytes, step = info.nbytes // info.shape[0], max(1, _READ_BYTES * info.shape[0] // info.nbytes)
    if rows and not 0 <= min(rows) <= max(rows) < info.shape[0]:
        what = f"the vocabulary map leads outside the {info.shape[0]} rows of {info.name}"
        raise CheckpointError(
            what, f"{source.name}/{info.file}", "check d2t with lint, or name the drafter's own target"
        )
    picked = bytearray(len(rows) * row_bytes)
    places = sorted(range(len(rows)), key=lambda place: rows[place])
    at = 0
    while at < len(places):
        first, end = rows[places[at]], at
        while end < len(places) and rows[places[end]] < first + step:
            end += 1
        data = _read(source, info, first * row_bytes, (rows[places[end - 1]] + 1) * row_bytes)
        for place in places[at:end]:
            start = (rows[place] - first) * row_bytes
            picked[place * row_bytes : (place + 1) * row_bytes] = data[start : start + row_bytes]
        at = end
    return _as_tensor(picked, info, (len(rows), *info.shape[1:]))


def rows_of(info: TensorInfo, start: int, stop: int) -> TensorInfo:
    """The rows `[start, stop)` of a table, as a tensor of their own: no more of the file is read for them."""
    row_bytes = info.nbytes // info.shape[0] if info.shape[0] else 0
    shape = (stop - start, *info.shape[1:])
    return info._replace(shape=shape, start=info.start + start * row_bytes, nbytes=(stop - start) * row_bytes)


def check_readable(source: Source, info: TensorInfo) -> None:
    """Raises CannotRunError unless the tensor's values lie one after another, in a dtype that is read."""
    where = f"{source.name}/{info.file}"
    if info.dtype not in DTYPES:
        raise CannotRunError(f"{info.name} is stored as {info.dtype}", where, "save it as F32, F16 or BF16")
    if info.strides is not None:
        what = f"{info.name} is a view with the strides {list(info.strides)}"
        raise CannotRunError(what, where, "save its .contiguous() copy, best as safetensors")


def _read(source: Source, info: TensorInfo, start: int, stop: int) -> bytes:
    data = source.read_range(info.file, info.start + start, info.start + stop)
    if len(data) != stop - start:
        raise CheckpointError(f"cut short inside {info.name}", f"{source.name}/{info.file}", "download the real file")
    return data


def _as_tensor(data: bytearray, info: TensorInfo, shape: Sequence[int]) -> Tensor:
    if not data:
        return torch.empty(tuple(shape), dtype=DTYPES[info.dtype])
    return torch.frombuffer(data, dtype=DTYPES[info.dtype]).reshape(tuple(shape))
