"""An engine beside the reference loop, in sentences: the verdict's reasons, then where a gap opens."""

from __future__ import annotations

from collections.abc import Iterator

from drafter_audit.bench.opening import Opening
from drafter_audit.bench.reference import Beside
from drafter_audit.report.numbers import count, figure, interval, share


def reference_lines(beside: Beside) -> Iterator[str]:
    yield from beside.reasons
    if beside.reference is None:
        return
    within = f", 95% interval {interval(beside.interval)}" if beside.interval else ""
    yield f"the reference loop reaches accept_len {figure(beside.accept_len)}{within}, on {beside.recording}"
    if not beside.tells_accepted:
        yield "the engine does not tell what was accepted: tokens per round, N/S, were compared on both sides"
    yield from _opening(beside.opens_at) if beside.opens_at else ()
    yield from _answers(beside)
    yield from beside.reference.notes


def _opening(opening: Opening) -> Iterator[str]:
    if opening.position is not None and opening.rates:
        ours, theirs = opening.rates
        rates = f"{share(ours)} of rounds accept it, {share(theirs)} in the reference"
        yield f"the gap opens at draft position {opening.position} (the first is 0): {rates}"
    if opening.request is not None:
        where = f"in its round {opening.round} (the first is 0)" if opening.round is not None else "somewhere"
        emitted = (
            ""
            if opening.emitted is None
            else ", which emitted {} tokens and must have emitted {}".format(*opening.emitted)
        )
        told = "the first request that parts, its text the same and nothing near a tie"
        yield f"{told}: {opening.request}, {where}{emitted}"


def _answers(beside: Beside) -> Iterator[str]:
    total = len(beside.result.answers)
    text = f"{count(beside.same_text)} of {count(total)} answers are the recorded ones, token by token"
    yield f"{text}; {count(beside.same_counts)} took the very rounds"
