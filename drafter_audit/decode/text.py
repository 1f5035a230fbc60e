"""The target's side of a loop: one text with its KV cache, which reads tokens ahead and takes them back.

Most caches roll back: full attention, and in transformers a sliding window too, past its edge, because it is told
beforehand to keep what it would drop. A recurrent state (linear attention, Mamba) cannot: there the cache is copied
before tokens that may be taken back, and those that stay are read again from the copy. Exact, at the price of a copy
and, where a draft was rejected, of a second forward.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor

from drafter_audit.decode.pairing import Wanted
from drafter_audit.model.target.model import TargetModel
from drafter_audit.model.target.parts import Untyped


class Text:
    """A text that `target` reads, of whose states the `wanted` ones go to `device`."""

    def __init__(self, target: TargetModel, wanted: Wanted, device: torch.device) -> None:
        self._target, self._wanted, self._device = target, wanted, device
        self._cache: Untyped = target.new_cache()
        self._copy: Untyped = None  # as it was before the tokens ahead, where it cannot roll back
        self._ahead = torch.empty(0, dtype=torch.int64)
        self._rolls_back: bool | None = None  # told by some caches only after the first tokens

    def read(self, ids: Tensor, *, logits_to_keep: int = 0) -> tuple[Tensor, Tensor]:
        """The text goes on by `ids` int64 [n], on the CPU.

        Returns logits [n, vocab], or of the last `logits_to_keep`, on the target's device, and the states [slots, n,
        hidden] that the drafter reads. Raises what `TargetModel.forward_with_taps` raises.
        """
        states = _States(self._target, self._wanted, self._device)
        logits = self._target.forward_into(ids, self._wanted.boundaries, states, self._cache, logits_to_keep)
        return logits, states.found

    def read_ahead(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """As `read`, of a text that was begun, until `keep` says how many of them stay."""
        if self._rolls_back is None:
            self._rolls_back = _made_to_roll_back(self._cache)
        if not self._rolls_back:
            self._copy = copy.deepcopy(self._cache)
        self._ahead = ids
        return self.read(ids)

    def keep(self, count: int) -> None:
        """Of the tokens ahead the first `count`, one or more, stay."""
        dropped = len(self._ahead) - count
        if self._rolls_back:
            self._cache.crop(-dropped)
        elif dropped:
            self._cache = self._copy
            self._target.forward_into(
                self._ahead[:count], (), _States(self._target, Wanted(), self._device), self._cache, 1
            )


def _made_to_roll_back(cache: Untyped) -> bool:
    """Whether tokens can be taken back from here on: a sliding window then keeps what it would drop, until `crop`."""
    croppable = bool(getattr(cache, "is_croppable", False))
    if croppable:
        cache.activate_past_recording()
    return croppable


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
