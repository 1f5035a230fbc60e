"""Files as torch.save writes them, of any size: a real archive, and holes for the weights.

Torch 2.13 loads what this writes (`torch.load(path, weights_only=True)`).
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from math import prod
from pathlib import Path
from typing import BinaryIO

from drafter_audit.checkpoint.header import DTYPE_BITS
from tests.hub.sparse import Tensors

STORAGES = {"F16": "HalfStorage", "BF16": "BFloat16Storage", "F32": "FloatStorage", "I64": "LongStorage",
            "BOOL": "BoolStorage"}  # fmt: skip


def text(value: str) -> bytes:
    """The opcode that pushes a string."""
    return b"X" + struct.pack("<I", len(value.encode())) + value.encode()


def number(value: int) -> bytes:
    """The opcode that pushes an integer."""
    size = value.bit_length() // 8 + 1
    return b"\x8a" + bytes([size]) + value.to_bytes(size, "little", signed=True)


def numbers(values: tuple[int, ...]) -> bytes:
    return b"(" + b"".join(map(number, values)) + b"t"


def storage(key: str, numel: int, kind: str = "HalfStorage") -> bytes:
    """The opcodes that push a storage."""
    return b"(" + text("storage") + f"ctorch\n{kind}\n".encode() + text(key) + text("cpu") + number(numel) + b"tQ"


def tensor(key: str, dtype: str, shape: tuple[int, ...]) -> bytes:
    """The opcodes that push a tensor which has a storage to itself."""
    strides = tuple(accumulate(reversed(shape[1:]), int.__mul__, initial=1))[::-1] if shape else ()
    parts = storage(key, prod(shape), STORAGES[dtype]) + number(0) + numbers(shape) + numbers(strides)
    return b"ctorch._utils\n_rebuild_tensor_v2\n(" + parts + b"\x89ccollections\nOrderedDict\n)RtR"


def state_dict(tensors: Tensors) -> bytes:
    """The pickle, by protocol 2, of a dict of tensors whose storages are numbered."""
    items = (text(name) + tensor(str(key), *of) for key, (name, of) in enumerate(tensors.items()))
    return b"\x80\x02}(" + b"".join(items) + b"u."


@dataclass(frozen=True)
class Entry:
    """One entry of the archive; `data` is its bytes, or how many zeros a hole stands for."""

    name: str
    data: bytes | int

    @property
    def size(self) -> int:
        return self.data if isinstance(self.data, int) else len(self.data)

    @property
    def crc(self) -> int:
        return 0 if isinstance(self.data, int) else zlib.crc32(self.data)


def write_torch_file(path: Path, tensors: Tensors) -> Path:
    """`path`, made what torch.save writes of such tensors; their values are zeros that take no room on disk."""
    sizes = {str(key): prod(shape) * DTYPE_BITS[dtype] // 8 for key, (dtype, shape) in enumerate(tensors.values())}
    return write_archive(path, state_dict(tensors), sizes)


def write_archive(path: Path, pickle: bytes, storages: Mapping[str, bytes | int]) -> Path:
    """`path`, made an archive of that pickle and those storages."""
    return write_entries(path, [Entry(f"{path.stem}/{name}", data) for name, data in _parts(pickle, storages)])


def write_entries(path: Path, entries: list[Entry]) -> Path:
    """`path`, made an archive of any entries, also such as torch never writes."""
    with path.open("wb") as file:
        offsets = [_write_entry(file, entry) for entry in entries]
        start = file.tell()
        for entry, offset in zip(entries, offsets, strict=True):
            file.write(_directory_entry(entry, offset))
        size = file.tell() - start
        file.write(struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, len(entries), len(entries), size, start, 0))
    return path


def _parts(pickle: bytes, storages: Mapping[str, bytes | int]) -> Iterator[tuple[str, bytes | int]]:
    yield from (
        ("data.pkl", pickle),
        (".format_version", b"1"),
        (".storage_alignment", b"64"),
        ("byteorder", b"little"),
    )
    yield from ((f"data/{key}", data) for key, data in storages.items())
    yield from (("version", b"3\n"), (".data/serialization_id", b"0" * 40))


def _write_entry(file: BinaryIO, entry: Entry) -> int:
    """Header, padding to a multiple of 64, data, descriptor; returns where the header begins."""
    offset, name = file.tell(), entry.name.encode()
    padding = -(offset + 30 + len(name) + 4) % 64
    head = struct.pack("<4s5H3I2H", b"PK\3\4", 0, 0x808, 0, 0, 0, 0, 0, 0, len(name), 4 + padding)
    file.write(head + name + struct.pack("<2s H", b"FB", padding) + b"Z" * padding)
    if isinstance(entry.data, int):
        file.seek(entry.data, 1)
    else:
        file.write(entry.data)
    if entry.size:
        file.write(struct.pack("<4s3I", b"PK\7\x08", entry.crc, entry.size, entry.size))
    return offset


def _directory_entry(entry: Entry, offset: int) -> bytes:
    name = entry.name.encode()
    sizes = (entry.crc, entry.size, entry.size, len(name), 0, 0, 0, 0, 0, offset)
    return struct.pack("<4s6H3I5H2I", b"PK\1\2", 0, 0, 0x808, 0, 0, 0, *sizes) + name
