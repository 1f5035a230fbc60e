"""Kimi's drafter in two shards with an index."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.checkpoints import KIMI_CONFIG, Tensors, kimi_tensors
from tests.hub import write_sparse
from tests.hub.torch_files import write_torch_file

INDEX = "model.safetensors.index.json"
FIRST, SECOND = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
STORED = kimi_tensors()
BYTES = 2 * 1_190_948_864 + 8 * 32_000 + 163_840  # bf16 weights, an int64 map, a mask of bytes


def write_shards(folder: Path, shards: dict[str, Tensors], index: object, name: str = INDEX) -> Path:
    for file, tensors in shards.items():
        write = write_sparse if file.endswith(".safetensors") else write_torch_file
        write(folder / file, tensors)
    (folder / "config.json").write_text(json.dumps(KIMI_CONFIG))
    (folder / name).write_text(json.dumps(index))
    return folder


def halves(first: str = FIRST, second: str = SECOND) -> dict[str, Tensors]:
    names = list(STORED)
    return {first: {name: STORED[name] for name in names[:8]}, second: {name: STORED[name] for name in names[8:]}}


def index_of(shards: dict[str, Tensors], total_size: object = BYTES) -> dict[str, Any]:
    weight_map = {name: file for file, tensors in shards.items() for name in tensors}
    return {"metadata": {"total_size": total_size}, "weight_map": weight_map}
