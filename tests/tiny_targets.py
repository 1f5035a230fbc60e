"""Tiny targets with random weights, one of each family, written as checkpoints that transformers reads."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import torch
import transformers

LAYERS, HIDDEN, VOCABULARY = 4, 32, 96

PLAIN: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": HIDDEN,
    "intermediate_size": 48,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 128,
    "initializer_range": 0.3,
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}


def write_model(model: Any, folder: Path) -> str:
    model.eval().save_pretrained(folder)
    return str(folder)


def llama(folder: Path, **changes: Any) -> str:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(**(PLAIN | changes))
    return write_model(transformers.LlamaForCausalLM(config), folder)


def edit_config(ref: str, **changes: Any) -> None:
    path = Path(ref, "config.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


_MOE: dict[str, Any] = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "norm_topk_prob": True}
_LATENT: dict[str, Any] = {
    **{key: value for key, value in PLAIN.items() if key != "head_dim"},
    "moe_intermediate_size": 16,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_group": 2,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    "num_key_value_heads": 4,
    "kv_lora_rank": 16,
    "q_lora_rank": 12,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 4,
    "v_head_dim": 8,
}
_ALTERNATING = ["sliding_attention", "full_attention"] * (LAYERS // 2)
_VISION: dict[str, Any] = {
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "image_size": 28,
    "patch_size": 14,
}

# Family -> (the model's class, its config's class, the config). A wrapper's language model has a section of its own.
FAMILIES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "llama": ("LlamaForCausalLM", "LlamaConfig", PLAIN),
    "qwen3": ("Qwen3ForCausalLM", "Qwen3Config", PLAIN),
    "qwen3_moe": ("Qwen3MoeForCausalLM", "Qwen3MoeConfig", PLAIN | _MOE),
    "deepseek_v3": ("DeepseekV3ForCausalLM", "DeepseekV3Config", _LATENT),
    "gpt_oss": (
        "GptOssForCausalLM",
        "GptOssConfig",
        PLAIN | {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 8, "layer_types": _ALTERNATING},
    ),
    "gemma3": (
        "Gemma3ForCausalLM",
        "Gemma3TextConfig",
        PLAIN | {"sliding_window": 8, "layer_types": _ALTERNATING, "query_pre_attn_scalar": 8},
    ),
    "gemma3_wrapped": (
        "Gemma3ForConditionalGeneration",
        "Gemma3Config",
        {
            "text_config": PLAIN | {"sliding_window": 8, "layer_types": _ALTERNATING},
            "vision_config": _VISION,
            "mm_tokens_per_image": 4,
            "image_token_index": 5,
            "tie_word_embeddings": False,
        },
    ),
    "qwen2_5_vl": (
        "Qwen2_5_VLForConditionalGeneration",
        "Qwen2_5_VLConfig",
        {
            "text_config": PLAIN
            | {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [1, 1, 2]}},
            "vision_config": {
                "depth": 1,
                "hidden_size": 16,
                "intermediate_size": 24,
                "num_heads": 2,
                "out_hidden_size": HIDDEN,
            },
            "image_token_id": 5,
            "video_token_id": 6,
            "vision_start_token_id": 7,
            "vision_end_token_id": 8,
            "tie_word_embeddings": False,
        },
    ),
    "mistral3": (
        "Mistral3ForConditionalGeneration",
        "Mistral3Config",
        {
            "text_config": PLAIN | {"model_type": "mistral"},
            "vision_config": _VISION | {"model_type": "pixtral", "head_dim": 8},
            "image_token_index": 5,
            "tie_word_embeddings": False,
        },
    ),
    "kimi_k25": (
        "Kimi_K25ForConditionalGeneration",
        "Kimi_K25Config",
        {
            "text_config": _LATENT | {"model_type": "kimi_k2"},
            "vision_config": {
                "hidden_size": 16,
                "intermediate_size": 24,
                "num_hidden_layers": 1,
                "num_attention_heads": 2,
            },
            "projection_hidden_size": 16,
            "image_token_id": 5,
            "tie_word_embeddings": False,
        },
    ),
    "qwen3_next": (
        "Qwen3NextForCausalLM",
        "Qwen3NextConfig",
        PLAIN
        | _MOE
        | {
            "shared_expert_intermediate_size": 16,
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 4,
            "linear_key_head_dim": 8,
            "linear_value_head_dim": 8,
        },
    ),
    "kimi_linear": (
        "KimiLinearForCausalLM",
        "KimiLinearConfig",
        {key: value for key, value in (_LATENT).items() if key != "n_routed_experts"}
        | {
            "num_local_experts": 4,
            "linear_head_dim": 8,
            "linear_num_heads": 4,
            "layer_types": ["linear_attention", "full_attention"] * (LAYERS // 2),
        },
    ),
}


def write_family(name: str, folder: Path, **changes: Any) -> str:
    model, config, settings = FAMILIES[name]
    torch.manual_seed(0)
    built = getattr(transformers, model)(getattr(transformers, config)(**(copy.deepcopy(settings) | changes)))
    return write_model(built, folder)
