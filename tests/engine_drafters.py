"""Small drafters on targets that are a config.json alone: what an engine's rules are tried on."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from drafter_audit.drafter.open import open_drafter, with_config
from drafter_audit.drafter.spec import DrafterSpec
from drafter_audit.drafter.wiring import declared_wiring
from drafter_audit.engines.base import Difference, Engine, Release, Served, merged
from drafter_audit.engines.serving import serve
from tests.checkpoints import Tensors, write_checkpoint

HIDDEN, WIDE, VOCAB, DRAFT_VOCAB = 64, 128, 512, 128

CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLMEagle3"],
    "model_type": "llama",
    "hidden_size": HIDDEN,
    "intermediate_size": WIDE,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": VOCAB,
    "draft_vocab_size": DRAFT_VOCAB,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "max_position_embeddings": 2048,
    "attention_bias": False,
    "tie_word_embeddings": False,
}


def _layer(hidden: int) -> dict[str, tuple[int, ...]]:
    return {
        "hidden_norm": (hidden,),
        "input_layernorm": (hidden,),
        "post_attention_layernorm": (hidden,),
        "mlp.gate_proj": (WIDE, hidden),
        "mlp.up_proj": (WIDE, hidden),
        "mlp.down_proj": (hidden, WIDE),
        "self_attn.q_proj": (64, 2 * hidden),
        "self_attn.k_proj": (32, 2 * hidden),
        "self_attn.v_proj": (32, 2 * hidden),
        "self_attn.o_proj": (hidden, 64),
    }


def tensors(
    *, slots: int = 3, width: int = HIDDEN, hidden: int = HIDDEN, without: Sequence[str] = (), **extra: tuple[int, ...]
) -> Tensors:
    """A one-layer EAGLE-3 drafter; `extra` by name with __ for the dots, `without` leaves some out."""
    shapes = {f"midlayer.{name}.weight": shape for name, shape in _layer(hidden).items()}
    shapes |= {"fc.weight": (hidden, slots * width), "norm.weight": (hidden,), "lm_head.weight": (DRAFT_VOCAB, hidden)}
    shapes |= {name.replace("__", "."): shape for name, shape in extra.items()}
    found: Tensors = {name: ("BF16", shape) for name, shape in shapes.items()}
    found |= {"d2t": ("I64", (DRAFT_VOCAB,)), "t2d": ("BOOL", (VOCAB,))}
    return {name: value for name, value in found.items() if name not in without}


def target(folder: Path, layers: int, model_type: str = "llama", hidden: int = HIDDEN) -> str:
    """A target that is a config.json alone."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {"model_type": model_type, "num_hidden_layers": layers, "hidden_size": hidden, "vocab_size": VOCAB}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return str(folder)


def drafter(
    folder: Path,
    config: Mapping[str, Any] | None = None,
    stored: Tensors | None = None,
    *,
    layers: int = 32,
    model_type: str = "llama",
    hidden: int = HIDDEN,
) -> DrafterSpec:
    """The drafter of CONFIG with `config` over it (None removes a key), on a target of `layers` layers."""
    ref = write_checkpoint(folder / "drafter", merged(CONFIG, config or {}), tensors() if stored is None else stored)
    return open_drafter(ref, target=target(folder / "target", layers, model_type, hidden))


def nested(*ids: int, **more: object) -> dict[str, Any]:
    """A config with ids where SpecForge and ModelOpt write them."""
    return {"eagle_config": {"eagle_aux_hidden_state_layer_ids": list(ids), **more}}


def top(*ids: int, **more: object) -> dict[str, Any]:
    return {"eagle_aux_hidden_state_layer_ids": list(ids), **more}


SPECULATORS = {"speculators_model_type": "eagle3"}


def served_after(engine: Engine, spec: DrafterSpec, release: Release, served: Served) -> Served:
    """The same drafter with the edit made, its ids meaning what they did."""
    declared = declared_wiring(spec)
    assert declared is not None
    edited = with_config(spec, merged(spec.config.raw, served.edit))
    assert declared_wiring(edited) == declared, "an edit changes how engines read, not what the drafter is"
    return serve(engine, edited, release)


def knobs(differs: Sequence[Difference]) -> set[str]:
    return {difference.knob for difference in differs}
