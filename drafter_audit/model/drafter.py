"""A drafter that runs: all positions at once for some steps, or step by step beside a text that grows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from drafter_audit.drafter.spec import DrafterSpec
from drafter_audit.drafter.wiring import Wiring
from drafter_audit.errors import CannotRunError, InputsError
from drafter_audit.model.beams import Beams, Drafting
from drafter_audit.model.inputs import Ids, as_tensor, beam_count, positions_of, states_of, step_count, token_ids
from drafter_audit.model.layers import Attend, Linear
from drafter_audit.model.memory import Branched, KeyValues, Unrolled
from drafter_audit.model.network import Network
from drafter_audit.model.report import LoadReport
from drafter_audit.model.trees import Candidates, Likeliest, grown, likeliest

_ROWS = 256
"""Positions whose logits are computed at a time."""


@dataclass(frozen=True)
class _Tip:
    """Where the next step sets out: the newest token [1], the hidden input it leads on from [1, hidden], and what the
    head gave there [draft_vocab]."""

    token: Tensor
    hidden: Tensor
    logits: Tensor


class DrafterCache:
    """A text as the drafter has seen it: `length` positions of true target states, `drafted` steps beyond them."""

    def __init__(self) -> None:
        self.length = 0
        self.drafted = 0
        self._memory = KeyValues()
        self._true: _Tip | None = None  # at the last true position, and at the last step
        self._newest: _Tip | None = None

    def rewind(self) -> None:
        """Drops what was drafted: the text ends at its last true position again."""
        self.drafted, self._memory.length, self._newest = 0, self.length, self._true


@dataclass(frozen=True, repr=False)
class Drafter:
    """A network, the wiring it was built by, and what became of the file's tensors.

    `d2t` [draft_vocab] maps ids where `wiring.vocab_map` says so, None where draft ids are the target's. `states_shape`
    is (slots, width) of the target's states.
    """

    spec: DrafterSpec
    wiring: Wiring
    loaded: LoadReport
    network: Network
    d2t: Tensor | None
    states_shape: tuple[int, int]

    @property
    def device(self) -> torch.device:
        return self.network.embedding.device

    @torch.no_grad()
    def unroll(self, input_ids: Ids, states: Tensor, steps: int, *, positions: Ids | None = None) -> Tensor:
        """`steps` draft steps from every position at once.

        `input_ids` int [T]: the token paired with each state, one ahead of the state's own. `states` [n_slots, T,
        target_hidden], in slot order. `positions` int [T] for rope, 0.. where they are not given.

        Step k pairs position t with token input_ids[t+k] (zero past the end) and with step k-1's feedback at t; its
        query sees step 0's keys at positions <= t and those of steps 1..k at t alone, and turns by t+k: what a round of
        drafting computes that starts at t and has its first k tokens right. Returns float32 [steps, T, draft_vocab].
        Raises InputsError, CannotRunError.
        """
        steps, (ids, states) = step_count(steps, self.spec.name), self._checked(input_ids, states)
        places = positions_of(positions, len(ids), ids.device, self.spec.name)
        if not len(ids):
            return torch.zeros((steps, 0, self.network.head.weight.shape[0]), device=ids.device)
        self.check_window(len(ids) + steps - 1)
        memory, hidden = Unrolled(), self.network.fuse(states)
        logits = torch.empty((steps, len(ids), len(self.network.head.weight)), device=ids.device)
        for step in range(steps):
            tokens = _shifted(ids, step + self.wiring.token_shift - 1)
            turned = places + step + self.wiring.position_offset
            read, hidden = self.network.step(tokens, hidden, turned, memory.of)
            _write(self.network.head, read, logits[step])
        return logits

    def start(self) -> DrafterCache:
        """An empty text. Raises CannotRunError where the wiring reads tokens that are not there yet."""
        if self.wiring.token_shift not in (0, 1):
            what = f"token_shift {self.wiring.token_shift} cannot be run step by step"
            raise CannotRunError(what, self.spec.name, "use unroll, or a shift of 0 or 1")
        return DrafterCache()

    @torch.no_grad()
    def extend(self, cache: DrafterCache, input_ids: Ids, states: Tensor, *, logits_to_keep: int = 0) -> Tensor:
        """The text goes on by n true positions; what was drafted beyond it is dropped first.

        `input_ids` int [n] and `states` [n_slots, n, target_hidden] as in `unroll`. Returns float32 [n, draft_vocab],
        or of the last `logits_to_keep` positions: the last row are the first draft step's logits. Raises InputsError,
        CannotRunError.
        """
        ids, states = self._checked(input_ids, states)
        if not len(ids):
            raise InputsError("no token", self.spec.name, "extend by one position or more")
        self.check_window(cache.length + len(ids))  # before anything is dropped: what is refused changes nothing
        cache.rewind()
        before = ids.new_zeros(1) if cache._true is None else cache._true.token
        tokens = ids if self.wiring.token_shift else torch.cat((before, ids[:-1]))
        logits = self._step(cache, tokens, self.network.fuse(states), ids[-1:], logits_to_keep)
        cache.length += len(ids)
        cache._true = cache._newest
        return logits

    @torch.no_grad()
    def draft(self, cache: DrafterCache, token: int) -> Tensor:
        """One draft step further, `token` being the target id that the step before drafted.

        Returns float32 [draft_vocab]. Raises InputsError before the first `extend`.
        """
        return self._draft(cache, self._tip(cache), self._ids([token]))

    @torch.no_grad()
    def chain(self, cache: DrafterCache, steps: int) -> Tensor:
        """The likeliest token of each of `steps` draft steps from the last true position, each step reading the token
        before; what was drafted before is dropped.

        Returns target ids int64 [steps] on the drafter's device, which no step waits for. Raises InputsError before the
        first `extend`, CannotRunError.
        """
        steps = step_count(steps, self.spec.name)
        cache.rewind()
        drafts = [self._likeliest(self._tip(cache).logits)]
        while len(drafts) < steps:
            drafts.append(self._likeliest(self._draft(cache, self._tip(cache), drafts[-1])))
        return torch.cat(drafts)

    @torch.no_grad()
    def branches(self, cache: DrafterCache, steps: int, topk: int) -> Candidates:
        """What `steps` steps of trees draft from the last true position, one start of it; what was drafted before is
        dropped, and so is this. On the drafter's device. Raises InputsError before the first `extend` and for more
        beams than it has drafts, CannotRunError."""
        steps, topk = step_count(steps, self.spec.name), beam_count(topk, len(self.network.head.weight), self.spec.name)
        self.check_window(cache.length + steps - 1)
        cache.rewind()
        tip, places = self._tip(cache), torch.tensor([cache.length + self.wiring.position_offset], device=self.device)
        beams = Beams(self.drafting, tip.token, tip.hidden, places, Branched(cache._memory).branch)
        first = likeliest(tip.logits[None], topk)
        found = grown(Likeliest(self._mapped(first.ids), first.log_probs, first.gaps), beams, steps)
        cache.rewind()
        return found

    @property
    def drafting(self) -> Drafting:
        """What trees are drafted by."""
        return Drafting(self.network, self._mapped, bool(self.wiring.token_shift))

    def target_ids(self, draft_ids: Ids) -> Tensor:
        """The target's ids for draft ids of any shape, by `wiring.vocab_map`. Raises InputsError."""
        given, rows = as_tensor(draft_ids, "draft ids", self.spec.name), self.network.head.weight.shape[0]
        flat = token_ids(given.reshape(-1), rows, self.network.embedding.device, self.spec.name)
        return self._mapped(flat.reshape(given.shape))

    def __repr__(self) -> str:
        slots, width = self.states_shape
        return f"Drafter({self.spec.ref!r}, {self.spec.kind.name}, {slots} states of {width}, {self.loaded.dtype})"

    def to_dict(self) -> dict[str, Any]:
        return {"ref": self.spec.ref, "kind": self.spec.kind.name, "loaded": self.loaded.to_dict()}

    def _mapped(self, ids: Tensor) -> Tensor:
        if self.d2t is None:
            return ids
        return self.d2t[ids] + (ids if self.wiring.vocab_map == "offset" else 0)

    def _likeliest(self, logits: Tensor) -> Tensor:
        """[draft_vocab] -> the target's id [1]."""
        return self._mapped(logits.argmax(dim=-1, keepdim=True))

    def _tip(self, cache: DrafterCache) -> _Tip:
        if cache._newest is None:
            raise InputsError("nothing to draft from", self.spec.name, "extend the cache by true states first")
        return cache._newest

    def _draft(self, cache: DrafterCache, tip: _Tip, newest: Tensor) -> Tensor:
        logits = self._step(cache, newest if self.wiring.token_shift else tip.token, tip.hidden, newest, 1)
        cache.drafted += 1
        return logits[0]

    def _step(self, cache: DrafterCache, tokens: Tensor, hidden: Tensor, newest: Tensor, keep: int) -> Tensor:
        """One step at T positions after those in the cache, which then ends with `newest`. Logits of the last `keep`
        positions, of all for 0."""
        memory = cache._memory
        start = memory.length
        self.check_window(start + len(tokens))
        places = torch.arange(start, start + len(tokens), device=tokens.device) + self.wiring.position_offset
        attend: Callable[[int], Attend] = memory.of
        read, feedback = self.network.step(tokens, hidden, places, attend)
        memory.length += len(tokens)
        kept = read[-keep:]
        logits = torch.empty((len(kept), len(self.network.head.weight)), device=tokens.device)
        _write(self.network.head, kept, logits)
        cache._newest = _Tip(newest, feedback[-1:], logits[-1])
        return logits

    def _checked(self, input_ids: Ids, states: Tensor) -> tuple[Tensor, Tensor]:
        ids, (slots, width) = self._ids(input_ids), self.states_shape
        return ids, states_of(states, (slots, len(ids), width), self.network.embedding, self.spec.name)

    def _ids(self, ids: Ids) -> Tensor:
        embedding = self.network.embedding
        return token_ids(ids, embedding.shape[0], embedding.device, self.spec.name)

    def check_window(self, length: int) -> None:
        """Raises CannotRunError for more positions than a sliding window holds."""
        window = self.spec.architecture.sliding_window
        if window is not None and length > window:
            what = f"{length} positions under a sliding window of {window}, which is not run"
            raise CannotRunError(what, self.spec.name, f"pass texts of up to {window} positions, drafts included")


def _write(head: Linear, read: Tensor, logits: Tensor) -> None:
    """The head's values [T, draft_vocab] into `logits`, some rows at a time: they are the largest tensor by far, and no
    second copy of them is made."""
    for start in range(0, len(read), _ROWS):
        logits[start : start + _ROWS] = head(read[start : start + _ROWS])


def _shifted(ids: Tensor, by: int) -> Tensor:
    """ids[t + by] for each t, zero where there is none."""
    places = torch.arange(len(ids), device=ids.device) + by
    inside = (places >= 0) & (places < len(ids))
    return torch.where(inside, ids[places.clamp(0, max(len(ids) - 1, 0))], 0)
