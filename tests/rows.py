"""Checkpoints that are holes but for chosen rows: tables of real size with real bytes where they are looked at."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

from drafter_audit.checkpoint.load import read_header
from drafter_audit.sources.open import open_source
from tests.checkpoints import PEERS, Tensors, read_peer
from tests.hub import write_sparse

STORED = {"F32": "<f4", "F16": "<f2", "BF16": "<u2", "I64": "<i8", "F64": "<f8"}
NAMES = {"float32": "F32", "float16": "F16", "uint16": "BF16", "int64": "I64", "int32": "I32", "float64": "F64"} | {
    "bool": "BOOL"
}

Array = np.ndarray
Rows = Mapping[str, Mapping[int, bytes]]
"""Tensor name -> first row -> the bytes of that row and those after it."""


def write_rows(folder: Path, tensors: Tensors, rows: Rows, *, file: str = "model.safetensors") -> Path:
    """`folder/file` of those shapes, zeros but for `rows`."""
    folder.mkdir(parents=True, exist_ok=True)
    write_sparse(folder / file, tensors)
    entries = {entry.name: entry for entry in read_header(open_source(str(folder)), file).entries}
    with (folder / file).open("r+b") as out:
        for name, chunks in rows.items():
            row_bytes = entries[name].nbytes // entries[name].shape[0]
            for first, data in chunks.items():
                out.seek(entries[name].start + first * row_bytes)
                out.write(data)
    return folder / file


def write_arrays(folder: Path, config: Mapping[str, Any], others: Tensors, arrays: Mapping[str, Array]) -> str:
    """A checkpoint of `arrays` (uint16 stands for BF16), and of `others` as holes; returned as a reference."""
    shapes = {name: (NAMES[array.dtype.name], array.shape) for name, array in arrays.items()}
    write_rows(folder, {**others, **shapes}, {name: {0: array.tobytes()} for name, array in arrays.items()})
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return str(folder)


def peer_rows(name: str) -> dict[str, Array]:
    """The rows that a peer's own code wrote: see data/peers/README.md."""
    return load_file(PEERS / name / "rows.safetensors")


def cut_peer(folder: Path, name: str, **changed: Array) -> str:
    """`folder`, made the checkpoint of a peer over its first 64 tokens; `changed` replaces tables, dots as `__`."""
    config, tensors, _ = read_peer(name)
    arrays = {**peer_rows(name), **{key.replace("__", "."): array for key, array in changed.items()}}
    vocabulary = {"vocab_size": 64, "draft_vocab_size": len(arrays.get("d2t", ())) or 64}
    others = {key: value for key, value in tensors.items() if key not in (*arrays, "t2d")}
    if "transformer_layer_config" in config:
        section = {**config["transformer_layer_config"], "vocab_size": 64}
        config = {**config, "transformer_layer_config": section}
    return write_arrays(folder, {**config, **vocabulary}, others, arrays)


def bf16(values: Array) -> Array:
    """The upper halves of float32 values, cut off: any bits will do for a table made by chance."""
    return (np.ascontiguousarray(values, np.float32).view(np.uint32) >> 16).astype(np.uint16)
