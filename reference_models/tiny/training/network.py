"""The drafter as it is trained: EAGLE-3's network in plain torch, several texts at once, every step unrolled.

The names of its parameters are SpecForge's. Step k at position t sees step 0's keys at positions <= t and those of its
own steps 1..k, and turns by t + k (EAGLE-3's training-time test).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

HEADS, KV_HEADS, SIZE = 4, 2, 32
EPS, THETA = 1e-6, 10000.0

Kept = list[tuple[Tensor, Tensor]]


class Norm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return functional.rms_norm(x, self.weight.shape, self.weight, EPS)


class Attention(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.q_proj = nn.Linear(2 * width, HEADS * SIZE, bias=False)
        self.k_proj = nn.Linear(2 * width, KV_HEADS * SIZE, bias=False)
        self.v_proj = nn.Linear(2 * width, KV_HEADS * SIZE, bias=False)
        self.o_proj = nn.Linear(HEADS * SIZE, width, bias=False)

    def forward(self, x: Tensor, kept: Kept) -> Tensor:
        """[n, T, 2 * width] -> [n, T, width]; the step's number is what `kept` holds so far."""
        step = len(kept)
        q = _turned(_heads(self.q_proj(x), HEADS), step)
        k = _turned(_heads(self.k_proj(x), KV_HEADS), step).repeat_interleave(HEADS // KV_HEADS, dim=1)
        v = _heads(self.v_proj(x), KV_HEADS).repeat_interleave(HEADS // KV_HEADS, dim=1)
        kept.append((k, v))
        read = _first(q, k, v) if step == 0 else _later(q, kept)
        joined: Tensor = self.o_proj(read.transpose(1, 2).flatten(2))
        return joined


class Mlp(nn.Module):
    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(width, inner, bias=False)
        self.up_proj = nn.Linear(width, inner, bias=False)
        self.down_proj = nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


class MidLayer(nn.Module):
    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.input_layernorm, self.hidden_norm = Norm(width), Norm(width)
        self.self_attn = Attention(width)
        self.post_attention_layernorm = Norm(width)
        self.mlp = Mlp(width, inner)

    def forward(self, embedded: Tensor, hidden: Tensor, kept: Kept) -> Tensor:
        pair = torch.cat((self.input_layernorm(embedded), self.hidden_norm(hidden)), dim=-1)
        hidden = hidden + self.self_attn(pair, kept)
        out: Tensor = hidden + self.mlp(self.post_attention_layernorm(hidden))
        return out


class DraftNetwork(nn.Module):
    """fc, one layer, norm and head; the embedding is the target's, frozen."""

    def __init__(self, embedding: Tensor, slots: int, inner: int, draft_vocab: int) -> None:
        super().__init__()
        width = embedding.shape[1]
        self.embed_tokens = nn.Embedding(len(embedding), width, _weight=embedding, _freeze=True)
        self.fc = nn.Linear(slots * width, width, bias=False)
        self.midlayer = MidLayer(width, inner)
        self.norm = Norm(width)
        self.lm_head = nn.Linear(width, draft_vocab, bias=False)

    def forward(self, ids: Tensor, states: Tensor, steps: int) -> Tensor:
        """`ids` [n, T], one ahead of `states` [n, T, slots * width] -> logits [steps, n, T, draft_vocab]."""
        kept: Kept = []
        hidden, logits = self.fc(states), []
        for step in range(steps):
            shifted = functional.pad(ids[:, step:], (0, step))
            hidden = self.midlayer(self.embed_tokens(shifted), hidden, kept)
            logits.append(self.lm_head(self.norm(hidden)))
        return torch.stack(logits)


def _heads(x: Tensor, count: int) -> Tensor:
    """[n, T, count * SIZE] -> [n, count, T, SIZE]."""
    return x.view(*x.shape[:2], count, SIZE).transpose(1, 2)


def _turned(x: Tensor, step: int) -> Tensor:
    frequencies = THETA ** -(torch.arange(0, SIZE, 2).float() / SIZE)
    angles = (torch.arange(x.shape[2]) + step).float()[:, None] * frequencies
    cos, sin = angles.cos(), angles.sin()
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


def _first(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return functional.scaled_dot_product_attention(q, k, v, is_causal=True)


def _later(q: Tensor, kept: Kept) -> Tensor:
    """Step 0's keys up to each position, then those of the later steps at the position itself."""
    (first_k, first_v), own = kept[0], kept[1:]
    ahead = torch.ones(q.shape[2], q.shape[2], dtype=torch.bool).triu(1)
    to_first = (q @ first_k.mT).masked_fill(ahead, float("-inf"))
    to_own = [(q * k).sum(-1, keepdim=True) for k, _ in own]
    shares = (torch.cat([to_first, *to_own], dim=-1) * SIZE**-0.5).softmax(-1)
    read: Tensor = shares[..., : q.shape[2]] @ first_v
    for place, (_, v) in enumerate(own):
        read = read + shares[..., q.shape[2] + place, None] * v
    return read
