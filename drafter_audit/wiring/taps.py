"""What wirings share on one pack: the fused states, put together slot by slot, and what the target thought.

fc is linear: its output is a sum over slots, so a slot at another boundary changes one summand. That also holds with a
norm over each state alone; with one over all states together the whole is computed anew.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from drafter_audit.drafter.wiring import Side
from drafter_audit.model.drafter import Drafter
from drafter_audit.model.network import Network
from drafter_audit.wiring.aims import Aims, vocabulary_ids
from drafter_audit.wiring.corpus import Pack

_KEPT = 16
"""Summands kept: those of the wiring that others depart from are used again and again, all others once."""


class Taps:
    """One pack's shared parts, for one drafter under many wirings."""

    def __init__(self, pack: Pack, vocabulary: int) -> None:
        self._pack, self._vocabulary = pack, vocabulary
        self._parts: dict[tuple[int, ...], Tensor] = {}
        self._aims: dict[tuple[int | str, ...], Aims] = {}

    def fused(self, network: Network, boundaries: Sequence[int], last_state: Side = "pre_norm") -> Tensor:
        """`network.fuse` of the states at `boundaries`, in slot order: [T, hidden]."""
        behind = last_state == "post_norm" and self._pack.last_normed is not None
        read = [(boundary, behind and boundary == max(self._pack.boundaries)) for boundary in boundaries]
        if network.fc is None or network.input_norm is not None:
            return network.fuse(torch.stack([self._state(one, network) for one in read]))
        parts = [self._part(network, slot, one) for slot, one in enumerate(read)]
        whole = torch.stack(parts).sum(dim=0)
        return whole if network.fc.bias is None else whole + network.fc.bias

    def aims(self, drafter: Drafter) -> Aims:
        """What the target thought, in the columns of that drafter's vocabulary."""
        key = (drafter.wiring.vocab_map, len(drafter.network.head.weight), id(drafter.d2t))
        if key not in self._aims:
            self._aims[key] = Aims.of(self._pack, vocabulary_ids(drafter), self._vocabulary)
        return self._aims[key]

    def _part(self, network: Network, slot: int, read: tuple[int, bool]) -> Tensor:
        """What one slot adds to fc's output."""
        assert network.fc is not None
        norm = network.fc_norms[slot] if network.fc_norms else None
        key = (id(network.fc.weight), 0 if norm is None else id(norm.weight), slot, *read)
        if key not in self._parts:
            state = self._state(read, network)
            weight = network.fc.weight[:, slot * state.shape[1] : (slot + 1) * state.shape[1]]
            if len(self._parts) >= _KEPT:
                self._parts.pop(next(iter(self._parts)))
            self._parts[key] = torch.nn.functional.linear(state if norm is None else norm(state), weight)
        self._parts[key] = self._parts.pop(key)  # the latest used last
        return self._parts[key]

    def _state(self, read: tuple[int, bool], network: Network) -> Tensor:
        """At a boundary, behind the target's final norm or not."""
        (boundary, behind), pack = read, self._pack
        state = pack.last_normed if behind else pack.states[pack.boundaries.index(boundary)]
        assert state is not None
        return state.to(network.embedding.dtype)
