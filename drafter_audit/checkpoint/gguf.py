"""The header of a GGUF file: its metadata and the names, types and shapes of its tensors, no weight read.

The format: `GGUF`, version, the numbers of tensors and of metadata entries, the entries, the tensors' descriptions,
then their bytes from the next multiple of `general.alignment` on (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md).
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from math import prod

from drafter_audit.checkpoint.header import Header, HeaderEntry
from drafter_audit.errors import HeaderError
from drafter_audit.sources.base import Source

MAX_HEADER_BYTES = 64 * 2**20
"""The most that is read: a tokenizer of 250,000 tokens with its merges takes some 10 MB."""

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_FIRST_READ = 2**20
_DEEPEST = 4  # arrays within arrays
_LONGEST = 4096  # of an array whose entries are kept: layer ids, not a tokenizer's scores
_STRING, _ARRAY = 8, 9
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}

# Type of a tensor: name, weights in a block, bytes of a block, as in gguf-py constants.py.
_TYPES = {
    0: ("F32", 1, 4), 1: ("F16", 1, 2), 2: ("Q4_0", 32, 18), 3: ("Q4_1", 32, 20), 6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24), 8: ("Q8_0", 32, 34), 10: ("Q2_K", 256, 84), 11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144), 13: ("Q5_K", 256, 176), 14: ("Q6_K", 256, 210), 15: ("Q8_K", 256, 292),
    16: ("IQ2_XXS", 256, 66), 17: ("IQ2_XS", 256, 74), 18: ("IQ3_XXS", 256, 98), 19: ("IQ1_S", 256, 50),
    20: ("IQ4_NL", 32, 18), 21: ("IQ3_S", 256, 110), 22: ("IQ2_S", 256, 82), 23: ("IQ4_XS", 256, 136),
    24: ("I8", 1, 1), 25: ("I16", 1, 2), 26: ("I32", 1, 4), 27: ("I64", 1, 8), 28: ("F64", 1, 8),
    29: ("IQ1_M", 256, 56), 30: ("BF16", 1, 2), 34: ("TQ1_0", 256, 54), 35: ("TQ2_0", 256, 66), 39: ("MXFP4", 32, 17),
    40: ("NVFP4", 64, 36), 41: ("Q1_0", 128, 18),
}  # fmt: skip


def read_gguf(source: Source, name: str) -> Header:
    """The tensors of `name` in file order, shapes as PyTorch writes them (GGUF's dimensions reversed).

    `metadata` holds each entry as JSON; of a long array and one of strings only its length, as `{"length": n}`. Raises
    HeaderError for a file that is no GGUF, of an unknown version or tensor type, cut short, or with a header above 64
    MiB; what the source raises.
    """
    where, size = f"{source.name}/{name}", source.files().get(name)
    head, read = b"", _FIRST_READ
    while True:
        head += source.read_range(name, len(head), read, keep=True)
        try:
            return _parse(_Cursor(head, where), size)
        except _MoreError:
            if len(head) < read or len(head) == size:
                raise HeaderError("cut short within its header", where, "download the real file") from None
        if read >= MAX_HEADER_BYTES:
            raise HeaderError(f"a header above {MAX_HEADER_BYTES} bytes", where, "check that it is the right file")
        read *= 4


class _MoreError(Exception):
    """The header goes on behind what was read."""


class _Cursor:
    """The bytes read so far, and the place in them."""

    def __init__(self, data: bytes, where: str) -> None:
        self.data, self.where, self.at = data, where, 0

    def take(self, size: int) -> bytes:
        end = self.at + size
        if end > len(self.data):
            if end > MAX_HEADER_BYTES:
                raise self.wrong(f"{size} bytes are claimed at byte {self.at}")
            raise _MoreError
        taken, self.at = self.data[self.at : end], end
        return taken

    def number(self, form: str) -> int:
        return int(struct.unpack("<" + form, self.take(struct.calcsize("<" + form)))[0])

    def text(self) -> str:
        return self.take(self.number("Q")).decode("utf-8", "replace")

    def wrong(self, what: str) -> HeaderError:
        return HeaderError(what, self.where, "download the real file, or convert it again")


def _parse(cursor: _Cursor, size: int | None) -> Header:
    if cursor.data[:4] != _MAGIC:
        raise cursor.wrong("no GGUF file: it does not begin with GGUF")
    cursor.take(4)
    version, tensors, entries = cursor.number("I"), cursor.number("Q"), cursor.number("Q")
    if version not in _VERSIONS:
        raise cursor.wrong(f"GGUF version {version}, known are 2 and 3, little endian")
    metadata = {cursor.text(): json.dumps(_value(cursor, cursor.number("I"))) for _ in range(entries)}
    found = [_described(cursor) for _ in range(tensors)]
    if len({name for name, _, _, _ in found}) < len(found):
        raise cursor.wrong("a tensor is listed twice")
    alignment = _alignment(metadata, cursor)
    start = -(-cursor.at // alignment) * alignment
    return Header(tuple(_placed(found, start, size, cursor)), metadata)


def _alignment(metadata: dict[str, str], cursor: _Cursor) -> int:
    value = json.loads(metadata.get("general.alignment", "32"))
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise cursor.wrong(f"general.alignment is {value!r}")
    return value


def _value(cursor: _Cursor, kind: int, depth: int = 0) -> object:
    if kind == _STRING:
        return cursor.text()
    if kind == _ARRAY and depth < _DEEPEST:
        return _array(cursor, depth)
    if kind not in _SCALARS:
        raise cursor.wrong(f"metadata of the unknown type {kind}")
    form = "<" + _SCALARS[kind]
    value: object = struct.unpack(form, cursor.take(struct.calcsize(form)))[0]
    return value


def _array(cursor: _Cursor, depth: int) -> object:
    kind, length = cursor.number("I"), cursor.number("Q")
    if kind in _SCALARS:
        form = f"<{length}{_SCALARS[kind]}"
        if length > MAX_HEADER_BYTES:  # struct would overflow
            raise cursor.wrong(f"an array of {length} entries")
        taken = cursor.take(struct.calcsize(form))
        return list(struct.unpack(form, taken)) if length <= _LONGEST else {"length": length}
    for _ in range(length):
        _value(cursor, kind, depth + 1)
    return {"length": length}


def _described(cursor: _Cursor) -> tuple[str, tuple[int, ...], int, int]:
    name, rank = cursor.text(), cursor.number("I")
    if rank > 8:
        raise cursor.wrong(f"tensor {name!r} has {rank} dimensions")
    shape = tuple(cursor.number("Q") for _ in range(rank))[::-1]
    return name, shape, cursor.number("I"), cursor.number("Q")


def _placed(
    found: list[tuple[str, tuple[int, ...], int, int]], start: int, size: int | None, cursor: _Cursor
) -> Iterator[HeaderEntry]:
    for name, shape, kind, offset in found:
        if kind not in _TYPES:
            raise cursor.wrong(f"tensor {name!r} has the unknown type {kind}")
        dtype, block, nbytes = _TYPES[kind]
        if shape and shape[-1] % block:
            raise cursor.wrong(f"tensor {name!r}: rows of {shape[-1]} are no whole blocks of {block} in {dtype}")
        stored = prod(shape) // block * nbytes
        if size is not None and start + offset + stored > size:
            raise cursor.wrong(f"cut short: tensor {name!r} ends at byte {start + offset + stored} of {size}")
        yield HeaderEntry(name, dtype, shape, start + offset, stored)
