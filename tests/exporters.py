"""One EAGLE-3 drafter as each trainer saves it: the same weights under its names, its config and its layer ids.

What each stores and how it spells it: SpecForge 0.2.0, speculators 0.9.0 and ModelOpt 0.47.0 as their own files in
tests/oracles/ have it; EAGLE cb7e084, eagle/traineagle3/config.json and eagle/model/cnets.py, whose published drafters
are a pickle without the target's embedding.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

Config = dict[str, Any]
Boundaries = Sequence[int]

NOT_TOLD_BY_ALL = ("norm_before_residual", "norm_before_fc", "fc_norm", "norm_output", "attention_bias", "mlp_bias")
OWN_KEYS = frozenset(  # which each dialect writes in its own way
    {"architectures", "draft_vocab_size", "dtype", "torch_dtype", "transformers_version", "target_hidden_size"}
    | {"eagle_config", "eagle_aux_hidden_state_layer_ids", "rope_parameters", "rope_theta", "rope_scaling"}
)


@dataclass(frozen=True)
class Dialect:
    """`layer` stands before the names of the fused layer's tensors, `leaves_out` names what is not stored, `config`
    turns the drafter's settings, the boundaries and the target's folder into config.json."""

    layer: str
    leaves_out: frozenset[str]
    config: Callable[[Config, Boundaries, Path], Config]
    pickled: bool = False


def export(dialect: str, drafter: Path, target: Path, boundaries: Boundaries, folder: Path) -> str:
    """`folder`, made the checkpoint of `drafter` (safetensors, plain EAGLE-3) in that dialect; returned as a reference.

    The embedding is the target's where the drafter stores none. Raises ValueError for a setting that not every dialect
    can tell.
    """
    config = json.loads((drafter / "config.json").read_text(encoding="utf-8"))
    if told := [key for key in NOT_TOLD_BY_ALL if config.get(key)]:
        raise ValueError(f"{drafter}: {', '.join(told)}: not every dialect can tell it")
    rules, tensors = DIALECTS[dialect], _tensors(drafter, target)
    kept = {_named(name, rules.layer): weight for name, weight in tensors.items() if name not in rules.leaves_out}
    folder.mkdir(parents=True)
    if rules.pickled:
        torch.save(kept, folder / "pytorch_model.bin")
    else:
        save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})
    written = rules.config(config, boundaries, target)
    (folder / "config.json").write_text(json.dumps(written, indent=2), encoding="utf-8")
    return str(folder)


def _tensors(drafter: Path, target: Path) -> dict[str, Tensor]:
    """All that any dialect stores, the layer under `layers.0.`."""
    stored = {_named(name, "layers.0."): weight for name, weight in load_file(drafter / "model.safetensors").items()}
    if "embed_tokens.weight" not in stored:
        stored["embed_tokens.weight"] = load_file(target / "model.safetensors")["model.embed_tokens.weight"]
    kept = torch.arange(len(stored["d2t"])) + stored["d2t"]
    mask = torch.zeros(len(stored["embed_tokens.weight"]), dtype=torch.bool)
    return {**stored, "t2d": mask.index_fill(0, kept, True)}


def _named(name: str, layer: str) -> str:
    for spelled in ("midlayer.", "layers.0."):
        if name.startswith(spelled):
            return layer + name.removeprefix(spelled)
    return name


def _settings(config: Config) -> Config:
    return {key: value for key, value in config.items() if key not in OWN_KEYS}


def _rope(config: Mapping[str, Any]) -> Config:
    told: Config = config.get("rope_parameters") or {"rope_type": "default", "rope_theta": config["rope_theta"]}
    return told


def _dtype(config: Mapping[str, Any]) -> str:
    told: str = config.get("dtype") or config["torch_dtype"]
    return told


def _outputs(boundaries: Boundaries) -> list[int]:
    """The ids of the layers whose outputs those boundaries are."""
    return [boundary - 1 for boundary in boundaries]


def _specforge(config: Config, boundaries: Boundaries, target: Path) -> Config:
    return {
        **_settings(config),
        "architectures": ["LlamaForCausalLMEagle3"],
        "draft_vocab_size": config["draft_vocab_size"],
        "dtype": _dtype(config),
        "eagle_config": {"eagle_aux_hidden_state_layer_ids": _outputs(boundaries), "use_aux_hidden_state": True},
        "rope_parameters": _rope(config),
        "rope_theta": _rope(config)["rope_theta"],
        "transformers_version": "5.8.1",
    }


def _speculators(config: Config, boundaries: Boundaries, target: Path) -> Config:
    proposal = {
        "accept_tolerance": 0.0,
        "proposal_type": "greedy",
        "speculative_tokens": 3,
        "verifier_accept_k": 1,
    }
    return {
        "architectures": ["Eagle3Speculator"],
        "draft_vocab_size": config["draft_vocab_size"],
        "dtype": _dtype(config),
        "eagle_aux_hidden_state_layer_ids": list(boundaries),
        "embed_requires_grad": False,
        "fc_norm": False,
        "norm_before_fc": False,
        "norm_before_residual": False,
        "norm_output": False,
        "speculators_config": {
            "algorithm": "eagle3",
            "default_proposal_method": "greedy",
            "proposal_methods": [proposal],
            "verifier": {"architectures": ["LlamaForCausalLM"], "name_or_path": str(target)},
        },
        "speculators_model_type": "eagle3",
        "speculators_version": "0.9.0",
        "target_hidden_size": None,
        "tie_word_embeddings": False,
        "transformer_layer_config": {**_settings(config), "rope_parameters": _rope(config)},
        "transformers_version": "5.19.0",
    }


def _modelopt(config: Config, boundaries: Boundaries, target: Path) -> Config:
    return {
        **_settings(config),
        "architectures": ["LlamaForCausalLMEagle3"],
        "draft_vocab_size": config["draft_vocab_size"],
        "eagle_config": {
            "eagle_aux_hidden_state_layer_ids": _outputs(boundaries),
            "use_aux_hidden_state": True,
            "use_input_layernorm_in_first_layer": True,
            "use_last_layernorm": True,
            "use_mtp_layernorm": False,
            "next_layer_regular": True,
            "parallel_draft_step": 1,
            "parallel_draft_heads_num_layers": 1,
        },
        "rope_scaling": _rope(config),
        "rope_theta": _rope(config)["rope_theta"],
        "torch_dtype": _dtype(config),
        "transformers_version": "5.8.1",
    }


def _eagle(config: Config, boundaries: Boundaries, target: Path) -> Config:
    """It has no key for layer ids: its code takes 2, L // 2 and L - 3. Raises ValueError for others."""
    layers = json.loads((target / "config.json").read_text(encoding="utf-8"))["num_hidden_layers"]
    if list(boundaries) != [2, layers // 2, layers - 3]:
        raise ValueError(f"EAGLE reads boundaries 2, L // 2 and L - 3, not {list(boundaries)}")
    new = ("attention_bias", "attention_dropout", "mlp_bias")
    return {
        **{key: value for key, value in _settings(config).items() if key not in new},
        "architectures": ["LlamaForCausalLM"],
        "draft_vocab_size": config["draft_vocab_size"],
        "rope_scaling": None,
        "rope_theta": _rope(config)["rope_theta"],
        "torch_dtype": _dtype(config),
        "transformers_version": "4.28.1",
    }


_EMBEDDING = frozenset({"embed_tokens.weight"})

DIALECTS: Mapping[str, Dialect] = {
    "specforge": Dialect("midlayer.", _EMBEDDING, _specforge),
    "speculators": Dialect("layers.0.", frozenset(), _speculators),
    "modelopt": Dialect("layers.0.", _EMBEDDING | {"t2d"}, _modelopt),
    "eagle": Dialect("midlayer.", _EMBEDDING, _eagle, pickled=True),
}
