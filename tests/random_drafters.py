"""Small drafters of any shape with random weights, written as checkpoints, and what they compute in a plain loop."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from drafter_audit import open_drafter
from drafter_audit.drafter.expected import expected_tensors

HIDDEN, VOCABULARY, DRAFT_VOCABULARY = 32, 60, 24

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLMEagle3"],
    "model_type": "llama",
    "hidden_size": HIDDEN,
    "intermediate_size": 40,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 12,
    "rms_norm_eps": 1e-5,
    "vocab_size": VOCABULARY,
    "draft_vocab_size": DRAFT_VOCABULARY,
    "max_position_embeddings": 128,
    "num_aux_hidden_states": 3,
    "rope_theta": 500.0,
}
MLA: dict[str, Any] = {
    **LLAMA,
    "architectures": ["Eagle3DeepseekV2ForCausalLM"],
    "model_type": "kimi_k2",
    "kv_lora_rank": 16,
    "q_lora_rank": 20,
    "qk_nope_head_dim": 10,
    "qk_rope_head_dim": 6,
    "v_head_dim": 8,
}
EAGLE1: dict[str, Any] = {
    **{key: value for key, value in LLAMA.items() if key not in ("draft_vocab_size", "num_aux_hidden_states")},
    "architectures": ["LlamaForCausalLM"],
    "bias": True,
}

Weights = dict[str, np.ndarray]


def random_weights(shapes: Mapping[str, tuple[int, ...]], seed: int = 0) -> Weights:
    """Norms about one, all else about zero."""
    draw = np.random.default_rng(seed)
    return {
        name: (1.0 * ("norm" in name) + 0.2 * draw.standard_normal(shape)).astype(np.float32)
        for name, shape in sorted(shapes.items())
    }


def draft_map(seed: int = 0) -> np.ndarray:
    """d2t of a random draft vocabulary."""
    kept = np.sort(np.random.default_rng(seed).choice(VOCABULARY, DRAFT_VOCABULARY, replace=False))
    return kept - np.arange(DRAFT_VOCABULARY)


def shapes_of(folder: Path, config: Mapping[str, Any], kind: str) -> dict[str, tuple[int, ...]]:
    """The tensors that such a config calls for."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    arch = open_drafter(str(folder)).architecture
    return dict(expected_tensors(arch, kind))


def write_random(
    folder: Path, config: Mapping[str, Any] = LLAMA, kind: str = "eagle3", *, drop: tuple[str, ...] = (), **more: Any
) -> tuple[str, Weights]:
    """`folder`, made a drafter of that config; its reference and its weights. `more` are tensors by name with `__` for
    a point; `drop` are left out."""
    shapes = shapes_of(folder, config, kind)
    weights = random_weights(shapes)
    if config.get("draft_vocab_size", VOCABULARY) < VOCABULARY:
        weights["d2t"] = draft_map()
    weights |= {name.replace("__", "."): tensor for name, tensor in more.items()}
    weights = {name: tensor for name, tensor in weights.items() if name not in drop}
    save_file(weights, folder / "model.safetensors")
    return str(folder), weights


def write_target(folder: Path, seed: int = 5, **config: Any) -> tuple[str, Weights]:
    """A target with an embedding and a head, and nothing else."""
    names = ("model.embed_tokens.weight", "lm_head.weight")
    weights = random_weights(dict.fromkeys(names, (VOCABULARY, HIDDEN)), seed)
    told = {"model_type": "llama", "num_hidden_layers": 8, "hidden_size": HIDDEN, "vocab_size": VOCABULARY} | config
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(told))
    save_file(weights, folder / "model.safetensors")
    return str(folder), weights


def plain_loop(
    weights: Weights, config: Mapping[str, Any], ids: list[int], states: np.ndarray, steps: int, *, eagle1: bool = False
) -> np.ndarray:
    """Logits [steps, T, rows] of a one-layer drafter of Llama's kind, one query at a time, in float64.

    As EAGLE's cnets.py (and cnets1.py) read: the fused state is added to, a round that starts at t reads true states up
    to t and its own steps from there.
    """
    w = {name: tensor.astype(np.float64) for name, tensor in weights.items()}
    tokens = len(ids)
    hidden = [states[:, t].reshape(-1) for t in range(tokens)]
    if not eagle1:
        hidden = [w["fc.weight"] @ state for state in hidden]
    keys: list[list[tuple[np.ndarray, np.ndarray]]] = [[] for _ in range(steps)]
    out = np.zeros((steps, tokens, len(w["lm_head.weight"])))
    for step in range(steps):
        token = [ids[t + step] if t + step < tokens else 0 for t in range(tokens)]
        inputs, bases, queries = [], [], []
        for t in range(tokens):
            embedded = w["embed_tokens.weight"][token[t]]
            if eagle1:
                bases.append(w["fc.weight"] @ np.concatenate([embedded, hidden[t]]) + w["fc.bias"])
                inputs.append(bases[-1])
            else:
                bases.append(hidden[t])
                parts = [_norm(embedded, w["layers.0.input_layernorm.weight"], config)]
                inputs.append(np.concatenate([*parts, _norm(hidden[t], w["layers.0.hidden_norm.weight"], config)]))
            q, k, v = (w[f"layers.0.self_attn.{name}_proj.weight"] @ inputs[-1] for name in "qkv")
            queries.append(_turned(q, t + step, config))
            keys[step].append((_turned(k, t + step, config), v.reshape(-1, config["head_dim"])))
        for t in range(tokens):
            seen = keys[0][: t + 1] + [keys[later][t] for later in range(1, step + 1)]
            after = bases[t] + w["layers.0.self_attn.o_proj.weight"] @ _attend(queries[t], seen, config)
            x = _norm(after, w["layers.0.post_attention_layernorm.weight"], config)
            gate, up = (w[f"layers.0.mlp.{name}_proj.weight"] @ x for name in ("gate", "up"))
            hidden[t] = after + w["layers.0.mlp.down_proj.weight"] @ (gate / (1 + np.exp(-gate)) * up)
            before_head = hidden[t] if eagle1 else _norm(hidden[t], w["norm.weight"], config)
            out[step, t] = w["lm_head.weight"] @ before_head
    return out


def _norm(x: np.ndarray, weight: np.ndarray, config: Mapping[str, Any]) -> np.ndarray:
    return x / np.sqrt((x**2).mean() + config["rms_norm_eps"]) * weight


def _turned(x: np.ndarray, position: int, config: Mapping[str, Any]) -> np.ndarray:
    size = config["head_dim"]
    heads = x.reshape(-1, size)
    turned = np.empty_like(heads)
    for pair in range(size // 2):
        angle = position * config["rope_theta"] ** (-2 * pair / size)
        a, b = heads[:, pair], heads[:, pair + size // 2]
        turned[:, pair] = a * np.cos(angle) - b * np.sin(angle)
        turned[:, pair + size // 2] = b * np.cos(angle) + a * np.sin(angle)
    return turned


def _attend(query: np.ndarray, seen: list[tuple[np.ndarray, np.ndarray]], config: Mapping[str, Any]) -> np.ndarray:
    group = config["num_attention_heads"] // config["num_key_value_heads"]
    read = []
    for head in range(config["num_attention_heads"]):
        scores = np.array([query[head] @ key[head // group] for key, _ in seen]) / np.sqrt(config["head_dim"])
        chances = np.exp(scores - scores.max())
        chances /= chances.sum()
        read.append(sum(chance * value[head // group] for chance, (_, value) in zip(chances, seen, strict=True)))
    return np.concatenate(read)
