"""How drafts are accepted: by step, by category of prompts, by absolute position; and what training promised.

Plain data, no torch: `profiled.py` measures it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import accumulate
from operator import mul
from typing import Any

from drafter_audit.wiring.result import Interval, listed


@dataclass(frozen=True)
class Group:
    """accept_len over every answer position of a group as a round's start. `name` is a category, or positions
    "128-255" of the text, prompt included."""

    name: str
    starts: int
    accept_len: float

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, "starts": self.starts, "accept_len": self.accept_len}


@dataclass(frozen=True)
class Astray:
    """Of the `frequent` tokens of the answers, those in whose place one and the same other token is drafted nearly
    always, and that one nearly nowhere else: rows of the head that stand for other tokens than their ids do. `examples`
    are pairs of target ids, the token and what is drafted in its place."""

    frequent: int
    tokens: int
    examples: tuple[tuple[int, int], ...]

    def to_dict(self) -> dict[str, Any]:
        return {"frequent": self.frequent, "tokens": self.tokens, "examples": [list(pair) for pair in self.examples]}


@dataclass(frozen=True)
class Profile:
    """Of one wiring, in rounds as a live loop runs them.

    `teacher_forced[k]` is the share of drafts k that are right where the k tokens before are the target's own, at every
    position of the answers; `free_running[k]` the share of rounds that accepted all k before and accept this one too,
    None where none did. `ceiling` is the accept_len of a drafter that is right wherever its vocabulary has the token,
    `coverage` the share of the answers' tokens that it has. `reach` is the draft's max positions, None if undeclared.
    """

    accept_len: float
    interval: Interval | None
    rounds: int
    teacher_forced: tuple[float, ...]
    free_running: tuple[float | None, ...]
    coverage: float
    ceiling: float
    categories: tuple[Group, ...]
    positions: tuple[Group, ...]
    reach: int | None
    astray: Astray

    def to_dict(self) -> dict[str, Any]:
        told = {each.name: listed(getattr(self, each.name)) for each in fields(self)}
        groups = {name: [group.to_dict() for group in getattr(self, name)] for name in ("categories", "positions")}
        return told | groups | {"astray": self.astray.to_dict()}


def promised(accuracies: Sequence[float]) -> float:
    """The accept_len of a drafter whose step k is right with that probability where all before were: one token of the
    target's own, and each draft that is reached.

    >>> promised([0.5, 0.5])
    1.75
    """
    return 1.0 + sum(map(float, accumulate(accuracies, mul)))
