"""Faults planted in checkpoints of the reference drafter: what a trainer's, exporter's or user's mistake leaves behind.

The drafter's weights stay what they were trained to be, but where a fault is one of the file; what it declares, or how
the tensors lie in it, is wrong. So the wiring it was trained with is known, and what it declares is another one. Each
plant takes a checkpoint of any dialect that `exporters.py` writes, and finds the keys where that dialect has them.
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
TARGET = TINY.parent / "target"
PICKLED = "pytorch_model.bin"

Config = dict[str, Any]
Weights = dict[str, Tensor]
Plant = Callable[[Config, Weights], None]


def planted(folder: Path, *faults: str, also: Mapping[str, Plant] | None = None, of: Path = TINY) -> str:
    """The drafter in `of` with those faults, written into `folder`, pickled where that is."""
    config = json.loads((of / "config.json").read_text())
    pickled = (of / PICKLED).exists()
    weights = torch.load(of / PICKLED, weights_only=True) if pickled else load_file(of / "model.safetensors")
    for fault in faults:
        (PLANTS | dict(also or {}))[fault](config, weights)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "drafter-audit.toml").write_text((TINY / "drafter-audit.toml").read_text())
    whole = {name: tensor.contiguous() for name, tensor in weights.items()}
    if pickled:
        torch.save(whole, folder / PICKLED)
    else:
        save_file(whole, folder / "model.safetensors")
    return str(folder)


def attention_at_random(_: Config, weights: Weights) -> None:
    """Which neither lint nor another wiring tells from a trained one."""
    for name in [name for name in weights if "self_attn" in name]:
        made = torch.randn(weights[name].shape, generator=torch.Generator().manual_seed(7))
        weights[name] = (made * weights[name].float().std()).bfloat16()


# --- where each dialect has its keys


def _declare(config: Config, boundaries: tuple[int, ...]) -> None:
    """speculators counts boundaries, the others outputs of layers; EAGLE has no key of its own, and gets SGLang's."""
    key = "eagle_aux_hidden_state_layer_ids"
    if "speculators_config" in config:
        config[key] = list(boundaries)
    else:
        config.setdefault("eagle_config", {})[key] = [boundary - 1 for boundary in boundaries]


def _layer(config: Config) -> Config:
    """Where the decoder layer's settings lie."""
    layer: Config = config.get("transformer_layer_config", config)
    return layer


def _turn(config: Config, **rope: object) -> None:
    """Under each of the keys that hold the rope's base and scaling there."""
    layer = _layer(config)
    if "rope_parameters" in layer:
        layer["rope_parameters"] |= rope
    if "rope_theta" in layer and "rope_theta" in rope:
        layer["rope_theta"] = rope["rope_theta"]
    if "rope_scaling" in layer:
        layer["rope_scaling"] = (layer["rope_scaling"] or {}) | rope


# --- plants


def _reads(*boundaries: int) -> Plant:
    def plant(config: Config, _: Weights) -> None:
        _declare(config, boundaries)

    return plant


def _theta(theta: float) -> Plant:
    def plant(config: Config, _: Weights) -> None:
        _turn(config, rope_theta=theta)

    return plant


def _scaling(config: Config, _: Weights) -> None:
    """What an exporter adds that was never trained with."""
    _turn(config, rope_type="yarn", factor=32.0, original_max_position_embeddings=1024)


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


def _inputs(weights: Weights) -> list[str]:
    """The first attention's projections, whose columns are those of [embedding ; state]."""
    return [name for name in weights if name.endswith(tuple(f"self_attn.{which}_proj.weight" for which in "qkv"))]


def _ending(weights: Weights, end: str) -> str:
    return next(name for name in weights if name.endswith(end))


def _halves(_: Config, weights: Weights) -> None:
    """The attention's inputs stored for [state ; embedding]."""
    for name in _inputs(weights):
        weights[name] = torch.cat(weights[name].chunk(2, dim=1)[::-1], dim=1)


def _absolute(_: Config, weights: Weights) -> None:
    """Target ids where offsets belong."""
    weights["d2t"] = weights["d2t"] + torch.arange(len(weights["d2t"]))


def _input_norm(config: Config, weights: Weights) -> None:
    """A norm before fc that was not there in training."""
    config["norm_before_fc"] = True
    weights["input_norm.weight"] = torch.ones(weights["fc.weight"].shape[1], dtype=torch.bfloat16)


def _fc_norms(config: Config, weights: Weights) -> None:
    """The same, one for each state."""
    config["fc_norm"] = True
    slots, width = 3, weights["fc.weight"].shape[1] // 3
    weights |= {f"fc_norm.{slot}.weight": torch.ones(width, dtype=torch.bfloat16) for slot in range(slots)}


def _no_last_norm(config: Config, _: Weights) -> None:
    config.setdefault("eagle_config", {})["use_last_layernorm"] = False


def _own_embedding(_: Config, weights: Weights) -> None:
    """A stored embedding that the drafter has of its own, where its trainer's rule says that it is a copy: the numbers
    of each row in another order, and all that reads them too."""
    stored = weights.get("embed_tokens.weight")
    table = load_file(TARGET / "model.safetensors")["model.embed_tokens.weight"] if stored is None else stored
    order = torch.randperm(table.shape[1], generator=torch.Generator().manual_seed(3))
    weights["embed_tokens.weight"] = table[:, order]
    norm = _ending(weights, "input_layernorm.weight")
    weights[norm] = weights[norm][order]
    for name in _inputs(weights):
        embedding, state = weights[name].chunk(2, dim=1)
        weights[name] = torch.cat([embedding[:, order], state], dim=1)


def _normed_twice(_: Config, weights: Weights) -> None:
    """Trained as ModelOpt trains: the state passes input_layernorm too. Gains of one and minus one there change no
    length, so that the network, so wired, is the reference drafter's to the last place, and no other wiring's."""
    norms = [_ending(weights, "input_layernorm.weight"), _ending(weights, "hidden_norm.weight")]
    gain, state = (weights[name] for name in norms)
    signs = 1 - 2 * torch.randint(2, gain.shape, generator=torch.Generator().manual_seed(4)).to(gain.dtype)
    weights |= dict(zip(norms, (signs, state * signs), strict=True))
    for name in _inputs(weights):
        embedded, read = weights[name].chunk(2, dim=1)
        weights[name] = torch.cat([embedded * gain * signs, read], dim=1)


def _untrained(name: str, *shape: int) -> Plant:
    """A table as it was before training, or as no training ever saw it, where the trained one should be."""

    def plant(_: Config, weights: Weights) -> None:
        made = torch.randn(shape, generator=torch.Generator().manual_seed(2)) * 0.02
        weights[name] = made.to(torch.bfloat16)

    return plant


PLANTS: dict[str, Plant] = {
    "ids +1": _reads(4, 8, 11),
    "ids -1": _reads(1, 5, 8),
    "slot 0 +1": _reads(3, 6, 9),
    "slot 1 -2": _reads(2, 4, 9),
    "slot 2 -1": _reads(2, 6, 8),
    "embedding in slot 0": _reads(0, 6, 9),
    "last layers": _reads(10, 11, 12),
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
    "own embedding": _own_embedding,
    "normed twice": _normed_twice,
    "head at random": _untrained("lm_head.weight", 400, 128),
    "embedding at random": _untrained("embed_tokens.weight", 1024, 128),
}
