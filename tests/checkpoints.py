"""Checkpoints for tests: peers' own, one at the real size of Kimi's drafters, and any other by config and shapes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.hub import write_sparse

Tensors = dict[str, tuple[str, tuple[int, ...]]]

PEERS = Path(__file__).parent / "data" / "peers"

# AQ-MedAI/Kimi-K2-Instruct-eagle3's config.json as published, but for keys that say nothing about the drafter.
KIMI_CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLMEagle3"],
    "attention_bias": False,
    "draft_vocab_size": 32000,
    "dtype": "bfloat16",
    "eagle_config": {"eagle_aux_hidden_state_layer_ids": [2, 30, 58], "use_aux_hidden_state": True},
    "head_dim": 128,
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "max_position_embeddings": 131072,
    "max_window_layers": 48,
    "model_type": "llama",
    "num_attention_heads": 64,
    "num_hidden_layers": 1,
    "num_key_value_heads": 64,
    "rms_norm_eps": 1e-06,
    "rope_scaling": None,
    "rope_theta": 1000000.0,
    "tie_word_embeddings": False,
    "transformers_version": "4.57.0",
    "vocab_size": 163840,
}

EMBEDDING: Tensors = {"embed_tokens.weight": ("BF16", (163840, 7168))}
LEFTOVER: Tensors = {"verifier_lm_head.weight": ("BF16", (32000, 7168))}


def kimi_tensors() -> Tensors:
    """The 15 tensors that SpecForge's export keeps: no embedding."""
    shapes = {
        "fc.weight": (7168, 21504),
        "lm_head.weight": (32000, 7168),
        "midlayer.hidden_norm.weight": (7168,),
        "midlayer.input_layernorm.weight": (7168,),
        "midlayer.mlp.down_proj.weight": (7168, 18432),
        "midlayer.mlp.gate_proj.weight": (18432, 7168),
        "midlayer.mlp.up_proj.weight": (18432, 7168),
        "midlayer.post_attention_layernorm.weight": (7168,),
        "midlayer.self_attn.k_proj.weight": (8192, 14336),
        "midlayer.self_attn.o_proj.weight": (7168, 8192),
        "midlayer.self_attn.q_proj.weight": (8192, 14336),
        "midlayer.self_attn.v_proj.weight": (8192, 14336),
        "norm.weight": (7168,),
    }
    return {
        "d2t": ("I64", (32000,)),
        **{name: ("BF16", shape) for name, shape in shapes.items()},
        "t2d": ("BOOL", (163840,)),
    }


LLAMA_1_LAYER: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "num_hidden_layers": 1,
    "hidden_size": 64,
    "vocab_size": 512,
}


def eagle1_tensors() -> Tensors:
    """EAGLE-1: fc over [embedding ; last state], one plain layer without input_layernorm, no head."""
    attention = {f"layers.0.self_attn.{name}_proj.weight": ("F16", (64, 64)) for name in "qkvo"}
    mlp = {f"layers.0.mlp.{name}_proj.weight": ("F16", (128, 64)) for name in ("gate", "up")}
    return {
        "embed_tokens.weight": ("F16", (512, 64)),
        "fc.weight": ("F16", (64, 128)),
        "fc.bias": ("F16", (64,)),
        **attention,
        **mlp,
        "layers.0.mlp.down_proj.weight": ("F16", (64, 128)),
        "layers.0.post_attention_layernorm.weight": ("F16", (64,)),
    }


def write_checkpoint(
    folder: Path, config: Mapping[str, Any], tensors: Tensors, metadata: Mapping[str, str] | None = None
) -> str:
    """`folder`, made a checkpoint of that config and those shapes; returned as a reference."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    write_sparse(folder / "model.safetensors", tensors, metadata)
    return str(folder)


def write_peer(folder: Path, name: str) -> str:
    """`folder`, made the checkpoint that a peer wrote; returned as a reference."""
    config, tensors, metadata = read_peer(name)
    return write_checkpoint(folder, config, tensors, metadata)


def read_peer(name: str) -> tuple[dict[str, Any], Tensors, dict[str, str] | None]:
    """A peer's config, tensors and header metadata."""
    header = json.loads((PEERS / name / "header.json").read_text())
    tensors = {tensor: (dtype, tuple(shape)) for tensor, (dtype, shape) in header["tensors"].items()}
    return json.loads((PEERS / name / "config.json").read_text()), tensors, header["metadata"]
