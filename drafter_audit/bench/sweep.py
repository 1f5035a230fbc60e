"""A sweep over servers: each cell started, measured, kept; what cannot win any more is not started."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from drafter_audit.bench.cells import Cell, Outcome, Store
from drafter_audit.bench.result import EngineResult
from drafter_audit.errors import AuditError

Measure = Callable[[Cell], EngineResult]
Tell = Callable[[str], None]

CELL_S = 900.0
"""Taken for a cell before one was measured: a target of 1T parameters takes 12 to 15 minutes to load."""


@dataclass(frozen=True)
class Known:
    """accept_len by steps from a replay, known before any server starts; empty without a recording."""

    accept_len: Mapping[int, float]


def run_cells(cells: Sequence[Cell], store: Store, known: Known, measure: Measure, tell: Tell) -> tuple[Outcome, ...]:
    """How each cell ended, in order; each is on disk before the next begins. ^C passes through."""
    outcomes: list[Outcome] = []
    for place, cell in enumerate(cells):
        outcome = store.find(cell)
        if outcome is None:
            outcome = _skipped(cell, outcomes, known) or _measured(cell, measure)
            store.keep(outcome)
            tell(_line(outcome, left_s(cells[place + 1 :], store, outcomes=[*outcomes, outcome])))
        outcomes.append(outcome)
    return tuple(outcomes)


def left_s(cells: Sequence[Cell], store: Store, outcomes: Sequence[Outcome] = ()) -> float:
    """Seconds that the cells not on disk yet may take, by those that were measured; skips may make it less."""
    new = sum(store.find(cell) is None for cell in cells)
    took = [outcome.took_s for outcome in outcomes if outcome.status == "done" and outcome.took_s]
    return new * (sum(took) / len(took) if took else CELL_S)


def hopeless(cell: Cell, outcomes: Sequence[Outcome], known: Known) -> str | None:
    """Why a cell cannot be the best with a drafter any more, in words; None where it may be, or nothing is known.

    A cycle never gets shorter by more steps, so it takes at least as long as the longest measured one of fewer steps
    with the same variables; in that time it emits its known accept_len.
    """
    length = known.accept_len.get(cell.steps)
    if length is None:
        return None
    same = [o for o in outcomes if o.cell.env_set == cell.env_set and 0 < o.cell.steps < cell.steps]
    no_gain = [o.cell.steps for o in same if known.accept_len.get(o.cell.steps, 0.0) >= length and o.status != "failed"]
    if no_gain:
        return f"its accept_len of {length:.3f} in the replay is no more than that of {no_gain[0]} steps"
    cycles = [o.cycle_ms for o in same if o.cycle_ms]
    speeds = [o.tokens_per_s for o in outcomes if o.cell.steps and o.tokens_per_s]
    if not cycles or not speeds:
        return None
    most = 1000 * length / max(cycles)
    if most > max(speeds):
        return None
    return (
        f"at its accept_len of {length:.3f} in the replay and a cycle of {max(cycles):.1f} ms or more it emits at most "
        f"{most:.1f} tokens/s, and {max(speeds):.1f} were measured"
    )


def _skipped(cell: Cell, outcomes: Sequence[Outcome], known: Known) -> Outcome | None:
    reason = hopeless(cell, outcomes, known)
    return None if reason is None else Outcome(cell, "skipped", reason=f"not started: {reason}")


def _measured(cell: Cell, measure: Measure) -> Outcome:
    """A cell that fails is a row with its reason: the night goes on."""
    begun = time.monotonic()
    try:
        result = measure(cell)
    except AuditError as error:
        return Outcome(cell, "failed", reason=str(error), took_s=time.monotonic() - begun)
    took = time.monotonic() - begun
    if result.no_speed is not None:
        return Outcome(cell, "failed", reason=result.no_speed, took_s=took)
    return Outcome(cell, "done", result.to_dict(), start_s=result.engine.start_s, took_s=took)


def _line(outcome: Outcome, left: float) -> str:
    speed = outcome.tokens_per_s
    told = outcome.reason or f"{speed:.1f} tokens/s"
    return f"{outcome.cell.words}: {told}; up to {duration(left)} left" if left else f"{outcome.cell.words}: {told}"


def duration(seconds: float) -> str:
    """In the two largest units.

    >>> duration(45), duration(8100)
    ('45 s', '2 h 15 min')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
