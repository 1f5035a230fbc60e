"""The shape of a drafter, from its tensors where they were read, from config.json where not.

Both are kept: `declared` is what config.json says, `measured` what the headers say. Where they disagree the
headers win and the audit reports it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from drafter_audit.drafter.clues import Clues
from drafter_audit.drafter.config_view import ConfigView
from drafter_audit.drafter.kinds import Kind
from drafter_audit.drafter.rope import Rope, read_rope

Shape = Mapping[str, int | None]

# Keys by which config.json declares a shape, in the order they are looked for.
_DECLARED_KEYS: Mapping[str, tuple[str, ...]] = {
    "hidden_size": ("hidden_size", "n_embd", "d_model"),
    "target_hidden_size": ("target_hidden_size",),
    "intermediate_size": ("intermediate_size", "ffn_hidden_size"),
    "num_layers": ("num_hidden_layers", "n_layer", "num_layers"),
    "num_attention_heads": ("num_attention_heads", "n_head"),
    "num_key_value_heads": ("num_key_value_heads",),
    "head_dim": ("head_dim",),
    "vocab_size": ("vocab_size",),
    "draft_vocab_size": ("draft_vocab_size",),
    "num_aux_hidden_states": ("num_aux_hidden_states",),
    "max_position_embeddings": ("max_position_embeddings", "n_positions"),
    "q_lora_rank": ("q_lora_rank",),
    "kv_lora_rank": ("kv_lora_rank",),
    "qk_nope_head_dim": ("qk_nope_head_dim",),
    "qk_rope_head_dim": ("qk_rope_head_dim",),
    "v_head_dim": ("v_head_dim",),
}


@dataclass(frozen=True)
class Sizes:
    """The same sizes twice, by name: `declared` in config.json, `measured` from the tensors; None, absent: not told."""

    declared: Shape
    measured: Shape


@dataclass(frozen=True)
class Architecture:
    """Sizes in elements; None where neither the tensors nor the config tell. Norm switches: None means undeclared
    where the readers' defaults differ (speculators' `norm_before_residual`). `regular_layers`: layers beyond the first
    read the hidden state alone (TensorRT-LLM's `next_layer_regular`). `eh_proj`: a projection joins embedding and fused
    state before the first layer (its `eh_proj_before_attn`), `eh_proj_bias` with a bias."""

    hidden_size: int | None
    target_hidden_size: int | None
    intermediate_size: int | None
    num_layers: int | None
    num_attention_heads: int | None
    num_key_value_heads: int | None
    head_dim: int | None
    vocab_size: int | None
    draft_vocab_size: int | None
    num_aux_hidden_states: int | None
    max_position_embeddings: int | None
    rope: Rope
    norm_before_residual: bool | None
    norm_before_fc: bool
    fc_norm: bool
    norm_output: bool
    dtype: str | None
    q_lora_rank: int | None = None
    kv_lora_rank: int | None = None
    qk_nope_head_dim: int | None = None
    qk_rope_head_dim: int | None = None
    v_head_dim: int | None = None
    hidden_act: str = "silu"
    rms_norm_eps: float = 1e-6
    sliding_window: int | None = None
    attention_bias: bool = False
    mlp_bias: bool = False
    fc_bias: bool = False
    qk_norm: bool = False
    tie_word_embeddings: bool = False
    final_norm: bool = True
    regular_layers: bool = True
    eh_proj: bool = False
    eh_proj_bias: bool = False

    @property
    def reduced_vocabulary(self) -> bool:
        """Whether the draft vocabulary lacks tokens of the target's; one padded beyond it maps identically."""
        return bool(self.vocab_size and self.draft_vocab_size and self.draft_vocab_size < self.vocab_size)

    def to_dict(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in fields(self)} | {"rope": self.rope.to_dict()}


def read_architecture(
    clues: Clues, sizes: Sizes, *, dialect: str, kind: Kind, target_hidden: int | None
) -> Architecture:
    """The drafter's shape: what the tensors prove, else what config.json declares, else what every reader assumes.

    `target_hidden` is the target's hidden size where it is known.
    """
    shape = {name: sizes.measured.get(name) or value for name, value in sizes.declared.items()}
    if clues.stored("layers.0.self_attn.q_proj."):  # queries of full rank, whatever a target's config left behind
        shape["q_lora_rank"] = None
    assumed = _assumed(shape, kind=kind, target_hidden=target_hidden)
    rest: dict[str, Any] = {**shape, **assumed, **_norms(clues.config, dialect), **_switches(clues)}
    return Architecture(rope=read_rope(clues.config), dtype=_dtype(clues), **rest)


def read_sizes(clues: Clues, *, kind: Kind, target_hidden: int | None, slots: int | None) -> Sizes:
    """What config.json declares beside what the tensors prove; `slots` is the number of declared layer ids."""
    declared = declared_shape(clues.config)
    return Sizes(declared, measured_shape(clues, declared, kind=kind, target_hidden=target_hidden, slots=slots))


def declared_shape(config: ConfigView) -> dict[str, int | None]:
    """Every size that config.json names, None where it is silent. Raises ConfigError on a wrong type."""
    return {name: _first(config, keys) for name, keys in _DECLARED_KEYS.items()}


def _first(config: ConfigView, keys: tuple[str, ...]) -> int | None:
    return next((value for key in keys if (value := config.integer(key)) is not None), None)


def measured_shape(
    clues: Clues, declared: Shape, *, kind: Kind, target_hidden: int | None, slots: int | None
) -> dict[str, int | None]:
    """Every size that the tensors' shapes prove; empty where no weights were read.

    A projection's rows tell heads x head_dim only: a stored q_norm settles it, else a declared head_dim that fits the
    keys by their declared heads and the queries by other heads than declared; else the declared head count is
    believed, and head_dim follows from it.
    """
    if not clues.has_weights:
        return {}
    if not kind.traits.eagle:
        depth = len(clues.layers) or None if kind.traits.own_depth and not clues.stored("mtp.") else None
        return {"num_layers": depth, "vocab_size": clues.dim("embed_tokens.weight", 0)}
    hidden = clues.dim("layers.0.self_attn.o_proj.weight", 0) or clues.dim("norm.weight", 0, rank=1)
    fc_in = clues.dim("fc.weight", 1)
    wide = _target_width(clues, declared, hidden, target_hidden, slots) if kind.traits.fuses else None
    return {
        "hidden_size": hidden,
        "intermediate_size": clues.dim("layers.0.mlp.gate_proj.weight", 0)
        or clues.dim("layers.0.mlp.up_proj.weight", 0),
        "num_layers": len(clues.layers) or None,
        "vocab_size": clues.dim("embed_tokens.weight", 0) or clues.dim("t2d", 0, rank=1),
        "draft_vocab_size": clues.dim("lm_head.weight", 0) or clues.dim("d2t", 0, rank=1),
        "num_aux_hidden_states": fc_in // wide if fc_in and wide and fc_in % wide == 0 else None,
        "target_hidden_size": wide,
        "kv_lora_rank": clues.dim("layers.0.self_attn.kv_b_proj.weight", 1),
        "q_lora_rank": clues.dim("layers.0.self_attn.q_b_proj.weight", 1),
        **_measured_heads(clues, declared),
    }


def _target_width(
    clues: Clues, declared: Shape, hidden: int | None, target_hidden: int | None, slots: int | None
) -> int | None:
    """Width of one aux state: per-state norms prove it, else the config or the target tells it.

    Else it is the drafter's own width, as usual; where that does not divide what fc reads, fc over the declared ids is.
    """
    told = clues.dim("fc_norm.0.weight", 0, rank=1) or declared["target_hidden_size"] or target_hidden
    if told:
        return told
    fc_in = clues.dim("fc.weight", 1)
    if fc_in and slots and fc_in % slots == 0 and hidden and fc_in % hidden:
        return fc_in // slots
    return hidden


def _measured_heads(clues: Clues, declared: Shape) -> dict[str, int | None]:
    q_rows = clues.dim("layers.0.self_attn.q_proj.weight", 0)
    k_rows = clues.dim("layers.0.self_attn.k_proj.weight", 0)
    if q_rows is None or k_rows is None:
        return {}
    heads = declared["num_attention_heads"]
    q_norm = clues.dim("layers.0.self_attn.q_norm.weight", 0, rank=1)
    by_keys = _head_dim_by_keys(declared, q_rows, k_rows)
    head_dim = q_norm or by_keys or (q_rows // heads if heads and q_rows % heads == 0 else declared["head_dim"])
    if not head_dim or q_rows % head_dim or k_rows % head_dim:
        return {}
    return {"head_dim": head_dim, "num_attention_heads": q_rows // head_dim, "num_key_value_heads": k_rows // head_dim}


def _head_dim_by_keys(declared: Shape, q_rows: int, k_rows: int) -> int | None:
    """The declared head_dim where the keys bear it out: of three numbers it is then the count of heads that is off."""
    head_dim, kv_heads = declared["head_dim"], declared["num_key_value_heads"]
    fits = head_dim and kv_heads and head_dim * kv_heads == k_rows and q_rows % head_dim == 0
    return head_dim if fits else None


def _assumed(shape: Shape, *, kind: Kind, target_hidden: int | None) -> dict[str, int | None]:
    """What every reader assumes where a key is absent (transformers LlamaConfig; SGLang and vLLM for the rest)."""
    heads, hidden = shape["num_attention_heads"], shape["hidden_size"]
    head_dim = shape["head_dim"] or (hidden // heads if hidden and heads else None)
    if shape["kv_lora_rank"] and shape["qk_nope_head_dim"] and shape["qk_rope_head_dim"]:
        head_dim = shape["qk_nope_head_dim"] + shape["qk_rope_head_dim"]
    drafter = kind.traits.is_drafter
    return {
        "head_dim": head_dim,
        "num_key_value_heads": shape["num_key_value_heads"] or heads,
        "draft_vocab_size": (shape["draft_vocab_size"] or shape["vocab_size"]) if drafter else None,
        "target_hidden_size": (shape["target_hidden_size"] or target_hidden or hidden) if drafter else None,
        "num_aux_hidden_states": shape["num_aux_hidden_states"] if kind.traits.fuses else None,
    }


def _norms(config: ConfigView, dialect: str) -> dict[str, Any]:
    """Norm switches. Absent means off, but for speculators' residual switch: its config class says false, vLLM's
    loader true, so an absent key is reported as undeclared."""
    residual = config.boolean("norm_before_residual")
    before_fc = config.eagle.boolean("norm_before_fc")  # the nested one wins in SGLang and vLLM
    return {
        "norm_before_residual": residual if residual is not None or dialect == "speculators" else False,
        "norm_before_fc": bool(config.boolean("norm_before_fc") if before_fc is None else before_fc),
        "fc_norm": bool(config.boolean("fc_norm") or config.boolean("use_aux_norm")),
        "norm_output": bool(config.boolean("norm_output") or config.eagle.boolean("return_hidden_post_norm")),
    }


def _switches(clues: Clues) -> dict[str, Any]:
    """What else makes a network: stored biases and norms prove themselves, config.json tells the rest."""
    config, weights = clues.config, clues.has_weights
    bias, attention_bias, mlp_bias = (config.boolean(key) for key in ("bias", "attention_bias", "mlp_bias"))
    # Qwen3's attention has norms on queries and keys: the only drafters with them are speculators' of that type.
    qwen3 = config.text("model_type") == "qwen3"
    window = config.integer("sliding_window") if config.boolean("use_sliding_window") is not False else None
    return {
        "hidden_act": config.text("hidden_act") or "silu",
        "rms_norm_eps": config.number("rms_norm_eps") or 1e-6,
        "sliding_window": window,
        "attention_bias": clues.stored("self_attn.q_proj.bias") if weights else bool(attention_bias),
        "mlp_bias": clues.stored("mlp.gate_proj.bias", "mlp.down_proj.bias") if weights else bool(mlp_bias),
        "fc_bias": "fc.bias" in clues.tensors if weights else bool(bias),
        "qk_norm": clues.stored("self_attn.q_norm.") if weights else qwen3,
        "tie_word_embeddings": bool(config.boolean("tie_word_embeddings")),
        "final_norm": config.eagle.boolean("use_last_layernorm") is not False,
        "regular_layers": config.eagle.boolean("next_layer_regular") is not False,
        "eh_proj": "eh_proj.weight" in clues.tensors if weights else bool(config.eagle.boolean("eh_proj_before_attn")),
        "eh_proj_bias": "eh_proj.bias" in clues.tensors if weights else bool(config.eagle.boolean("eh_proj_bias")),
    }


def _dtype(clues: Clues) -> str | None:
    """The dtype that holds most parameters, in the config's spelling, or the name of their packed format ("GPTQ
    4-bit"); the config's own word where nothing was read. Scales and the like hold none."""
    declared = declared_dtype(clues.config)
    sizes: dict[str, int] = {}
    for tensor in clues.table or ():
        packed = clues.packing.weights.get(tensor.name)
        if tensor.name not in clues.packing.companions:
            name = packed.label if packed and packed.bits else DTYPE_NAMES.get(tensor.dtype, tensor.dtype.lower())
            sizes[name] = sizes.get(name, 0) + (packed.logical if packed else tensor.elements)
    return max(sizes, key=lambda name: sizes[name]) if sizes else declared


def declared_dtype(config: ConfigView) -> str | None:
    """`dtype` (transformers 5) or `torch_dtype` (4), without the `torch.` prefix."""
    name = config.text("dtype") or config.text("torch_dtype")
    return name.removeprefix("torch.") if name else None


DTYPE_NAMES = {
    "BF16": "bfloat16", "F16": "float16", "F32": "float32", "F64": "float64", "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2", "I8": "int8", "U8": "uint8", "I32": "int32", "U32": "uint32", "I64": "int64",
    "BOOL": "bool",
}  # fmt: skip
