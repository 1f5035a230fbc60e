"""What a one-layer drafter computes under a wiring: numpy, one query at a time, from the definitions of the knobs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from drafter_audit.drafter.wiring import Wiring
from tests.random_drafters import Weights

Pair = tuple[np.ndarray, np.ndarray]


def knob_loop(
    weights: Weights, config: Mapping[str, Any], wiring: Wiring, ids: list[int], states: np.ndarray, steps: int
) -> np.ndarray:
    """Logits [steps, T, rows] in float64. Embedding and head are those of `weights`; states [slots, T, width]."""
    loop = _Loop({name: tensor.astype(np.float64) for name, tensor in weights.items()}, config, wiring)
    hidden = [loop.fused(states[:, t]) for t in range(len(ids))]
    true, out = [], np.zeros((steps, len(ids), len(weights["lm_head.weight"])))
    own: list[list[Pair]] = [[] for _ in ids]
    for step in range(steps):
        at = [t + step + wiring.token_shift - 1 for t in range(len(ids))]
        tokens = [ids[place] if 0 <= place < len(ids) else 0 for place in at]
        read = [loop.inputs(tokens[t], hidden[t]) for t in range(len(ids))]
        for t, (x, _) in enumerate(read):
            (true if step == 0 else own[t]).append(loop.key_value(x, t + step))
        for t, (x, base) in enumerate(read):
            seen = true[: t + 1] + own[t]
            out[step, t], hidden[t] = loop.layer(x, base, t + step, seen)
    return out


class _Loop:
    def __init__(self, weights: Weights, config: Mapping[str, Any], wiring: Wiring) -> None:
        self.w, self.config, self.wiring = weights, config, wiring
        self.frequencies, self.factor = frequencies(config["head_dim"], config["max_position_embeddings"], wiring)

    def norm(self, x: np.ndarray, name: str) -> np.ndarray:
        return x / np.sqrt((x**2).mean() + self.config["rms_norm_eps"]) * self.w[f"{name}.weight"]

    def fused(self, states: np.ndarray) -> np.ndarray:
        whole = states.reshape(-1)
        if self.wiring.pre_fc_norm in ("whole", "whole_then_per_state"):
            whole = self.norm(whole, "input_norm")
        if self.wiring.pre_fc_norm in ("per_state", "whole_then_per_state"):
            parts = np.split(whole, len(states))
            whole = np.concatenate([self.norm(part, f"fc_norm.{slot}") for slot, part in enumerate(parts)])
        return self.w["fc.weight"] @ whole

    def inputs(self, token: int, hidden: np.ndarray) -> Pair:
        """What the attention reads, and what it is added to."""
        normed = hidden
        if self.wiring.hidden_norm == "input_layernorm_then_hidden_norm":
            normed = self.norm(normed, "layers.0.input_layernorm")
        if self.wiring.hidden_norm != "none":
            normed = self.norm(normed, "layers.0.hidden_norm")
        embedded = self.w["embed_tokens.weight"][token] * self.wiring.embedding_scale
        pair = [self.norm(embedded, "layers.0.input_layernorm"), normed]
        pair = pair if self.wiring.concat == "embedding_first" else pair[::-1]
        return np.concatenate(pair), normed if self.wiring.residual == "post_norm" else hidden

    def project(self, x: np.ndarray, name: str) -> np.ndarray:
        return (self.w[f"layers.0.self_attn.{name}_proj.weight"] @ x).reshape(-1, self.config["head_dim"])

    def turned(self, heads: np.ndarray, position: int) -> np.ndarray:
        half = len(self.frequencies)
        angles = (position + self.wiring.position_offset) * self.frequencies
        cos, sin = np.cos(angles) * self.factor, np.sin(angles) * self.factor
        a, b = heads[:, :half], heads[:, half : 2 * half]
        return np.concatenate([a * cos - b * sin, b * cos + a * sin, heads[:, 2 * half :]], axis=1)

    def key_value(self, x: np.ndarray, position: int) -> Pair:
        return self.turned(self.project(x, "k"), position), self.project(x, "v")

    def layer(self, x: np.ndarray, base: np.ndarray, position: int, seen: list[Pair]) -> Pair:
        """Logits, and what the next step reads."""
        query = self.turned(self.project(x, "q"), position)
        after = base + self.w["layers.0.self_attn.o_proj.weight"] @ self.attend(query, seen)
        y = self.norm(after, "layers.0.post_attention_layernorm")
        gate, up = (self.w[f"layers.0.mlp.{name}_proj.weight"] @ y for name in ("gate", "up"))
        plain = after + self.w["layers.0.mlp.down_proj.weight"] @ (gate / (1 + np.exp(-gate)) * up)
        normed = self.norm(plain, "norm")
        logits = self.w["lm_head.weight"] @ (normed if self.wiring.final_norm else plain)
        return logits, normed if self.wiring.feedback == "post_norm" else plain

    def attend(self, query: np.ndarray, seen: list[Pair]) -> np.ndarray:
        group = len(query) // len(seen[0][0])
        read = []
        for head, q in enumerate(query):
            scores = np.array([q @ key[head // group] for key, _ in seen]) / math.sqrt(len(q))
            chances = np.exp(scores - scores.max())
            read.append((chances / chances.sum()) @ np.array([value[head // group] for _, value in seen]))
        return np.concatenate(read)


def frequencies(head_dim: int, longest: int, wiring: Wiring) -> tuple[np.ndarray, float]:
    """Of each pair, and the factor on cosines and sines. llama3: Meta's reference code. yarn: arXiv:2309.00071, its
    ramp between the pairs that turn beta_slow and beta_fast times over the original length, and 0.1 ln(s) + 1."""
    scaling = dict(wiring.rope_scaling or {"type": "default"})
    turned = int(head_dim * scaling.get("partial_rotary_factor", 1.0))
    plain = wiring.rope_theta ** (-np.arange(0, turned, 2) / turned)
    kind, factor = scaling["type"], scaling.get("factor", 1.0)
    if kind == "default":
        return plain, 1.0
    if kind == "linear":
        return plain / factor, 1.0
    original = scaling.get("original_max_position_embeddings", longest)
    turns = original * plain / (2 * math.pi)
    if kind == "llama3":
        low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
        kept = np.clip((turns - low) / (high - low), 0, 1)
        return plain * kept + plain / factor * (1 - kept), 1.0
    first, last = (
        turned * math.log(original / (beta * 2 * math.pi)) / (2 * math.log(wiring.rope_theta))
        for beta in (scaling.get("beta_fast", 32.0), scaling.get("beta_slow", 1.0))
    )
    first, last = max(math.floor(first), 0), min(math.ceil(last), turned - 1)
    scaled = np.clip((np.arange(turned // 2) - first) / max(last - first, 0.001), 0, 1)
    return plain / factor * scaled + plain * (1 - scaled), 0.1 * math.log(factor) + 1
