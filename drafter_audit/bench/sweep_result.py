"""What a sweep over servers answers: its cells, the best of them, what a cycle costs, and what would help next."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from drafter_audit.bench.cells import Outcome
from drafter_audit.decode.result import Provenance
from drafter_audit.measure.cycle_fit import CycleFit, Lever, fit_cycle, levers
from drafter_audit.secrets import without_secret_values

WORTH_A_TRY = 1.03
"""The least gain of a lever that is advised: less lies within what a second run would change."""


@dataclass(frozen=True)
class EngineSweep:
    """`outcomes` of all cells, in order. `known` is accept_len by steps from a replay, where there is a recording."""

    engine: str
    provenance: Provenance
    outcomes: tuple[Outcome, ...]
    known: Mapping[int, float]
    what_if: tuple[float, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def rows(self) -> tuple[Outcome, ...]:
        """The cells with a drafter."""
        return tuple(outcome for outcome in self.outcomes if outcome.cell.steps)

    @property
    def plain(self) -> tuple[Outcome, ...]:
        """The baselines, one for each set of variables."""
        return tuple(outcome for outcome in self.outcomes if not outcome.cell.steps)

    @property
    def best(self) -> Outcome | None:
        """The cell with a drafter and the most tokens per second; None where none was measured."""
        return max(filter(_speed, self.rows), key=_speed, default=None)

    @property
    def best_plain(self) -> Outcome | None:
        return max(filter(_speed, self.plain), key=_speed, default=None)

    def plain_of(self, outcome: Outcome) -> Outcome | None:
        """The measured baseline with the same variables."""
        same = (each for each in self.plain if each.cell.env_set == outcome.cell.env_set)
        return next(filter(_speed, same), None)

    @cached_property
    def fit(self) -> CycleFit | None:
        """Of the cells with the best one's variables."""
        best = self.best
        if best is None:
            return None
        return fit_cycle({each.cell.steps: each.cycle_ms for each in self._beside(best) if each.cycle_ms is not None})

    @property
    def verify_share(self) -> float | None:
        """Of the best cell's cycle."""
        if self.fit is None or self.best is None:
            return None
        return self.fit.costs.verify_ms / self.fit.costs.cycle_ms(self.best.cell.steps)

    @property
    def break_even(self) -> float | None:
        """The accept_len at which the best cell is no faster than plain decoding: its cycle over a plain token."""
        plain = self.plain_of(self.best) if self.best else None
        if self.best is None or plain is None or self.best.cycle_ms is None:
            return None
        return self.best.cycle_ms * _speed(plain) / 1000

    @property
    def answers_to_what_if(self) -> tuple[tuple[float, float | None], ...]:
        """At the best cell's cycle; None where its rounds cannot emit so much."""
        best = self.best
        if best is None or best.cycle_ms is None:
            return ()
        cycle, most = best.cycle_ms, best.cell.steps + 1
        return tuple((value, 1000 * value / cycle if value <= most else None) for value in self.what_if)

    @cached_property
    def levers(self) -> tuple[Lever, ...]:
        """The strongest first; empty where too few cells were measured."""
        best = self.best
        if best is None or self.fit is None:
            return ()
        lengths = {**self.known, **{each.cell.steps: each.told("accept_len") for each in self._beside(best)}}
        lengths = {steps: length for steps, length in lengths.items() if length is not None}
        plain = self.plain_of(best)
        if best.cell.steps not in lengths:
            return ()
        return levers(self.fit.costs, lengths, best.cell.steps, 1000 / _speed(plain) if plain else None)

    @property
    def next_lever(self) -> Lever | None:
        """What to turn to next; None where nothing would gain by more than a run may vary."""
        strongest = next(iter(self.levers), None)
        if strongest is None or self.best is None or strongest.tokens_per_s < WORTH_A_TRY * _speed(self.best):
            return None
        return strongest

    @property
    def unmeasured(self) -> tuple[str, ...]:
        """Cells whose answers are no measure of a drafter, in words: most hit the cap or loop."""
        found = [(each.cell.words, each.told("unmeasured")) for each in self.outcomes]
        return tuple(f"{words}: {reason}" for words, reason in found if reason)

    def to_dict(self) -> dict[str, Any]:
        costs = None if self.fit is None else {**self.fit.costs.to_dict(), "off_ms": self.fit.off_ms}
        return {
            **self.provenance.to_dict(),
            "engine": (self.best.told("engine") if self.best else None) or {"name": self.engine},
            "rows": [row(outcome) for outcome in self.rows],
            "plain": [row(outcome) for outcome in self.plain],
            "best": None if self.best is None else row(self.best),
            "costs": costs,
            "verify_share": self.verify_share,
            "break_even_accept_len": self.break_even,
            "what_if": [{"accept_len": value, "tokens_per_s": worth} for value, worth in self.answers_to_what_if],
            "levers": [asdict(lever) for lever in self.levers],
            "next_lever": None if self.next_lever is None else self.next_lever.name,
            "unmeasured": list(self.unmeasured),
            "notes": list(self.notes),
        }

    def _beside(self, best: Outcome) -> Iterator[Outcome]:
        """The measured cells with the same variables."""
        return (row for row in self.rows if row.status == "done" and row.cell.env_set == best.cell.env_set)


def row(outcome: Outcome) -> dict[str, Any]:
    """A cell as a row of the JSON; what was not measured is null."""
    told = {name: outcome.told(name) for name in _OF_A_ROW}
    return {
        "env_set": outcome.cell.env_set.name,
        "env": without_secret_values(outcome.cell.env_set.env),
        **told,
        "steps": outcome.cell.steps,
        "interval": outcome.told("accept_len_interval"),
        "cycle_ms": outcome.cycle_ms,
        "start_s": outcome.start_s,
        "status": outcome.status,
        "reason": outcome.reason,
    }


def _speed(outcome: Outcome) -> float:
    """0 where it was not measured."""
    return outcome.tokens_per_s or 0.0


_OF_A_ROW = (
    *("steps", "topk", "num_draft_tokens", "accept_len", "accept_len_server", "accept_len_bounds", "rounds"),
    *("accepted", "drafted", "per_position", "tokens", "tokens_per_s", "tokens_per_s_interval"),
)
