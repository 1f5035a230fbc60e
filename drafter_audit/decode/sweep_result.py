"""What `sweep` answers, as plain data: accept_len by the shape of a round, and which is worth most."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

from drafter_audit.decode.result import Provenance, Tie
from drafter_audit.measure.acceptance import Acceptance
from drafter_audit.measure.costs import StepCosts
from drafter_audit.measure.shape import Shape


@dataclass(frozen=True)
class SweepRow:
    """One shape of a round. `ceiling` is what accept_len would be if the drafter were right wherever its vocabulary
    permits.

    `gain` is accept_len per step added to the row above, which is of the same top-k and as many tokens verified, or
    also a chain; above the first of them stand no steps and an accept_len of 1.
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
    """`acceptances` in the order of `place_of`, one for each shape; `ceilings` beside them, empty where unknown.

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
        places = [place_of(acceptance) for acceptance in self.acceptances]
        if not places or any(later <= earlier for earlier, later in pairwise(places)):
            raise ValueError(f"a sweep has a row for each of rising step counts, by top-k and tokens, not {places}")
        if self.ceilings and len(self.ceilings) != len(places):
            raise ValueError(f"{len(self.ceilings)} ceilings for {len(places)} step counts")

    @cached_property
    def rows(self) -> tuple[SweepRow, ...]:
        return tuple(self._rows())

    @property
    def best(self) -> SweepRow | None:
        """The row with the most tokens per second, on a tie the fewer steps and tokens; None without costs."""
        if self.costs is None:
            return None
        return max(self.rows, key=lambda row: (row.tokens_per_s or 0.0, -row.acceptance.steps, -_verified(row)))

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

        kind, steps, length = (0, 0), 0, 1.0
        for place, acceptance in enumerate(self.acceptances):
            if place_of(acceptance)[:2] != kind:
                kind, steps, length = place_of(acceptance)[:2], 0, 1.0
            yield SweepRow(
                acceptance,
                interval=accept_len_interval(acceptance, seed=self.provenance.seed),
                ceiling=self.ceilings[place] if self.ceilings else None,
                gain=(acceptance.accept_len - length) / (acceptance.steps - steps),
                cycle_ms=self.costs.cycle_ms(acceptance.steps) if self.costs else None,
                tokens_per_s=self.costs.tokens_per_s(acceptance.accept_len, acceptance.steps) if self.costs else None,
            )
            steps, length = acceptance.steps, acceptance.accept_len


def place_of(shape: Shape | Acceptance) -> tuple[int, int, int]:
    """By which rows are ordered: top-k, tokens verified (0 for chains, where steps tell them), steps."""
    return shape.topk, 0 if shape.topk == 1 else shape.num_draft_tokens or 0, shape.steps


def _verified(row: SweepRow) -> int:
    return row.acceptance.num_draft_tokens or 0


_OF_A_ROW = (
    *("steps", "topk", "num_draft_tokens", "accept_len", "accept_len_request_mean", "rounds", "accepted", "drafted"),
    *("accept_rate", "tokens", "overshoot", "histogram", "per_position", "per_position_counts", "conditional"),
)
