"""Safetensors files of any size: a real header, and behind it a hole."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from math import prod
from pathlib import Path

from drafter_audit.checkpoint.header import DTYPE_BITS

Tensors = Mapping[str, tuple[str, tuple[int, ...]]]


def header_bytes(tensors: Tensors, metadata: Mapping[str, str] | None = None) -> tuple[bytes, int]:
    """The length and JSON of a header for `{name: (dtype, shape)}`, and the size in bytes of the tensors."""
    fields: dict[str, object] = {"__metadata__": dict(metadata)} if metadata else {}
    end = 0
    for name, (dtype, shape) in tensors.items():
        start, end = end, end + prod(shape) * DTYPE_BITS[dtype] // 8
        fields[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [start, end]}
    text = json.dumps(fields).encode()
    return len(text).to_bytes(8, "little") + text, end


def write_sparse(path: Path, tensors: Tensors, metadata: Mapping[str, str] | None = None) -> Path:
    """`path`, made a safetensors file whose tensors read as zeros and take no room on disk."""
    header, size = header_bytes(tensors, metadata)
    path.write_bytes(header)
    os.truncate(path, len(header) + size)
    return path


def write_safetensors(path: Path, fields: object, body: bytes = b"") -> Path:
    """`path`, made of any header, also a wrong one: `fields` is written as JSON, or as it is if it is bytes."""
    text = fields if isinstance(fields, bytes) else json.dumps(fields).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + body)
    return path
