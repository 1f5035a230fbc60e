"""A GGUF file's metadata as the config.json that it was converted from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import isfinite
from typing import Any

# config.json's key: GGUF's, behind "eagle3." or whatever the architecture is (llama.cpp conversion/llama.py, gguf-py
# constants.py). `extract_layers` is the older spelling of `target_layers`.
_KEYS = {
    "hidden_size": "embedding_length",
    "intermediate_size": "feed_forward_length",
    "num_hidden_layers": "block_count",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "head_dim": "attention.key_length",
    "max_position_embeddings": "context_length",
    "vocab_size": "vocab_size",
    "rms_norm_eps": "attention.layer_norm_rms_epsilon",
    "rope_theta": "rope.freq_base",
    "target_hidden_size": "target_hidden_size",
    "norm_before_residual": "norm_before_residual",
    "norm_before_fc": "norm_before_fc",
}
_IDS = ("target_layers", "extract_layers")


def config_of_gguf(metadata: Mapping[str, str]) -> dict[str, Any]:
    """The keys of config.json that the metadata tells; values that are no single finite number are left out."""
    values = {key: json.loads(text) for key, text in metadata.items()}
    name = values.get("general.architecture")
    config = {key: value for key, other in _KEYS.items() if _plain(value := values.get(f"{name}.{other}"))}
    tokens = values.get("tokenizer.ggml.tokens")
    if "vocab_size" not in config and isinstance(tokens, dict):
        config["vocab_size"] = tokens["length"]
    if name == "eagle3":
        ids = next((ids for key in _IDS if isinstance(ids := values.get(f"{name}.{key}"), list)), None)
        config |= {"architectures": ["LlamaForCausalLMEagle3"], "eagle_aux_hidden_state_layer_ids": ids}
    return config


def _plain(value: object) -> bool:
    return isinstance(value, int | float) and isfinite(value)
