"""One spelling for the tensors that each framework names in its own way (the stored name is kept beside it)."""

from __future__ import annotations

import re

# Right-hand side: the spelling used throughout this package. Sources: SpecForge, EAGLE, AngelSlim and TorchSpec write
# midlayer.*; ModelOpt and speculators layers.0.*; NeMo prefixes everything with model.; TensorRT-LLM midlayer.N.*;
# old NVIDIA exports spell the vocabulary map out; Mistral's Eagle has eagle_linear (vLLM mistral_large_3_eagle.py).
_PREFIX = re.compile(r"^(?:model|eagle_module|draft_model)\.")
_RULES = (
    (re.compile(r"^(?:midlayer|layers)\.(?=\d)"), "layers."),
    (re.compile(r"^midlayer\."), "layers.0."),
    (re.compile(r"^draft_id_to_target_id$"), "d2t"),
    (re.compile(r"^(?:target_id_to_draft_id|draft_vocab_mask)$"), "t2d"),
    (re.compile(r"^eagle_linear\."), "fc."),
    (re.compile(r"^blk\.(\d+)\.attn_norm\."), r"layers.\1.input_layernorm."),  # llama.cpp src/models/eagle3.cpp
    (re.compile(r"^blk\.(\d+)\.attn_norm_2\."), r"layers.\1.hidden_norm."),
    (re.compile(r"^blk\.(\d+)\.ffn_norm\."), r"layers.\1.post_attention_layernorm."),
    (re.compile(r"^blk\.(\d+)\.attn_output\."), r"layers.\1.self_attn.o_proj."),
    (re.compile(r"^blk\.(\d+)\.attn_([qkv]|[qk]_norm)\."), r"layers.\1.self_attn.\2_proj."),
    (re.compile(r"^blk\.(\d+)\.ffn_(gate|up|down)\."), r"layers.\1.mlp.\2_proj."),
    (re.compile(r"^(layers\.\d+\.self_attn\.[qk]_norm)_proj\."), r"\1."),
    (re.compile(r"^blk\.(\d+)\."), r"layers.\1."),
    (re.compile(r"^token_embd\."), "embed_tokens."),
    (re.compile(r"^output_norm\."), "norm."),
    (re.compile(r"^enc\.output_norm\."), "input_norm."),
    (re.compile(r"^output\.weight$"), "lm_head.weight"),
    (re.compile(r"^aux_norm_low\."), "fc_norm.0."),
    (re.compile(r"^aux_norm_mid\."), "fc_norm.1."),
    (re.compile(r"^aux_norm_high\."), "fc_norm.2."),
)
_RULED = (
    "midlayer",
    "draft_id",
    "draft_vocab",
    "target_id",
    "aux_norm",
    "eagle_linear",
    "blk.",
    "token_embd",
    "output",
    "enc.",
)

_LAYER = re.compile(r"(?:^|\.)layers\.(\d{1,9})\.")  # a longer number names no layer


def canonical(name: str) -> str:
    """The common spelling of a drafter tensor's name.

    >>> canonical("model.midlayer.self_attn.q_proj.weight")
    'layers.0.self_attn.q_proj.weight'
    """
    name = _PREFIX.sub("", name)
    if not name.startswith(_RULED):  # a large target has 100,000 names that no rule speaks of
        return name
    for pattern, replacement in _RULES:
        name = pattern.sub(replacement, name)
    return name


def layer_index(name: str) -> int | None:
    """The decoder layer a tensor belongs to, None for one outside the layers."""
    found = _LAYER.search(name)
    return int(found[1]) if found else None
