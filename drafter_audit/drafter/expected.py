"""The tensors that an EAGLE drafter of a given shape needs, under their canonical names."""

from __future__ import annotations

from math import prod

from drafter_audit.drafter.architecture import Architecture
from drafter_audit.drafter.kinds import TRAITS

Shapes = dict[str, tuple[int, ...]]

# Tensors that one fused tensor stands for, and the norm of a deeper layer under its other name (SGLang and TensorRT-LLM
# load hidden_norm there, vLLM, speculators and ModelOpt input_layernorm).
_STAND_INS = {
    "self_attn.qkv_proj": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "mlp.gate_up_proj": ("mlp.gate_proj", "mlp.up_proj"),
}


def expected_tensors(arch: Architecture, kind: str) -> Shapes:
    """Name -> shape of every parameter, embedding and head included; empty for kinds whose layout is not described here
    and where a size is unknown. Source: SafeAILab/EAGLE cnets.py and cnets1.py, SGLang and vLLM llama_eagle3.py,
    deepseek_eagle3.py, SpecForge peagle.py, TensorRT-LLM modeling_speculative.py (eh_proj).
    """
    if not TRAITS[kind].eagle or not _sizes_known(arch, kind):
        return {}
    hidden = _int(arch.hidden_size)
    shapes = _fusion(arch, kind)
    for layer in range(arch.num_layers or 1):
        shapes |= _layer(arch, kind, layer)
    if kind != "eagle1" and arch.final_norm:
        shapes["norm.weight"] = (hidden,)
    shapes["lm_head.weight"] = (_int(arch.draft_vocab_size), hidden)
    shapes["embed_tokens.weight"] = (_int(arch.vocab_size), hidden)
    return shapes


def config_implied(arch: Architecture, kind: str, *, with_embedding: bool) -> int | None:
    """Parameters of the tensors that the shape calls for: body and head, and the embedding where it is stored.

    An EAGLE-1 drafter has no head of its own.
    """
    shapes = expected_tensors(arch, kind)
    if not shapes:
        return None
    left_out = {"embed_tokens.weight"} if not with_embedding else set()
    left_out |= {"lm_head.weight"} if kind == "eagle1" else set()
    return sum(prod(shape) for name, shape in shapes.items() if name not in left_out)


def borrowed_tensors(arch: Architecture, kind: str) -> Shapes:
    """What a kind that has neither embedding nor head takes from its target; empty for others, and where a size is
    unknown. Source: z-lab/dflash, SGLang and vLLM dflash.py."""
    if not TRAITS[kind].borrows or not arch.vocab_size or not arch.target_hidden_size:
        return {}
    return dict.fromkeys(("embed_tokens.weight", "lm_head.weight"), (arch.vocab_size, arch.target_hidden_size))


def stand_ins(name: str) -> tuple[str, ...]:
    """Other names under which a checkpoint may hold the expected tensor `name`, whole or in part."""
    fused = [name.replace(part, whole) for whole, parts in _STAND_INS.items() for part in parts if part in name]
    if name.endswith(".input_layernorm.weight") and not name.startswith("layers.0."):
        fused.append(name.replace("input_layernorm", "hidden_norm"))
    return tuple(fused)


def _fusion(arch: Architecture, kind: str) -> Shapes:
    """What stands before the layers: fc over the target's states, or over [embedding ; last state] in EAGLE-1."""
    hidden, state = _int(arch.hidden_size), arch.target_hidden_size
    slots = arch.num_aux_hidden_states or 3
    bias: Shapes = {"fc.bias": (hidden,)} if arch.fc_bias else {}
    if kind == "eagle1":
        return {"fc.weight": (hidden, 2 * hidden), **bias}
    if not TRAITS[kind].fuses:
        return {}
    fused = slots * _int(state)
    shapes: Shapes = {"fc.weight": (hidden, fused), **bias}
    shapes |= {"input_norm.weight": (fused,)} if arch.norm_before_fc else {}
    shapes |= {f"fc_norm.{slot}.weight": (_int(state),) for slot in range(slots)} if arch.fc_norm else {}
    if arch.eh_proj:
        shapes |= {"enorm.weight": (hidden,), "eh_proj.weight": (hidden, 2 * hidden)}
        shapes |= {"eh_proj.bias": (hidden,)} if arch.eh_proj_bias else {}
    return shapes | ({"mask_hidden": (1, 1, fused)} if kind == "peagle" else {})


def _layer(arch: Architecture, kind: str, layer: int) -> Shapes:
    """The first layer of an EAGLE-3 drafter reads [embedding ; state], 2 x hidden; deeper ones the hidden state."""
    hidden, inner, prefix = _int(arch.hidden_size), _int(arch.intermediate_size), f"layers.{layer}."
    both = kind != "eagle1" and not arch.eh_proj and (layer == 0 or not arch.regular_layers)
    width = 2 * hidden if both else hidden
    latent = kind == "eagle3_mla" or (kind in ("peagle", "eagle1") and bool(arch.kv_lora_rank))
    attention = _latent_attention(arch, width) if latent else _attention(arch, width)
    return (
        {f"{prefix}self_attn.{name}": shape for name, shape in attention.items()}
        | {f"{prefix}mlp.{name}.weight": (inner, hidden) for name in ("gate_proj", "up_proj")}
        | {f"{prefix}mlp.down_proj.weight": (hidden, inner)}
        | {f"{prefix}{name}.weight": (hidden,) for name in _layer_norms(arch, kind, layer)}
    )


def _layer_norms(arch: Architecture, kind: str, layer: int) -> list[str]:
    """EAGLE-1's first layer has no norm before its attention; EAGLE-3's has one for each of its two inputs, which are
    one where eh_proj has joined them. A deeper layer that reads the embedding too has both norms as well
    (TensorRT-LLM modeling_speculative.py, next_layer_regular)."""
    norms = ["post_attention_layernorm"]
    norms += ["input_layernorm"] if (kind != "eagle1" and not arch.eh_proj) or layer > 0 else []
    both = layer == 0 or not arch.regular_layers
    return norms + (["hidden_norm"] if both and TRAITS[kind].fuses else [])


def _attention(arch: Architecture, width: int) -> Shapes:
    head_dim, hidden = _int(arch.head_dim), _int(arch.hidden_size)
    rows, kv_rows = _int(arch.num_attention_heads) * head_dim, _int(arch.num_key_value_heads) * head_dim
    inputs = {"q_proj": rows, "k_proj": kv_rows, "v_proj": kv_rows}
    shapes: Shapes = {f"{name}.weight": (size, width) for name, size in inputs.items()}
    shapes["o_proj.weight"] = (hidden, rows)
    shapes |= {f"{name}.bias": (size,) for name, size in inputs.items()} if arch.attention_bias else {}
    return shapes | ({"q_norm.weight": (head_dim,), "k_norm.weight": (head_dim,)} if arch.qk_norm else {})


def _latent_attention(arch: Architecture, width: int) -> Shapes:
    """Multi-head latent attention: the first layer's two down-projections read 2 x hidden."""
    heads, hidden = _int(arch.num_attention_heads), _int(arch.hidden_size)
    nope, rope, value = _int(arch.qk_nope_head_dim), _int(arch.qk_rope_head_dim), _int(arch.v_head_dim)
    rank, q_rank, q_rows = _int(arch.kv_lora_rank), arch.q_lora_rank, heads * (nope + rope)
    queries: Shapes = {"q_proj.weight": (q_rows, width)}
    if q_rank:
        queries = {"q_a_proj.weight": (q_rank, width), "q_a_layernorm.weight": (q_rank,)}
        queries["q_b_proj.weight"] = (q_rows, q_rank)
    return queries | {
        "kv_a_proj_with_mqa.weight": (rank + rope, width),
        "kv_a_layernorm.weight": (rank,),
        "kv_b_proj.weight": (heads * (nope + value), rank),
        "o_proj.weight": (hidden, heads * value),
    }


def _sizes_known(arch: Architecture, kind: str) -> bool:
    sizes = [arch.hidden_size, arch.intermediate_size, arch.num_attention_heads, arch.vocab_size, arch.draft_vocab_size]
    if kind == "eagle3_mla":
        sizes += [arch.qk_nope_head_dim, arch.qk_rope_head_dim, arch.v_head_dim, arch.kv_lora_rank]
    else:
        sizes += [arch.num_key_value_heads, arch.head_dim]
    return all([*sizes, arch.target_hidden_size] if TRAITS[kind].fuses else sizes)


def _int(value: int | None) -> int:
    if value is None:
        raise ValueError("a size that _sizes_known vouches for is missing")
    return value
