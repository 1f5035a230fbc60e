"""The target's side of a loop: one text with its KV cache, which reads tokens ahead and takes them back.

Most caches roll back: full attention, and a sliding window that keeps what it would drop. A recurrent state (linear
attention, Mamba) cannot: there the cache is copied before tokens that may be taken back, and those that stay are read
again from the copy. Exact, at the price of a copy and, where a draft was rejected, of a second forward. So every target
that takes a cache can be decoded live.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor

from drafter_audit.decode.pairing import Wanted
from drafter_audit.model.target.model import TargetModel
from drafter_audit.model.target.parts import Untyped

CPU, NONE = torch.device("cpu"), Wanted()


class Text:
    """A text that `target` reads, of whose states the `wanted` ones go to `device`; `ahead` if it is to read ahead."""

    def __init__(
        self, target: TargetModel, wanted: Wanted = NONE, device: torch.device = CPU, *, ahead: bool = True
    ) -> None:
        self._target, self._wanted, self._device = target, wanted, device
        self._cache: Untyped = target.new_cache(whole=ahead)
        self._copy: Untyped = None  # as it was before the tokens ahead, where it cannot roll back
        self._length = 0
        self._ahead = torch.empty(0, dtype=torch.int64)

    def read(self, ids: Tensor, *, logits_to_keep: int = 0, parents: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The text goes on by `ids` int64 [n], on the CPU, in branches where `parents` say so.

        Returns logits [n, vocab], or of the last `logits_to_keep`, on the target's device, and the states [slots, n,
        hidden] that the drafter reads. Raises what `TargetModel.forward_with_taps` raises.
        """
        states = _States(self._target, self._wanted, self._device)
        logits = self._target.forward_into(ids, self._wanted.boundaries, states, self._cache, logits_to_keep, parents)
        self._length += len(ids)
        return logits, states.found

    def read_ahead(self, ids: Tensor, parents: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """As `read`, until `keep` says which of them stay."""
        if not self._target.can_roll_back:
            self._copy = copy.deepcopy(self._cache)
        self._ahead = ids
        return self.read(ids, parents=parents)

    def keep(self, stay: Tensor) -> None:
        """Of the tokens ahead those numbered `stay` int64 [n], one or more and rising: the first n, or a path of the
        branches."""
        before, dropped = self._length - len(self._ahead), len(self._ahead) - len(stay)
        self._length -= dropped
        if int(stay[-1]) >= len(stay):
            self._target.keep(self._cache, torch.cat((torch.arange(before), before + stay)))
        elif self._target.can_roll_back:
            self._target.roll_back(self._cache, self._length)
        elif dropped:
            self._cache = self._copy
            states = _States(self._target, NONE, self._device)
            self._target.forward_into(self._ahead[stay], (), states, self._cache, 1)


class _States:
    """A sink that puts each state where the drafter reads it."""

    def __init__(self, target: TargetModel, wanted: Wanted, device: torch.device) -> None:
        self._target, self._wanted, self._device = target, wanted, device
        self.found = torch.empty(0)

    def __call__(self, number: int, state: Tensor) -> None:
        wanted = self._wanted
        if wanted.normed and wanted.boundaries[number] == self._target.num_layers:
            state = self._target.parts.norm(state[None])[0]
        if not len(self.found):
            self.found = torch.empty((len(wanted.slots), *state.shape), dtype=state.dtype, device=self._device)
        for slot, taken in enumerate(wanted.slots):
            if taken == number:
                self.found[slot].copy_(state)
