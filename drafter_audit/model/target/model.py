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
from drafter_audit.model.target.parts import Parts, Untyped
from drafter_audit.model.target.ranks import ALONE, Ranks, failures
from drafter_audit.model.target.taps import Sink, Taps, checked_boundaries

Ids = Tensor | Sequence[int]

_CACHES = ("cache", "past_key_values", "cache_params")
"""What a model's forward calls its cache: transformers 5.24 says `cache`, which was `past_key_values` before."""

_CHECKED = 8  # tokens of the self-check


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
    ) -> tuple[Tensor, Tensor]:
        """Logits [T, vocab] and states [boundaries, T, hidden] of one text, both on `to`, in the model's dtype.

        `input_ids` int [T]; `boundaries` within 0..L, in the order of the states: 0 is what the first layer is given
        (a scaled embedding is scaled), k what layer k-1 gives, L that before the final norm. Each state is copied to
        `to` as it comes, so the model's devices hold one at a time. With `past`, from `new_cache`, the tokens follow
        those that it has seen, and are added. `logits_to_keep` positions at the end, all for 0. Every rank calls it.
        Raises InputsError; CannotRunError for a boundary that does not come, states that are not finite, constant or
        all the same, and too little memory; RankError where another rank is gone.
        """
        asked = checked_boundaries(boundaries, self.num_layers)
        ids = self._ids(input_ids)
        kept = _Kept(len(asked), to)
        logits = self.forward_into(ids, asked, kept, past, logits_to_keep).to(to)
        return logits, logits.new_empty((0, len(ids), self.hidden_size)) if kept.states is None else kept.states

    @torch.no_grad()
    def forward_into(
        self, input_ids: Ids, boundaries: Sequence[int], sink: Sink, past: Untyped = None, logits_to_keep: int = 0
    ) -> Tensor:
        """As `forward_with_taps`, with each state given to `sink` as it comes; the logits stay on their device."""
        asked, ids = checked_boundaries(boundaries, self.num_layers), self._ids(input_ids)
        taps = Taps(self.parts.layers, asked, (len(ids), self.hidden_size), sink)
        with failures(self.ref), taps.listening():
            output = self.model(input_ids=ids[None].to(self._device), **self._settings(past, logits_to_keep))
            taps.check(self.ref)
            logits: Tensor = output.logits
            return logits[0]

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

    def check(self) -> None:
        """Whether the final norm and the head, over the tapped boundary L, give the target's own choices.

        Raises CannotRunError where they do not, which says at which boundary they would.
        """
        boundaries = range(self.num_layers + 1)
        logits, states = self.forward_with_taps(self._plain_ids(), boundaries)
        chosen = logits.argmax(-1)
        if torch.equal(self.chosen_from(states[-1]), chosen):
            return
        fitting = [str(b) for b in boundaries[:-1] if torch.equal(self.chosen_from(states[b]), chosen)]
        would = f"boundary {', '.join(fitting)} would" if fitting else "no boundary would"
        what = f"norm and head over boundary {self.num_layers} do not give the target's own tokens, {would}"
        raise CannotRunError(what, f"{self.ref}: {self.parts.path}", "its states are not to be trusted: report it")

    @torch.no_grad()
    def chosen_from(self, state: Tensor) -> Tensor:
        """The likeliest token [T] by the final norm and the head over a state [T, hidden], on the CPU."""
        with failures(self.ref):
            scores = self.parts.head(self.parts.norm(state[None].to(self._device)))
            whole = scores.full_tensor() if hasattr(scores, "full_tensor") else scores
            return torch.as_tensor(whole[0]).argmax(-1).cpu()

    def greedy(self, input_ids: Ids, max_new_tokens: int, boundaries: Sequence[int]) -> Greedy:
        """The target's likeliest `max_new_tokens` tokens after `input_ids`, one at a time with a cache, and states.

        The choice is rank 0's for every rank: rounding must not part them. Raises what `forward_with_taps` raises.
        """
        past, given, tokens, states = self.new_cache(), self._ids(input_ids), [], []
        for _ in range(max_new_tokens):
            logits, new = self.forward_with_taps(given, boundaries, past=past, logits_to_keep=1)
            given = self.ranks.same(logits[-1:].argmax(-1), self._device)
            tokens.append(given)
            states.append(new)
        if not tokens:
            raise InputsError(f"{max_new_tokens} new tokens", self.ref, "ask for at least one")
        return Greedy(torch.cat(tokens), torch.cat(states, dim=1))

    def _settings(self, past: Untyped, logits_to_keep: int) -> dict[str, Any]:
        settings: dict[str, Any] = {"use_cache": past is not None}
        if past is not None:
            if self._cache_name is None:
                raise CannotRunError("the model takes no cache", self.ref, "run it without one")
            settings[self._cache_name] = past
        return settings | ({"logits_to_keep": logits_to_keep} if "logits_to_keep" in self._parameters else {})

    @cached_property
    def _parameters(self) -> frozenset[str]:
        return frozenset(inspect.signature(type(self.model).forward).parameters)

    @cached_property
    def _cache_name(self) -> str | None:
        return next((name for name in _CACHES if name in self._parameters), None)

    def _ids(self, input_ids: Ids) -> Tensor:
        size = self.vocab_size
        mend = f"give one text of at least one token, ids below {size}"
        try:
            ids = torch.as_tensor(input_ids)
        except (TypeError, ValueError, RuntimeError) as error:
            raise InputsError(f"tokens in a {type(input_ids).__name__} that are no numbers", self.ref, mend) from error
        if ids.dim() != 1 or not len(ids) or int(ids.min()) < 0 or int(ids.max()) >= size:
            raise InputsError(f"tokens of shape {list(ids.shape)}", self.ref, mend)
        if ids.dtype == torch.bool or ids.is_floating_point():  # a cast would cut them, and say nothing
            raise InputsError(f"tokens of {ids.dtype}", self.ref, mend)
        return ids.long()

    def _plain_ids(self) -> Tensor:
        """A few different tokens, none that the config names: an image's placeholder is no text."""
        named = self.model.config.to_dict()
        ids = [value for key, value in named.items() if key.endswith(("token_id", "token_index"))]
        special = {i for value in ids for i in (value if isinstance(value, list) else [value])}
        plain = (i for i in range(3, self.vocab_size) if i not in special)
        return torch.tensor([i for i, _ in zip(plain, range(_CHECKED), strict=False)])

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
