"""A target that runs: logits, and states at any boundaries, in one forward; and its own greedy text."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from drafter_audit.errors import CannotRunError, InputsError
from drafter_audit.model.target import cache
from drafter_audit.model.target.branches import branching, depth_of
from drafter_audit.model.target.devices import check_device
from drafter_audit.model.target.given import Ids, check_length, text_ids, whole_number
from drafter_audit.model.target.parts import Parts, Untyped
from drafter_audit.model.target.ranks import ALONE, Ranks, failures
from drafter_audit.model.target.taps import Sink, Taps, checked_boundaries


@dataclass(frozen=True)
class Greedy:
    """`tokens` int [N], the target's own choice after the prompt; `states` [boundaries, T, hidden] on the CPU, of the
    prompt and of all of them but the last, whose state was not computed: T = prompt + N - 1."""

    tokens: Tensor
    states: Tensor


@dataclass(frozen=True)
class TargetModel:
    """A causal language model of transformers, and where its parts are.

    `ref` and `revision` say what was loaded (the commit, None for a folder), `dtype` in which torch type,
    `num_layers` is L, `hidden_size` the width of a state, `vocab_size` the number of logits as config.json says.
    `notes` says what of the files was left out, in words. `ranks` is who else runs it. `end_ids` are the tokens that
    end a text, none where the files state none; `max_positions` how many tokens a text may have, None for no bound.
    """

    ref: str
    revision: str | None
    model: Untyped
    parts: Parts
    dtype: str
    num_layers: int
    hidden_size: int
    vocab_size: int
    notes: tuple[str, ...] = ()
    ranks: Ranks = ALONE
    end_ids: tuple[int, ...] = ()
    max_positions: int | None = None

    def forward_with_taps(
        self,
        input_ids: Ids,
        boundaries: Sequence[int],
        *,
        past: Untyped = None,
        to: str = "cpu",
        logits_to_keep: int = 0,
        parents: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Logits [T, vocab] and states [boundaries, T, hidden] of one text, both on `to`, in the model's dtype.

        `input_ids` int [T]; `boundaries` within 0..L, in the order of the states: 0 is what the first layer is given
        (a scaled embedding is scaled), k what layer k-1 gives, L that before the final norm. Each state is copied to
        `to` as it comes, so the model's devices hold one at a time. With `past`, from `new_cache`, the tokens follow
        those that it has seen, and are added. `logits_to_keep` positions at the end, all for 0. With `parents` int64
        [T] they are branches of that text (branches.py), which takes `check_branches` first. Every rank calls it.
        Raises InputsError; CannotRunError for a boundary that does not come, states that are not finite, constant or
        all the same, and too little memory; RankError where another rank is gone.
        """
        check_device(to, "the states' device", InputsError)
        kept = _Kept(len(checked_boundaries(boundaries, self.num_layers)), to)
        logits = self.forward_into(input_ids, boundaries, kept, past, logits_to_keep, parents).to(to)
        return logits, logits.new_empty((0, len(input_ids), self.hidden_size)) if kept.states is None else kept.states

    @torch.no_grad()
    def forward_into(
        self,
        input_ids: Ids,
        boundaries: Sequence[int],
        sink: Sink,
        past: Untyped = None,
        logits_to_keep: int = 0,
        parents: Tensor | None = None,
    ) -> Tensor:
        """As `forward_with_taps`, with each state given to `sink` as it comes; the logits stay on their device."""
        asked, ids = checked_boundaries(boundaries, self.num_layers), text_ids(input_ids, self.vocab_size, self.ref)
        keep = whole_number(logits_to_keep, 0, "logits to keep", self.ref)
        settings, length = self._settings(past, keep), 0 if past is None else cache.length_of(past)
        check_length(length + (len(ids) if parents is None else depth_of(parents)), self.max_positions, self.ref)
        if parents is not None:
            settings |= branching(parents, length, getattr(torch, self.dtype), self._device)
        taps = Taps(self.parts.layers, asked, (len(ids), self.hidden_size), sink)
        with failures(self.ref), taps.listening():
            output = self.model(input_ids=ids[None].to(self._device), **settings)
            taps.check(self.ref, one_token=bool((ids == ids[0]).all()))
            logits: Tensor = output.logits
            return logits[0, -keep:]  # all for 0

    def new_cache(self, *, whole: bool = False) -> Untyped:
        """An empty cache for `past`, of the kind that the target's layers need: transformers' own. A `whole` one keeps
        all tokens where a sliding window would do, so that it can be rolled back to any length."""
        return cache.new_cache(self.model.config, whole=whole)

    @cached_property
    def can_roll_back(self) -> bool:
        """Whether a whole cache can be rolled back: not with linear attention, which has one state for all tokens."""
        return self._cache_name is not None and cache.forgets_exactly(self.new_cache(whole=True))

    def roll_back(self, past: Untyped, length: int) -> None:
        """Cuts `past` back to its first `length` tokens, exactly. Raises CannotRunError where that cannot be: linear
        attention, or a window that was passed; InputsError for a length beyond what it has seen."""
        cache.roll_back(past, length, self.ref)

    def keep(self, past: Untyped, places: Tensor) -> None:
        """Leaves of the text in `past` the tokens at `places` int64 [n], rising: after branches, those of one path.
        Raises CannotRunError for layers other than of full attention."""
        cache.keep(past, places, self.ref)

    @torch.no_grad()
    def scores_from(self, state: Tensor) -> Tensor:
        """The final norm and the head over a state [T, hidden]: [T, vocab] on the CPU, before what a family may do to
        its logits behind the head."""
        with failures(self.ref):
            scores = self.parts.head(self.parts.norm(state[None].to(self._device)))
            whole = scores.full_tensor() if hasattr(scores, "full_tensor") else scores
            return torch.as_tensor(whole[0]).cpu()

    def greedy(self, input_ids: Ids, max_new_tokens: int, boundaries: Sequence[int]) -> Greedy:
        """The target's likeliest `max_new_tokens` tokens after `input_ids`, one at a time with a cache, and states.

        The choice is rank 0's for every rank: rounding must not part them. Raises what `forward_with_taps` raises.
        """
        past, given, tokens, states = self.new_cache(), input_ids, [], []
        for _ in range(whole_number(max_new_tokens, 1, "new tokens", self.ref)):
            logits, new = self.forward_with_taps(given, boundaries, past=past, logits_to_keep=1)
            given = self.ranks.same(logits[-1:].argmax(-1), self._device)
            tokens.append(given)
            states.append(new)
        return Greedy(torch.cat(tokens), torch.cat(states, dim=1))

    def _settings(self, past: Untyped, logits_to_keep: int) -> dict[str, Any]:
        settings: dict[str, Any] = {"use_cache": past is not None}
        if past is not None:
            if self._cache_name is None:
                raise CannotRunError("the model takes no cache", self.ref, "run it without one")
            if len(getattr(past, "layers", ())) != self._cache_layers:
                raise InputsError(f"a past that is a {type(past).__name__}", self.ref, "take it from new_cache")
            settings[self._cache_name] = past
        return settings | ({"logits_to_keep": logits_to_keep} if "logits_to_keep" in self._parameters else {})

    @cached_property
    def _parameters(self) -> frozenset[str]:
        return frozenset(inspect.signature(type(self.model).forward).parameters)

    @cached_property
    def _cache_layers(self) -> int:
        return len(self.new_cache().layers)

    @cached_property
    def _cache_name(self) -> str | None:
        return cache.name_in(self._parameters)

    @cached_property
    def _device(self) -> torch.device:
        """Where tokens go. An offloaded embedding is nowhere; accelerate then moves its inputs itself."""
        device: torch.device = self.parts.embedding.weight.device  # type: ignore[assignment]
        return torch.device("cpu") if device.type == "meta" else device


class _Kept:
    """A sink that copies each state to its place in one tensor on `device`, in the dtype that the states have."""

    def __init__(self, count: int, device: str) -> None:
        self._count, self._device = count, device
        self.states: Tensor | None = None

    def __call__(self, slot: int, state: Tensor) -> None:
        if self.states is None:
            self.states = torch.empty((self._count, *state.shape), dtype=state.dtype, device=self._device)
        self.states[slot].copy_(state)
