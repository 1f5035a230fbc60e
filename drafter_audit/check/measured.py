"""Figures of a replay or a live run held to their bars, each by the interval of its prompts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from drafter_audit.check.row import Outcome, Row
from drafter_audit.measure.bars import LEAST_PROMPTS, standing
from drafter_audit.measure.loops import why_not_measured

if TYPE_CHECKING:
    from drafter_audit.decode.result import DecodeResult
    from drafter_audit.measure.bootstrap import Interval

_OUTCOMES: dict[str, Outcome] = {"above": "pass", "below": "fail", "unsure": "unmeasured"}


def held(result: DecodeResult, rows: Sequence[Row]) -> Iterator[Row]:
    """accept_len and the positions among `rows`."""
    broken = why_not_measured(result.acceptance.per_prompt)
    for row in rows:
        figure, interval = _figure(result, row)
        if broken is not None:
            yield replace(row, observed=figure, interval=interval, reason=broken)
        else:
            told = against(row, figure, interval, _prompts(result))
            yield replace(told, details=_details(result) if row.key == "min_accept_len" else {})


def against(row: Row, figure: float, interval: Interval | None, prompts: int) -> Row:
    """`row` with the figure that was observed, and on which side of its bound that is."""
    found = standing(figure, interval, row.bound, prompts)
    reason = _reason(row, figure, interval, prompts, found.place, found.needed)
    return replace(row, outcome=_OUTCOMES[found.place], observed=figure, interval=interval, reason=reason)


def _figure(result: DecodeResult, row: Row) -> tuple[float, Interval | None]:
    if row.key == "min_accept_len":
        return result.acceptance.accept_len, result.interval
    from drafter_audit.measure.bootstrap import ratio_interval

    place = int(row.check.rpartition(" ")[2])
    answers = [prompt for prompt in result.acceptance.per_prompt if prompt.rounds]
    reached = [sum(prompt.histogram[place:]) for prompt in answers]
    rounds = [prompt.rounds for prompt in answers]
    return sum(reached) / sum(rounds), ratio_interval(reached, rounds, seed=result.provenance.seed)


def _prompts(result: DecodeResult) -> int:
    return sum(prompt.rounds > 0 for prompt in result.acceptance.per_prompt)


def _reason(row: Row, figure: float, interval: Interval | None, prompts: int, place: str, needed: int | None) -> str:
    within = "" if interval is None else f" [{interval[0]:.3f}, {interval[1]:.3f}]"
    told = f"{figure:.3f}{within} over {prompts} prompts"
    if place == "above":
        return f"{told}, at least {row.bound:g}"
    if place == "below":
        return f"{told}, below {row.bound:g}"
    if prompts < LEAST_PROMPTS:
        return f"{told}: fewer than {LEAST_PROMPTS} prompts that took rounds tell nothing"
    many = "no number of prompts would" if needed is None else f"about {needed} prompts would"
    return f"{told}: on which side of {row.bound:g} they do not tell, {many}"


def _details(result: DecodeResult) -> dict[str, Any]:
    acceptance, made = result.acceptance, result.provenance
    return {
        "per_position": list(acceptance.per_position or ()),
        "rounds": acceptance.rounds,
        "accepted": acceptance.accepted,
        "steps": acceptance.steps,
        "provenance": made.to_dict(),
        "notes": list(result.notes),
    }
