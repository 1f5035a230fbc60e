"""The tensors that an EAGLE drafter of a given shape needs, under their canonical names."""

from __future__ import annotations

from math import prod

from drafter_audit.drafter.architecture import Architecture

Shapes = dict[str, tuple[int, ...]]


def expected_tensors(arch: Architecture, kind: str) -> Shapes:
    """Name -> shape of every parameter, embedding and head included; empty for kinds whose layout is not described here
    and where a size is unknown. Source: SafeAILab/EAGLE cnets.py, SGLang and vLLM llama_eagle3.py, deepseek_eagle3.py.
    """
    if kind not in {"eagle3", "eagle3_mla", "eagle3_noaux"} or not _sizes_known(arch, kind):
        return {}
    hidden = _int(arch.hidden_size)
    shapes: Shapes = {}
    if kind != "eagle3_noaux":
        fused = _int(arch.num_aux_hidden_states or 3) * _int(arch.target_hidden_size)
        shapes["fc.weight"] = (hidden, fused)
        shapes |= {"input_norm.weight": (fused,)} if arch.norm_before_fc else {}
        slots = range(_int(arch.num_aux_hidden_states or 3)) if arch.fc_norm else ()
        shapes |= {f"fc_norm.{slot}.weight": (_int(arch.target_hidden_size),) for slot in slots}
    for layer in range(arch.num_layers or 1):
        shapes |= _layer(arch, kind, layer)
    shapes["norm.weight"] = (hidden,)
    shapes["lm_head.weight"] = (_int(arch.draft_vocab_size), hidden)
    shapes["embed_tokens.weight"] = (_int(arch.vocab_size), hidden)
    return shapes


def config_implied(arch: Architecture, kind: str, *, with_embedding: bool) -> int | None:
    """Parameters that the shape implies: body and head, and the embedding where it is stored."""
    shapes = expected_tensors(arch, kind)
    if not shapes:
        return None
    sizes = {name: prod(shape) for name, shape in shapes.items()}
    return sum(sizes.values()) - (0 if with_embedding else sizes["embed_tokens.weight"])


def _layer(arch: Architecture, kind: str, layer: int) -> Shapes:
    """The first layer reads [embedding ; state], 2 x hidden; deeper ones the hidden state."""
    hidden, inner = _int(arch.hidden_size), _int(arch.intermediate_size)
    width = 2 * hidden if layer == 0 else hidden
    prefix = f"layers.{layer}."
    attention = _latent_attention(arch, width) if kind == "eagle3_mla" else _attention(arch, width)
    norms = [
        "input_layernorm",
        "post_attention_layernorm",
        *(["hidden_norm"] if layer == 0 and kind != "eagle3_noaux" else []),
    ]
    return (
        {f"{prefix}self_attn.{name}.weight": shape for name, shape in attention.items()}
        | {f"{prefix}mlp.{name}.weight": (inner, hidden) for name in ("gate_proj", "up_proj")}
        | {f"{prefix}mlp.down_proj.weight": (hidden, inner)}
        | {f"{prefix}{name}.weight": (hidden,) for name in norms}
    )


def _attention(arch: Architecture, width: int) -> Shapes:
    head_dim, hidden = _int(arch.head_dim), _int(arch.hidden_size)
    rows, kv_rows = _int(arch.num_attention_heads) * head_dim, _int(arch.num_key_value_heads) * head_dim
    return {"q_proj": (rows, width), "k_proj": (kv_rows, width), "v_proj": (kv_rows, width), "o_proj": (hidden, rows)}


def _latent_attention(arch: Architecture, width: int) -> Shapes:
    """Multi-head latent attention: the first layer's two down-projections read 2 x hidden."""
    heads, hidden = _int(arch.num_attention_heads), _int(arch.hidden_size)
    nope, rope, value = _int(arch.qk_nope_head_dim), _int(arch.qk_rope_head_dim), _int(arch.v_head_dim)
    rank, q_rank = _int(arch.kv_lora_rank), arch.q_lora_rank
    queries: Shapes = {"q_proj": (heads * (nope + rope), width)}
    if q_rank:
        queries = {"q_a_proj": (q_rank, width), "q_a_layernorm": (q_rank,), "q_b_proj": (heads * (nope + rope), q_rank)}
    return queries | {
        "kv_a_proj_with_mqa": (rank + rope, width),
        "kv_a_layernorm": (rank,),
        "kv_b_proj": (heads * (nope + value), rank),
        "o_proj": (hidden, heads * value),
    }


def _sizes_known(arch: Architecture, kind: str) -> bool:
    needed = [
        arch.hidden_size,
        arch.intermediate_size,
        arch.num_attention_heads,
        arch.vocab_size,
        arch.draft_vocab_size,
    ]
    if kind == "eagle3_mla":
        needed += [arch.qk_nope_head_dim, arch.qk_rope_head_dim, arch.v_head_dim, arch.kv_lora_rank]
    else:
        needed += [arch.num_key_value_heads, arch.head_dim]
    if kind != "eagle3_noaux":
        needed.append(arch.target_hidden_size)
    return all(needed)


def _int(value: int | None) -> int:
    if value is None:
        raise ValueError("a size that _sizes_known vouches for is missing")
    return value
