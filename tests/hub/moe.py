"""A target of the size of Kimi-K2.5, packed to 4 bits: real names, shapes and headers, and no bytes behind them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from math import prod
from pathlib import Path

from tests.hub.sparse import write_sparse

Tensor = tuple[str, tuple[str, tuple[int, ...]]]

LAYERS = 61
EXPERTS = 384
SHARDS = 62
TENSORS = 139_095

_HIDDEN, _EXPERT, _DENSE, _VOCAB = 7168, 2048, 18432, 163_840
_ATTENTION: dict[str, tuple[int, ...]] = {
    "input_layernorm": (_HIDDEN,),
    "post_attention_layernorm": (_HIDDEN,),
    "self_attn.q_a_proj": (1536, _HIDDEN),
    "self_attn.q_a_layernorm": (1536,),
    "self_attn.q_b_proj": (64 * 192, 1536),
    "self_attn.kv_a_proj_with_mqa": (576, _HIDDEN),
    "self_attn.kv_a_layernorm": (512,),
    "self_attn.kv_b_proj": (64 * 256, 512),
    "self_attn.o_proj": (_HIDDEN, 64 * 128),
}


def write_target(
    folder: Path, *, shards: int = SHARDS, layers: int = LAYERS, experts: int = EXPERTS
) -> dict[str, Path]:
    """The files of the checkpoint, written to `folder`, by name: config.json, index and sparse shards.

    With the defaults 62 shards, 139,095 tensors and about 10^12 parameters, of which each packed I32 holds eight.
    """
    tensors = list(_tensors(layers, experts))
    files = {"config.json": folder / "config.json", "model.safetensors.index.json": folder / "index.json"}
    files["config.json"].write_text(json.dumps(_config(layers, experts)))
    weight_map: dict[str, str] = {}
    total = 0
    for n in range(shards):
        part = dict(tensors[len(tensors) * n // shards : len(tensors) * (n + 1) // shards])
        name = f"model-{n + 1:05}-of-{shards:06}.safetensors"
        files[name] = write_sparse(folder / name, part, {"format": "pt"})
        weight_map |= dict.fromkeys(part, name)
        total += sum(prod(shape) * (4 if dtype == "I32" else 2) for dtype, shape in part.values())
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    files["model.safetensors.index.json"].write_text(json.dumps(index, indent=2))
    return files


def _tensors(layers: int, experts: int) -> Iterator[Tensor]:
    prefix = "language_model.model."
    yield f"{prefix}embed_tokens.weight", ("BF16", (_VOCAB, _HIDDEN))
    for layer in range(layers):
        yield from _layer(f"{prefix}layers.{layer}.", experts if layer else 0)
    yield f"{prefix}norm.weight", ("BF16", (_HIDDEN,))
    yield "language_model.lm_head.weight", ("BF16", (_VOCAB, _HIDDEN))


def _layer(prefix: str, experts: int) -> Iterator[Tensor]:
    for name, shape in _ATTENTION.items():
        yield f"{prefix}{name}.weight", ("BF16", shape)
    if not experts:
        yield from _mlp(f"{prefix}mlp.", _DENSE)
        return
    yield f"{prefix}mlp.gate.weight", ("BF16", (experts, _HIDDEN))
    yield f"{prefix}mlp.gate.e_score_correction_bias", ("BF16", (experts,))
    yield from _mlp(f"{prefix}mlp.shared_experts.", _EXPERT)
    for expert in range(experts):
        for name, (dtype, (rows, columns)) in _mlp(f"{prefix}mlp.experts.{expert}.", _EXPERT):
            yield f"{name}_packed", ("I32", (rows, columns // 8))
            yield f"{name}_scale", (dtype, (rows, columns // 32))


def _mlp(prefix: str, width: int) -> Iterator[tuple[str, tuple[str, tuple[int, int]]]]:
    for name in ("gate_proj", "up_proj"):
        yield f"{prefix}{name}.weight", ("BF16", (width, _HIDDEN))
    yield f"{prefix}down_proj.weight", ("BF16", (_HIDDEN, width))


def _config(layers: int, experts: int) -> dict[str, object]:
    packed = {"num_bits": 4, "group_size": 32, "strategy": "group", "symmetric": True, "type": "int"}
    groups = {"group_0": {"targets": ["Linear"], "weights": packed, "input_activations": None}}
    text = {
        "architectures": ["DeepseekV3ForCausalLM"],
        "model_type": "kimi_k2",
        "hidden_size": _HIDDEN,
        "intermediate_size": _DENSE,
        "moe_intermediate_size": _EXPERT,
        "num_hidden_layers": layers,
        "num_attention_heads": 64,
        "num_key_value_heads": 64,
        "vocab_size": _VOCAB,
        "n_routed_experts": experts,
        "first_k_dense_replace": 1,
        "quantization_config": {
            "quant_method": "compressed-tensors",
            "format": "pack-quantized",
            "config_groups": groups,
        },
    }
    return {"architectures": ["KimiK25ForConditionalGeneration"], "model_type": "kimi_k25", "text_config": text}
