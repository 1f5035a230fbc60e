"""What `sweep` answers, as plain data: accept_len by step count, and which is worth most."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

from drafter_audit.decode.result import Provenance, Tie
from drafter_audit.measure.acceptance import Acceptance
from drafter_audit.measure.costs import StepCosts


@dataclass(frozen=True)
class SweepRow:
    """One step count. `ceiling` is what accept_len would be if the drafter were right wherever its vocabulary permits.

    `gain` is accept_len per step added to the row above; above the first row stand no steps and an accept_len of 1.
    """

    acceptance: Acceptance
    interval: tuple[float, float] | None
    ceiling: float | None
    gain: float
    cycle_ms: float | None
    tokens_per_s: float | None

    def to_dict(self) -> dict[str, Any]:
        told = self.acceptance.to_dict()
        return {
            **{name: told[name] for name in _OF_A_ROW},
            "interval": None if self.interval is None else list(self.interval),
            "ceiling": self.ceiling,
            "marginal_gain": self.gain,
            "cycle_ms": self.cycle_ms,
            "tokens_per_s": self.tokens_per_s,
        }


@dataclass(frozen=True)
class SweepResult:
    """`acceptances` by rising steps, one for each; `ceilings` beside them, empty where unknown.

    `costs` of a cycle are None where neither measured nor given; `costs_from` says where they are from.
    """

    provenance: Provenance
    acceptances: tuple[Acceptance, ...]
    ceilings: tuple[float, ...] = ()
    costs: StepCosts | None = None
    costs_from: str | None = None
    coverage: float | None = None
    ties: tuple[Tie, ...] = ()
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        steps = [acceptance.steps for acceptance in self.acceptances]
        if not steps or any(later <= earlier for earlier, later in pairwise(steps)):
            raise ValueError(f"a sweep has a row for each of rising step counts, not {steps}")
        if self.ceilings and len(self.ceilings) != len(steps):
            raise ValueError(f"{len(self.ceilings)} ceilings for {len(steps)} step counts")

    @cached_property
    def rows(self) -> tuple[SweepRow, ...]:
        return tuple(self._rows())

    @property
    def best(self) -> SweepRow | None:
        """The row with the most tokens per second, the fewer steps on a tie; None without costs."""
        if self.costs is None:
            return None
        best = self.costs.best_steps({a.steps: a.accept_len for a in self.acceptances})
        return next(row for row in self.rows if row.acceptance.steps == best)

    def to_dict(self) -> dict[str, Any]:
        return {
            **self.provenance.to_dict(),
            "rows": [row.to_dict() for row in self.rows],
            "best": self.best.to_dict() if self.best else None,
            "costs": {**self.costs.to_dict(), "from": self.costs_from} if self.costs else None,
            "coverage": self.coverage,
            "ties": [asdict(tie) for tie in self.ties],
            "notes": list(self.notes),
        }

    def _rows(self) -> Iterator[SweepRow]:
        from drafter_audit.measure.bootstrap import accept_len_interval

        steps, length = 0, 1.0
        for place, acceptance in enumerate(self.acceptances):
            yield SweepRow(
                acceptance,
                interval=accept_len_interval(acceptance, seed=self.provenance.seed),
                ceiling=self.ceilings[place] if self.ceilings else None,
                gain=(acceptance.accept_len - length) / (acceptance.steps - steps),
                cycle_ms=self.costs.cycle_ms(acceptance.steps) if self.costs else None,
                tokens_per_s=self.costs.tokens_per_s(acceptance.accept_len, acceptance.steps) if self.costs else None,
            )
            steps, length = acceptance.steps, acceptance.accept_len


_OF_A_ROW = (
    *("steps", "topk", "num_draft_tokens", "accept_len", "accept_len_request_mean", "rounds", "accepted", "drafted"),
    *("accept_rate", "tokens", "overshoot", "histogram", "per_position", "per_position_counts", "conditional"),
)
