"""What cells of a sweep say together: the cost of a verification and of a draft step, and what would help most.

A cycle of k steps is taken as verify + k * draft (`StepCosts`): the line through the measured cycles with the least
squares. A verification is taken as costing the same for every k, as `costs.py` says where that holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from drafter_audit.measure.costs import StepCosts

LeverName = Literal["steps", "communication", "drafter"]


@dataclass(frozen=True)
class CycleFit:
    """`costs` and how far the farthest measured cycle lies from them, in milliseconds."""

    costs: StepCosts
    off_ms: float
    cells: int


def fit_cycle(cycle_ms: Mapping[int, float]) -> CycleFit | None:
    """From the measured cycle of each step count; None for fewer than two, or where no such line has a cost to verify.

    >>> fit_cycle({1: 22.0, 2: 23.0, 4: 25.0}).costs
    StepCosts(verify_ms=21.0, draft_ms=1.0)
    """
    if len(cycle_ms) < 2:
        return None
    mean_steps, mean_ms = sum(cycle_ms) / len(cycle_ms), sum(cycle_ms.values()) / len(cycle_ms)
    spread = sum((steps - mean_steps) ** 2 for steps in cycle_ms)
    slope = sum((steps - mean_steps) * (ms - mean_ms) for steps, ms in cycle_ms.items()) / spread
    draft = max(0.0, slope)  # noise may let a longer chain look cheaper
    verify = mean_ms - draft * mean_steps
    if verify <= 0:
        return None
    costs = StepCosts(verify_ms=verify, draft_ms=draft)
    return CycleFit(costs, max(abs(costs.cycle_ms(steps) - ms) for steps, ms in cycle_ms.items()), len(cycle_ms))


@dataclass(frozen=True)
class Lever:
    """The most that one change could bring, in tokens per second, with all else as it is."""

    name: LeverName
    tokens_per_s: float


def levers(costs: StepCosts, accept_len: Mapping[int, float], steps: int, plain_ms: float | None) -> tuple[Lever, ...]:
    """Of a chain of `steps` at these costs, the strongest first.

    - steps: the best of the step counts whose `accept_len` is known;
    - communication: a verification that takes as long as one plain token, where that is shorter; what a verification
      takes beyond that is spent on moving more tokens through the same weights and links;
    - drafter: every draft accepted, which no drafter reaches.
    """
    length = accept_len[steps]
    found = [
        Lever("steps", max(costs.tokens_per_s(each, count) for count, each in accept_len.items())),
        Lever("drafter", costs.tokens_per_s(steps + 1, steps)),
    ]
    if plain_ms is not None and 0 < plain_ms < costs.verify_ms:
        cheaper = StepCosts(verify_ms=plain_ms, draft_ms=costs.draft_ms)
        found.append(Lever("communication", cheaper.tokens_per_s(length, steps)))
    return tuple(sorted(found, key=lambda lever: -lever.tokens_per_s))
