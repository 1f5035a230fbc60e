"""The one acceptance record: counts of rounds by what each accepted, with the identities that tie them together.

A round is one draft-and-verify step; S rounds accept A of D drafted tokens. accept_len = 1 + A/S, the target's own
token of each round included, pooled over rounds: as vLLM's log and EAGLE's tau have it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class PromptCounts:
    """What one prompt's answer took. `histogram[j]` rounds accepted exactly j drafts, j = 0..steps.

    `tokens` were emitted, the prefill's included; `overshoot` of what its last round emitted lies past the end.
    `capped` says that the answer hit the limit of tokens, `degenerate` that it loops.
    """

    id: str
    category: str | None
    tokens: int
    histogram: tuple[int, ...]
    overshoot: int
    capped: bool = False
    degenerate: bool = False

    def __post_init__(self) -> None:
        if (
            min((*self.histogram, self.overshoot)) < 0
            or self.tokens != 1 + self.accepted + self.rounds - self.overshoot
        ):
            raise ValueError(f"counts of prompt {self.id!r} do not fit together: {self}")

    @classmethod
    def of(
        cls,
        id: str,
        category: str | None,
        accepted: Sequence[int],
        *,
        steps: int,
        overshoot: int = 0,
        capped: bool = False,
        degenerate: bool = False,
    ) -> PromptCounts:
        """From the accepted drafts of each round, in order."""
        histogram = tuple(sum(a == j for a in accepted) for j in range(steps + 1))
        if sum(histogram) != len(accepted):
            raise ValueError(f"prompt {id!r}: a round accepted more than {steps} drafts or fewer than none")
        tokens = 1 + sum(accepted) + len(accepted) - overshoot
        return cls(id, category, tokens, histogram, overshoot, capped, degenerate)

    @property
    def rounds(self) -> int:
        return sum(self.histogram)

    @property
    def accepted(self) -> int:
        return sum(j * count for j, count in enumerate(self.histogram))
