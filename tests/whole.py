"""Small checkpoints with a value in every element, such as training leaves: a map that leads somewhere, moved norms."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from tests.checkpoints import Tensors, read_peer

Array = np.ndarray


def write_whole_peer(folder: Path, name: str, config: Mapping[str, Any] | None = None, **arrays: Array | None) -> str:
    """A peer's drafter with every value written. `config` changes its settings, `arrays` its tensors (dots as `__`,
    None: left out)."""
    said, tensors, metadata = read_peer(name)
    return write_whole(folder, {**said, **(config or {})}, {**values(tensors), **_named(arrays)}, metadata)


def write_whole(
    folder: Path,
    config: Mapping[str, Any],
    arrays: Mapping[str, Array | None],
    metadata: Mapping[str, str] | None = None,
) -> str:
    """A checkpoint of those arrays; returned as a reference."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    kept = {name: array for name, array in arrays.items() if array is not None}
    save_file(kept, folder / "model.safetensors", None if metadata is None else dict(metadata))
    return str(folder)


def write_config(folder: Path, config: Mapping[str, Any]) -> str:
    """A folder that holds a config.json and nothing else; returned as a reference."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return str(folder)


def values(tensors: Tensors) -> dict[str, Array]:
    """An array for each tensor: the map spreads the draft tokens over the target's, and the mask marks those."""
    drafted, tokens = (tensors[name][1][0] if name in tensors else None for name in ("d2t", "t2d"))
    made = {name: table(shape, seed=i) for i, (name, (_, shape)) in enumerate(sorted(tensors.items()))}
    if drafted is not None:
        stride = tokens // drafted if tokens else 2
        made["d2t"] = np.arange(drafted, dtype=np.int64) * (stride - 1)
        if tokens is not None:
            made["t2d"] = np.isin(np.arange(tokens), np.arange(drafted) * stride)
    return made


def table(shape: tuple[int, ...], *, seed: int = 0) -> Array:
    """float32 with rows of different sizes, as training makes them; a norm is spread about one."""
    draw = np.random.default_rng(seed)
    if len(shape) == 1:
        return draw.normal(1.0, 0.2, shape).astype(np.float32)
    sizes = draw.lognormal(-3.5, 0.5, (shape[0], 1))
    return (draw.standard_t(5, shape) * sizes).astype(np.float32)


def _named(arrays: Mapping[str, Array | None]) -> dict[str, Array | None]:
    return {key.replace("__", "."): array for key, array in arrays.items()}
