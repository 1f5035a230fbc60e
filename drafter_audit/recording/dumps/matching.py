"""Which boundary each slot of a dump is, by a recording of the same tokens."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from drafter_audit.errors import InputsError
from drafter_audit.recording.dumps.dump import Dump
from drafter_audit.recording.recording import RecordedPrompt

LEAST_TOKENS = 4
FITS = 0.25
"""The largest relative error of a state that is still the boundary's: a target packed to 4 bits is off by some 10%."""

APART = 0.5
"""A boundary is told from the next best where its error is at most half of that one's: two neighbours of a deep target
differ by some 5 to 30%, the same one in two engines by less than 2%."""

SAME_NORM = 0.1
"""How far a norm ratio may lie from 1. A state behind a norm, or scaled, points the same way and is another."""


@dataclass(frozen=True)
class SlotMatch:
    """What slot `slot` is nearest to. `error`: |dumped - recorded| / |recorded|; `norm_ratio`: |dumped| / |recorded|;
    each the median over tokens. The runner-up is None where one boundary is recorded. `clear` says it is the slot's."""

    slot: int
    boundary: int
    error: float
    norm_ratio: float
    runner_up: int | None
    runner_up_error: float | None

    @property
    def clear(self) -> bool:
        apart = self.runner_up_error is None or self.error <= APART * self.runner_up_error
        return self.error <= FITS and apart and abs(self.norm_ratio - 1) <= SAME_NORM

    @property
    def text(self) -> str:
        figures = f"error {self.error:.2g}, norm ratio {self.norm_ratio:.3f}"
        other = "" if self.runner_up is None else f"; next is {self.runner_up}, error {self.runner_up_error:.2g}"
        said = "is" if self.clear else "is none of the recorded boundaries for certain, nearest is"
        return f"slot {self.slot} {said} boundary {self.boundary} ({figures}{other})"


def match_boundaries(dump: Dump, recorded: RecordedPrompt) -> tuple[SlotMatch, ...]:
    """The nearest recorded boundary of each slot, over the tokens with which both texts begin.

    Medians over tokens: the first token's state is often a thousand times the others', and equal at many boundaries.
    Raises InputsError where fewer than four tokens are shared, or states have another width.
    """
    if dump.states.shape[-1] != recorded.states.shape[-1]:
        what = f"states {dump.states.shape[-1]} wide and {recorded.states.shape[-1]}"
        raise InputsError(what, dump.where, "match it with a recording of its own target")
    shared = _shared(dump, recorded)
    if shared < LEAST_TOKENS:
        what = f"it begins with {shared} tokens of the recorded prompt {recorded.id!r}"
        raise InputsError(what, dump.where, f"record the dumped tokens ({LEAST_TOKENS} or more) as token_ids")
    theirs = recorded.states[:, :shared].double()
    return tuple(_match(slot, state[:shared].double(), theirs, recorded) for slot, state in enumerate(dump.states))


def _shared(dump: Dump, recorded: RecordedPrompt) -> int:
    """How many tokens both begin with that have states in both."""
    most = min(len(dump.tokens), recorded.states.shape[1])
    differ = (dump.tokens[:most] != recorded.tokens[:most]).nonzero()
    return int(differ[0]) if len(differ) else most


def _match(slot: int, state: Tensor, theirs: Tensor, recorded: RecordedPrompt) -> SlotMatch:
    norms = theirs.norm(dim=-1)
    tiny = torch.finfo(torch.float64).tiny
    errors = ((state - theirs).norm(dim=-1) / norms.clamp(min=tiny)).median(dim=-1).values
    ratios = (state.norm(dim=-1) / norms.clamp(min=tiny)).median(dim=-1).values
    best, *others = errors.argsort().tolist()
    return SlotMatch(
        slot=slot,
        boundary=recorded.boundaries[best],
        error=float(errors[best]),
        norm_ratio=float(ratios[best]),
        runner_up=recorded.boundaries[others[0]] if others else None,
        runner_up_error=float(errors[others[0]]) if others else None,
    )
