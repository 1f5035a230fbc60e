"""What a round costs, and so what an accept_len is worth in tokens per second.

A cycle is what one round takes: verify, draft, extend and the rest. Rounds count whole, as in accept_len, so
tokens/s = accept_len / cycle. Prefill belongs to no round and is in none of these times.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from drafter_audit.errors import UsageError
from drafter_audit.measure.acceptance import Acceptance
from drafter_audit.measure.step_bounds import break_even, tokens_per_s_at

_PARTS = ("verify_s", "draft_s", "extend_s", "other_s")


@dataclass(frozen=True)
class Timing:
    """Seconds over all rounds of a run: the target's forwards, the drafter's steps, the recomputation of its cache from
    true states (which gives the first draft), and what is left. `plain_s` is what plain decoding by the same target
    took for `plain_tokens` tokens after the prefill, in the same run; None where it was not done. `prefill_s`, of the
    prompts in both models, is in no other time."""

    verify_s: float
    draft_s: float
    extend_s: float
    other_s: float
    plain_s: float | None = None
    plain_tokens: int | None = None
    prefill_s: float | None = None

    def __post_init__(self) -> None:
        parts = [getattr(self, name) for name in _PARTS]
        if not all(math.isfinite(part) and part >= 0 for part in parts) or not sum(parts):
            raise ValueError(f"times of rounds must be finite, not negative, and not all zero: {self}")
        plain = (self.plain_s, self.plain_tokens)
        if plain != (None, None) and not all(value and value > 0 for value in plain):
            raise ValueError(f"plain decoding takes both its seconds and its tokens: {self}")

    @property
    def total_s(self) -> float:
        return math.fsum(getattr(self, name) for name in _PARTS)

    @property
    def plain_tokens_per_s(self) -> float | None:
        return self.plain_tokens / self.plain_s if self.plain_s and self.plain_tokens else None

    def to_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


@dataclass(frozen=True)
class StepCosts:
    """A cycle as a function of the steps of a chain: one verification, and `draft_ms` for each draft token."""

    verify_ms: float
    draft_ms: float

    def __post_init__(self) -> None:
        if not (0 < self.verify_ms < math.inf and 0 <= self.draft_ms < math.inf):
            raise UsageError(
                f"costs of {self.verify_ms:g} ms to verify and {self.draft_ms:g} ms to draft are none",
                "--verify-ms, --draft-ms",
                "give milliseconds: of one verification above 0, of one draft step 0 or more",
            )

    def cycle_ms(self, steps: int) -> float:
        return self.verify_ms + steps * self.draft_ms

    def tokens_per_s(self, accept_len: float, steps: int) -> float:
        return 1000 * accept_len / self.cycle_ms(steps)

    def to_dict(self) -> dict[str, float]:
        return {"verify_ms": self.verify_ms, "draft_ms": self.draft_ms}


@dataclass(frozen=True)
class Costs:
    """What the rounds of `acceptance` took, and what follows."""

    acceptance: Acceptance
    timing: Timing

    @property
    def cycle_s(self) -> float:
        return self.timing.total_s / self.acceptance.rounds

    @property
    def tokens_per_s(self) -> float:
        return self.acceptance.accept_len / self.cycle_s

    @property
    def speedup(self) -> float | None:
        """Over plain decoding in the same run."""
        plain = self.timing.plain_tokens_per_s
        return None if plain is None else self.tokens_per_s / plain

    @property
    def break_even_accept_len(self) -> float | None:
        """The accept_len below which plain decoding is faster: a cycle over the time of a plain token."""
        plain = self.timing.plain_tokens_per_s
        return None if plain is None else break_even(self.acceptance.accept_len, self.tokens_per_s, plain)

    def what_if(self, accept_len: float) -> float:
        """Tokens per second at another accept_len, if a round takes as long as it was measured to take.

        Raises UsageError for one that no round of so many steps can reach, and for one below 1.
        """
        check_reachable(accept_len, self.acceptance.steps)
        return tokens_per_s_at(accept_len, measured=self.acceptance.accept_len, tokens_per_s=self.tokens_per_s)

    @property
    def per_step(self) -> StepCosts:
        """The same cycle as one verification and so many draft steps of a chain; the rest goes with the former."""
        rounds, timing = self.acceptance.rounds, self.timing
        return StepCosts(
            verify_ms=1000 * (timing.verify_s + timing.other_s) / rounds,
            draft_ms=1000 * (timing.draft_s + timing.extend_s) / (rounds * self.acceptance.steps),
        )

    def to_dict(self) -> dict[str, Any]:
        return {
            "timing": self.timing.to_dict(),
            "cycle_s": self.cycle_s,
            "tokens_per_s": self.tokens_per_s,
            "plain_tokens_per_s": self.timing.plain_tokens_per_s,
            "speedup": self.speedup,
            "break_even_accept_len": self.break_even_accept_len,
        }


def check_reachable(accept_len: float, steps: int) -> None:
    """Raises UsageError for an accept_len that no round of a chain of `steps` can have."""
    most = 1 + steps
    if not 1 <= accept_len <= most:
        told = f"{steps} step{'' if steps == 1 else 's'}"
        raise UsageError(
            f"accept_len {accept_len:g} cannot be had: a round of {told} emits 1 to {most} tokens",
            "--what-if",
            f"give a value from 1 to {most}, or measure with more --steps",
        )


NOT_MEASURED: Mapping[str, None] = dict.fromkeys(
    ("timing", "cycle_s", "tokens_per_s", "plain_tokens_per_s", "speedup", "break_even_accept_len")
)
"""The same fields where nothing was timed, as in a replay."""
