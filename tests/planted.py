"""Faults planted in checkpoints of the reference drafter: what a trainer's, exporter's or user's mistake leaves behind.

The drafter's weights stay what they were trained to be, but where a fault is one of the file; what it declares, or how
the tensors lie in it, is wrong. So the wiring it was trained with is known, and what it declares is another one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

TINY = Path(__file__).resolve().parents[1] / "reference_models" / "tiny" / "drafter"

Config = dict[str, Any]
Weights = dict[str, Tensor]
Plant = Callable[[Config, Weights], None]


def planted(folder: Path, *faults: str, also: Mapping[str, Plant] | None = None) -> str:
    """The reference drafter with those faults, written into `folder`."""
    config = json.loads((TINY / "config.json").read_text())
    weights = load_file(TINY / "model.safetensors")
    for fault in faults:
        (PLANTS | dict(also or {}))[fault](config, weights)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "drafter-audit.toml").write_text((TINY / "drafter-audit.toml").read_text())
    save_file({name: tensor.contiguous() for name, tensor in weights.items()}, folder / "model.safetensors")
    return str(folder)


def _ids(*ids: int) -> Plant:
    def plant(config: Config, _: Weights) -> None:
        config["eagle_config"]["eagle_aux_hidden_state_layer_ids"] = list(ids)

    return plant


def _theta(theta: float) -> Plant:
    def plant(config: Config, _: Weights) -> None:
        config["rope_parameters"]["rope_theta"] = theta

    return plant


def _switch(key: str, value: object) -> Plant:
    def plant(config: Config, _: Weights) -> None:
        config[key] = value

    return plant


def _columns(*order: int) -> Plant:
    """fc's blocks of columns in another order, as if its inputs had been concatenated so."""

    def plant(_: Config, weights: Weights) -> None:
        blocks = weights["fc.weight"].chunk(len(order), dim=1)
        weights["fc.weight"] = torch.cat([blocks[slot] for slot in order], dim=1)

    return plant


def _halves(_: Config, weights: Weights) -> None:
    """The attention's inputs stored for [state ; embedding]."""
    for name in "qkv":
        key = next(key for key in weights if key.endswith(f"self_attn.{name}_proj.weight"))
        weights[key] = torch.cat(weights[key].chunk(2, dim=1)[::-1], dim=1)


def _absolute(_: Config, weights: Weights) -> None:
    """Target ids where offsets belong."""
    weights["d2t"] = weights["d2t"] + torch.arange(len(weights["d2t"]))


def _scaling(config: Config, _: Weights) -> None:
    """What an exporter adds that was never trained with."""
    config["rope_parameters"] |= {"rope_type": "yarn", "factor": 32.0, "original_max_position_embeddings": 1024}


def _input_norm(config: Config, weights: Weights) -> None:
    """A norm before fc that was not there in training."""
    config["norm_before_fc"] = True
    weights["input_norm.weight"] = torch.ones(weights["fc.weight"].shape[1], dtype=torch.bfloat16)


def _fc_norms(config: Config, weights: Weights) -> None:
    """The same, one for each state."""
    config["fc_norm"] = True
    width = config["target_hidden_size"]
    weights |= {f"fc_norm.{slot}.weight": torch.ones(width, dtype=torch.bfloat16) for slot in range(3)}


def _no_last_norm(config: Config, _: Weights) -> None:
    config["eagle_config"]["use_last_layernorm"] = False


PLANTS: dict[str, Plant] = {
    "ids +1": _ids(3, 7, 10),
    "ids -1": _ids(0, 4, 7),
    "slot 0 +1": _ids(2, 5, 8),
    "slot 1 -2": _ids(1, 3, 8),
    "slot 2 -1": _ids(1, 5, 7),
    "embedding in slot 0": _ids(-1, 5, 8),
    "last layers": _ids(9, 10, 11),
    "fc columns 0 1 swapped": _columns(1, 0, 2),
    "fc columns reversed": _columns(2, 1, 0),
    "theta 1e6": _theta(1e6),
    "theta 500000": _theta(5e5),
    "yarn": _scaling,
    "attention halves swapped": _halves,
    "absolute d2t": _absolute,
    "norm_before_fc": _input_norm,
    "fc_norm": _fc_norms,
    "no last norm": _no_last_norm,
    "norm_before_residual": _switch("norm_before_residual", True),
    "norm_output": _switch("norm_output", True),
}
