"""What queries see: all positions at once for some steps, or one text that grows and is cut back."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention

from drafter_audit.model.layers import Attend

_ROWS = 256
"""Queries whose scores are held at once, in steps after the first: memory grows with the text's length, not its
square."""


class Unrolled:
    """Step k's query at position t sees step 0's keys at positions <= t and those of steps 1..k at t alone: as a round
    of drafting that starts at t does, and as EAGLE's training-time test. Steps after the first may be of the last
    positions only, the same ones each time.

    With `until` each of these positions has several beams in those steps, as rows one beam after another; step k's
    query then sees the keys of steps 1..k on its own path alone."""

    def __init__(self, beams: int = 1) -> None:
        self._beams = beams
        self._kept: dict[int, list[tuple[Tensor, Tensor]]] = {}

    def until(self, stop: int, beams: int) -> Unrolled:
        """Step 0 of the first `stop` positions, from the last of which `beams` each go on."""
        cut = Unrolled(beams)
        cut._kept = {layer: [(kept[0][0][:, :stop], kept[0][1][:, :stop])] for layer, kept in self._kept.items()}
        return cut

    def branch(self, rows: Tensor) -> Callable[[int], Attend]:
        """`of`, for a step whose rows go on from these `rows` of the step before."""
        for kept in self._kept.values():
            kept[1:] = [(k[:, rows], v[:, rows]) for k, v in kept[1:]]
        return self.of

    def of(self, layer: int) -> Attend:
        """That layer's `attend`: each call is the next step."""
        kept = self._kept.setdefault(layer, [])

        def attend(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
            kept.append((k, v))
            return _causal(q, k, v, scale) if len(kept) == 1 else _with_own(q, kept, scale, self._beams)

        return attend


class KeyValues:
    """The keys and values of one text, per layer, in one buffer each that doubles when it is full.

    `length` counts positions; lowering it forgets what lies beyond.
    """

    def __init__(self) -> None:
        self.length = 0
        self._kept: dict[int, tuple[Tensor, Tensor]] = {}

    def of(self, layer: int) -> Attend:
        """That layer's `attend`: its keys are those of the positions from `length` on."""

        def attend(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
            keys, values = self.with_new(layer, k, v)
            if self.length == 0:
                return _causal(q, k, v, scale)
            seen = None if q.shape[1] == 1 else _before(q.shape[1], keys.shape[1], q.device)
            return _attended(q, keys, values, scale, seen)

        return attend

    def with_new(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """That layer's keys and values up to `length`, and these behind them."""
        stop = self.length + k.shape[1]
        held = self._kept.get(layer)
        if held is None or held[0].shape[1] < stop:
            held = (_larger(held and held[0], k, self.length), _larger(held and held[1], v, self.length))
            self._kept[layer] = held
        for buffer, new in zip(held, (k, v), strict=True):
            buffer[:, self.length : stop] = new
        return held[0][:, :stop], held[1][:, :stop]


class Branched:
    """Beams beyond the text in `memory`, a row for each: a query sees the text, and of the keys of beams those on its
    own path. `memory` is to be cut back afterwards."""

    def __init__(self, memory: KeyValues) -> None:
        self._memory, self._text = memory, memory.length
        self._seen: Tensor | None = None  # [beams, keys of beams]

    def branch(self, rows: Tensor) -> Callable[[int], Attend]:
        """`of`, for a step whose rows go on from these `rows` of the step before."""
        own = torch.eye(len(rows), dtype=torch.bool, device=rows.device)
        earlier = own[:, :0] if self._seen is None else self._seen[rows]
        self._memory.length = self._text + earlier.shape[1]
        self._seen = torch.cat((earlier, own), dim=1)
        return self.of

    def of(self, layer: int) -> Attend:
        """That layer's `attend`."""

        def attend(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
            keys, values = self._memory.with_new(layer, k, v)
            seen = None if self._seen is None else pad(self._seen, (self._text, 0), value=True)
            return _attended(q, keys, values, scale, seen)

        return attend


def _larger(old: Tensor | None, new: Tensor, length: int) -> Tensor:
    heads, count, size = new.shape
    buffer = new.new_empty((heads, max(2 * length, length + count, 64), size))
    if old is not None:
        buffer[:, :length] = old[:, :length]
    return buffer


def _causal(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    return scaled_dot_product_attention(
        q[None], k[None], v[None], is_causal=True, scale=scale, enable_gqa=len(q) > len(k)
    )[0]


def _attended(q: Tensor, k: Tensor, v: Tensor, scale: float, seen: Tensor | None) -> Tensor:
    return scaled_dot_product_attention(
        q[None], k[None], v[None], attn_mask=seen, scale=scale, enable_gqa=len(q) > len(k)
    )[0]


def _before(queries: int, keys: int, device: torch.device) -> Tensor:
    """[queries, keys]: the last query sees every key, each one before it one key less."""
    return torch.ones((queries, keys), dtype=torch.bool, device=device).tril(keys - queries)


def _with_own(q: Tensor, kept: list[tuple[Tensor, Tensor]], scale: float, beams: int) -> Tensor:
    """Step 0's keys at or before each query's position, and the later steps' keys on its path."""
    first_k, first_v = kept[0]
    own_k, own_v = (torch.stack(each, dim=2) for each in zip(*kept[1:], strict=True))  # [kv, rows, steps, d]
    own_k, own_v = (own.reshape(len(own), 1, beams, -1, *own.shape[2:]) for own in (own_k, own_v))
    grouped = q.reshape(len(first_k), -1, beams, q.shape[1] // beams, q.shape[2]) * scale  # [kv, group, beams, n, d]
    places, block, parts = grouped.shape[3], max(1, _ROWS // beams), []
    for start in range(0, places, block):
        stop = min(start + block, places)
        seen = first_k.shape[1] - places + stop
        first = (first_k[:, None, None, :seen], first_v[:, None, None, :seen])
        own = (own_k[:, :, :, start:stop], own_v[:, :, :, start:stop])
        parts.append(_rows(grouped[:, :, :, start:stop], first, own))
    return torch.cat(parts, dim=3).flatten(2, 3).flatten(0, 1)


def _rows(q: Tensor, first: tuple[Tensor, Tensor], own: tuple[Tensor, Tensor]) -> Tensor:
    """Queries [kv, group, beams, n, d] of the last positions of `first` -> [kv, group, beams, n, dv]."""
    (first_k, first_v), (own_k, own_v) = first, own
    seen = first_k.shape[-2]
    ahead = ~_before(q.shape[-2], seen, q.device)
    to_first = (q @ first_k.transpose(-1, -2)).masked_fill_(ahead, float("-inf"))
    to_own = (own_k @ q.unsqueeze(-1)).squeeze(-1)
    scores = torch.cat((to_first, to_own), dim=-1).softmax(dim=-1, dtype=torch.float32).to(q.dtype)
    read: Tensor = scores[..., :seen] @ first_v + (scores[..., None, seen:] @ own_v).squeeze(-2)
    return read
