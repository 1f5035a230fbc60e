"""The parts of a decoder layer, over plain tensors: no batch axis, T positions at a time.

`attend` is given queries [heads, T, d], keys [kv_heads, T, d], values [kv_heads, T, dv] and the factor on their
products, and returns what the queries read [heads, T, dv]: which keys they see is decided there (memory.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

from drafter_audit.model.rope import Turn

Attend = Callable[[Tensor, Tensor, Tensor, float], Tensor]
Activation = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Linear:
    """weight [out, in], bias [out] or none."""

    weight: Tensor
    bias: Tensor | None = None

    def __call__(self, x: Tensor) -> Tensor:
        return functional.linear(x, self.weight, self.bias)


@dataclass(frozen=True)
class Norm:
    """RMS norm with a weight [size]."""

    weight: Tensor
    eps: float

    def __call__(self, x: Tensor) -> Tensor:
        return functional.rms_norm(x, self.weight.shape, self.weight, self.eps)


@dataclass(frozen=True)
class Part:
    """The tensors below one module's name, taken out by their last names."""

    weights: Mapping[str, Tensor]
    eps: float
    prefix: str = ""

    def __contains__(self, name: str) -> bool:
        return f"{self.prefix}{name}.weight" in self.weights

    def below(self, name: str) -> Part:
        return Part(self.weights, self.eps, f"{self.prefix}{name}.")

    def linear(self, name: str) -> Linear:
        return Linear(self.weights[f"{self.prefix}{name}.weight"], self.weights.get(f"{self.prefix}{name}.bias"))

    def norm(self, name: str) -> Norm:
        return Norm(self.weights[f"{self.prefix}{name}.weight"], self.eps)

    def norm_if_any(self, name: str) -> Norm | None:
        return self.norm(name) if name in self else None


class Attention(Protocol):
    def __call__(self, x: Tensor, turn: Turn, attend: Attend) -> Tensor: ...


@dataclass(frozen=True)
class GroupedAttention:
    """Llama's attention, several queries to a key; norms on queries and keys where there are any (Qwen3)."""

    q: Linear
    k: Linear
    v: Linear
    o: Linear
    head_dim: int
    q_norm: Norm | None = None
    k_norm: Norm | None = None

    def __call__(self, x: Tensor, turn: Turn, attend: Attend) -> Tensor:
        """[T, width] -> [T, hidden]."""
        q, k, v = (_heads(each(x), self.head_dim) for each in (self.q, self.k, self.v))
        q = q if self.q_norm is None else self.q_norm(q)
        k = k if self.k_norm is None else self.k_norm(k)
        return self.o(_joined(attend(turn(q), turn(k), v, self.head_dim**-0.5)))


@dataclass(frozen=True)
class LatentAttention:
    """DeepSeek's attention: keys and values from one narrow latent, positions in `rope` elements of their own.

    `nope` and `rope` are the two parts of a query, `value` the width of a value, `scale` the factor on the products.
    """

    queries: Callable[[Tensor], Tensor]
    kv_a: Linear
    kv_a_norm: Norm
    kv_b: Linear
    o: Linear
    nope: int
    rope: int
    value: int
    scale: float

    def __call__(self, x: Tensor, turn: Turn, attend: Attend) -> Tensor:
        """[T, width] -> [T, hidden]."""
        q_nope, q_rope = _parted(_heads(self.queries(x), self.nope + self.rope), self.nope)
        latent, k_rope = _parted(self.kv_a(x), -self.rope)
        k_nope, v = _parted(_heads(self.kv_b(self.kv_a_norm(latent)), self.nope + self.value), self.nope)
        shared = turn(k_rope[None]).expand(k_nope.shape[0], -1, -1)
        q, k = torch.cat((q_nope, turn(q_rope)), dim=-1), torch.cat((k_nope, shared), dim=-1)
        return self.o(_joined(attend(q, k, v, self.scale)))


@dataclass(frozen=True)
class LowRankQueries:
    """q_b(norm(q_a(x)))."""

    a: Linear
    norm: Norm
    b: Linear

    def __call__(self, x: Tensor) -> Tensor:
        return self.b(self.norm(self.a(x)))


@dataclass(frozen=True)
class Mlp:
    gate: Linear
    up: Linear
    down: Linear
    activation: Activation

    def __call__(self, x: Tensor) -> Tensor:
        return self.down(self.activation(self.gate(x)) * self.up(x))


@dataclass(frozen=True)
class Layer:
    """One decoder layer.

    `state_norms` are applied one after another to the hidden state before the attention. Where the layer reads the
    embedding too, `embedding_norm` normalises it and both are concatenated, the state first if `hidden_first`.
    `normed_residual`: the attention is added to the normed state.
    """

    attention: Attention
    mlp: Mlp
    after: Norm
    state_norms: tuple[Norm, ...] = field(default=())
    embedding_norm: Norm | None = None
    hidden_first: bool = False
    normed_residual: bool = False

    def __call__(self, embedding: Tensor, hidden: Tensor, turn: Turn, attend: Attend) -> Tensor:
        """`embedding` and `hidden` [T, hidden] -> [T, hidden]."""
        normed = hidden
        for norm in self.state_norms:
            normed = norm(normed)
        residual = normed if self.normed_residual else hidden
        if self.embedding_norm is not None:
            normed = joined_pair(self.embedding_norm(embedding), normed, hidden_first=self.hidden_first)
        hidden = residual + self.attention(normed, turn, attend)
        return hidden + self.mlp(self.after(hidden))


def joined_pair(embedding: Tensor, hidden: Tensor, *, hidden_first: bool) -> Tensor:
    """[T, a] and [T, b] -> [T, a + b]."""
    return torch.cat((hidden, embedding) if hidden_first else (embedding, hidden), dim=-1)


def _heads(x: Tensor, size: int) -> Tensor:
    """[T, heads * size] -> [heads, T, size]."""
    return x.view(len(x), -1, size).transpose(0, 1)


def _joined(x: Tensor) -> Tensor:
    """[heads, T, size] -> [T, heads * size]."""
    return x.transpose(0, 1).flatten(-2)


def _parted(x: Tensor, at: int) -> tuple[Tensor, Tensor]:
    """The last axis, cut in two."""
    return x[..., :at], x[..., at:]
