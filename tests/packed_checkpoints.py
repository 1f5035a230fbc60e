"""Packed checkpoints of real size, by shapes alone. What is published and what is derived is said at each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.checkpoints import Tensors

Shapes = dict[str, tuple[int, ...]]

GROUP_32_INT4 = {"num_bits": 4, "type": "int", "group_size": 32, "strategy": "group", "symmetric": True}

# moonshotai/Kimi-K2.5's config.json as published, but for keys that decide no shape and no width.
KIMI_K25_CONFIG: dict[str, Any] = {
    "architectures": ["KimiK25ForConditionalGeneration"],
    "model_type": "kimi_k25",
    "dtype": "bfloat16",
    "text_config": {
        "model_type": "kimi_k2",
        "hidden_size": 7168,
        "intermediate_size": 18432,
        "num_hidden_layers": 61,
        "num_attention_heads": 64,
        "num_key_value_heads": 64,
        "vocab_size": 163840,
        "quantization_config": {
            "quant_method": "compressed-tensors",
            "format": "pack-quantized",
            "config_groups": {"group_0": {"targets": ["Linear"], "weights": GROUP_32_INT4}},
            "ignore": ["lm_head", "re:.*self_attn.*", "re:.*shared_experts.*", "re:.*mlp\\.(gate|up|down)_proj.*"],
        },
    },
}

LLAMA_8B_CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
}


def kimi_k25_tensors() -> Tensors:
    """Names and shapes derived from the config and DeepSeek-V3's and MoonViT's modelling code.

    61 layers, the first dense; 384 routed experts of 2048 are packed, all else is plain. weight_scale is BF16,
    weight_shape I32 and the experts' correction bias F32, as the Hub's own count by dtype shows.
    """
    plain = dict(_kimi_text()) | _moonvit()
    tensors: Tensors = {name: ("BF16", shape) for name, shape in plain.items()}
    for layer in range(1, 61):
        mlp = f"language_model.model.layers.{layer}.mlp"
        tensors[f"{mlp}.gate.e_score_correction_bias"] = ("F32", (384,))
        for expert in range(384):
            for name, (out, wide) in {"gate": (2048, 7168), "up": (2048, 7168), "down": (7168, 2048)}.items():
                prefix = f"{mlp}.experts.{expert}.{name}_proj.weight"
                tensors[f"{prefix}_packed"] = ("I32", (out, wide // 8))
                tensors[f"{prefix}_scale"] = ("BF16", (out, wide // 32))
                tensors[f"{prefix}_shape"] = ("I32", (2,))
    return tensors


def _kimi_text() -> Iterator[tuple[str, tuple[int, ...]]]:
    hidden, prefix = 7168, "language_model.model."
    yield "language_model.lm_head.weight", (163840, hidden)
    yield f"{prefix}embed_tokens.weight", (163840, hidden)
    yield f"{prefix}norm.weight", (hidden,)
    for layer in range(61):
        block = f"{prefix}layers.{layer}."
        yield f"{block}self_attn.q_a_proj.weight", (1536, hidden)
        yield f"{block}self_attn.q_a_layernorm.weight", (1536,)
        yield f"{block}self_attn.q_b_proj.weight", (64 * (128 + 64), 1536)
        yield f"{block}self_attn.kv_a_proj_with_mqa.weight", (512 + 64, hidden)
        yield f"{block}self_attn.kv_a_layernorm.weight", (512,)
        yield f"{block}self_attn.kv_b_proj.weight", (64 * (128 + 128), 512)
        yield f"{block}self_attn.o_proj.weight", (hidden, 64 * 128)
        yield f"{block}input_layernorm.weight", (hidden,)
        yield f"{block}post_attention_layernorm.weight", (hidden,)
        inner, mlp = (18432, "mlp") if layer == 0 else (2048, "mlp.shared_experts")
        yield f"{block}{mlp}.gate_proj.weight", (inner, hidden)
        yield f"{block}{mlp}.up_proj.weight", (inner, hidden)
        yield f"{block}{mlp}.down_proj.weight", (hidden, inner)
        if layer:
            yield f"{block}mlp.gate.weight", (384, hidden)


def _moonvit() -> Shapes:
    """27 blocks of width 1152 with biases, patches of 14 x 14, and a projector over 2 x 2 merged patches."""
    width, inner, merged = 1152, 4304, 4 * 1152
    shapes: Shapes = {
        "vision_tower.patch_embed.proj.weight": (width, 3, 14, 14),
        "vision_tower.patch_embed.proj.bias": (width,),
        "vision_tower.patch_embed.pos_emb.weight": (64, 64, width),
        **_with_bias("vision_tower.encoder.final_layernorm", (width,)),
        **_with_bias("mm_projector.pre_norm", (width,)),
        **_with_bias("mm_projector.proj.0", (merged, merged)),
        **_with_bias("mm_projector.proj.2", (7168, merged)),
    }
    linears = {"wqkv": (3 * width, width), "wo": (width, width), "mlp.fc0": (inner, width), "mlp.fc1": (width, inner)}
    for block in range(27):
        for name, shape in {"norm0": (width,), "norm1": (width,), **linears}.items():
            shapes |= _with_bias(f"vision_tower.encoder.blocks.{block}.{name}", shape)
    return shapes


def _with_bias(name: str, shape: tuple[int, ...]) -> Shapes:
    return {f"{name}.weight": shape, f"{name}.bias": (shape[0],)}


LLAMA_8B_LINEARS = {
    "self_attn.q_proj": (4096, 4096),
    "self_attn.k_proj": (1024, 4096),
    "self_attn.v_proj": (1024, 4096),
    "self_attn.o_proj": (4096, 4096),
    "mlp.gate_proj": (14336, 4096),
    "mlp.up_proj": (14336, 4096),
    "mlp.down_proj": (4096, 14336),
}


def llama_8b_plain(dtype: str) -> Tensors:
    """The tensors of Llama-3.1-8B that quantisers leave alone: embedding, head and 65 norms."""
    tensors: Tensors = {
        "lm_head.weight": (dtype, (128256, 4096)),
        "model.embed_tokens.weight": (dtype, (128256, 4096)),
        "model.norm.weight": (dtype, (4096,)),
    }
    for layer in range(32):
        for norm in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"model.layers.{layer}.{norm}.weight"] = (dtype, (4096,))
    return tensors


def llama_8b_gptq() -> Tensors:
    """As GPTQ writes it: qweight [in/8, out], qzeros [in/128, out/8], scales [in/128, out], g_idx [in], a bias."""
    tensors = llama_8b_plain("F16")
    for name, (out, wide) in _llama_layers():
        tensors[f"{name}.qweight"] = ("I32", (wide // 8, out))
        tensors[f"{name}.qzeros"] = ("I32", (wide // 128, out // 8))
        tensors[f"{name}.scales"] = ("F16", (wide // 128, out))
        tensors[f"{name}.g_idx"] = ("I32", (wide,))
        tensors[f"{name}.bias"] = ("F16", (out,))
    return tensors


def llama_8b_bitsandbytes() -> Tensors:
    """As bitsandbytes writes it, double quantisation on: a flat list of bytes, absmax for 64 weights each."""
    tensors = llama_8b_plain("BF16")
    for name, (out, wide) in _llama_layers():
        tensors[f"{name}.weight"] = ("U8", (out * wide // 2, 1))
        tensors[f"{name}.weight.absmax"] = ("U8", (out * wide // 64,))
        tensors[f"{name}.weight.quant_map"] = ("F32", (16,))
        tensors[f"{name}.weight.nested_absmax"] = ("F32", (out * wide // 64 // 256,))
        tensors[f"{name}.weight.nested_quant_map"] = ("F32", (256,))
        tensors[f"{name}.weight.quant_state.bitsandbytes__nf4"] = ("U8", (190,))
    return tensors


def _llama_layers() -> Iterator[tuple[str, tuple[int, int]]]:
    for layer in range(32):
        for name, shape in LLAMA_8B_LINEARS.items():
            yield f"model.layers.{layer}.{name}", shape


def gpt_oss_tensors(layers: int, experts: int) -> Tensors:
    """gpt-oss: 64 query and 8 key heads of 64, width 2880, two stacked expert weights a layer in MXFP4."""
    wide, rows = 2880, 64 * 64
    plain: Shapes = {
        "model.embed_tokens.weight": (201088, wide),
        "lm_head.weight": (201088, wide),
        "model.norm.weight": (wide,),
    }
    packed: Tensors = {}
    for layer in range(layers):
        block = f"model.layers.{layer}."
        linears = {"q_proj": (rows, wide), "k_proj": (512, wide), "v_proj": (512, wide), "o_proj": (wide, rows)}
        for name, shape in linears.items():
            plain |= _with_bias(f"{block}self_attn.{name}", shape)
        plain |= _with_bias(f"{block}mlp.router", (experts, wide))
        plain |= {f"{block}{norm}.weight": (wide,) for norm in ("input_layernorm", "post_attention_layernorm")}
        plain[f"{block}self_attn.sinks"] = (64,)
        for name, out in {"gate_up_proj": 2 * wide, "down_proj": wide}.items():
            stem = f"{block}mlp.experts.{name}"
            plain[f"{stem}_bias"] = (experts, out)
            packed[f"{stem}_blocks"] = ("U8", (experts, out, wide // 32, 16))
            packed[f"{stem}_scales"] = ("U8", (experts, out, wide // 32))
    return {**packed, **{name: ("BF16", shape) for name, shape in plain.items()}}
