"""Where a gap between an engine and the reference loop opens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from drafter_audit.bench.wire import Answer
from drafter_audit.decode.reference import ReferencePrompt

if TYPE_CHECKING:
    from drafter_audit.measure.bootstrap import Difference, Ratio

Pairs = Sequence[tuple[Answer, ReferencePrompt]]
"""The engine's answer and the reference's, a prompt each."""


@dataclass(frozen=True)
class Opening:
    """Where a gap opens: the first draft `position`, from 0, whose share of accepted drafts differs; the first request
    whose rounds differ though they must not, and its first such `round`, from 0, None where rounds are not told."""

    position: int | None = None
    rates: tuple[float, float] | None = None
    rate_difference: Difference | None = None
    request: str | None = None
    round: int | None = None
    emitted: tuple[int, int] | None = None

    def to_dict(self) -> dict[str, Any]:
        engine, reference = self.rates or (None, None)
        ours, theirs = self.emitted or (None, None)
        return {
            "position": self.position,
            "engine_rate": engine,
            "reference_rate": reference,
            "rate_interval": interval_of(self.rate_difference),
            "request": self.request,
            "round": self.round,
            "engine_emitted": ours,
            "reference_emitted": theirs,
        }


def opening(pairs: Pairs, steps: int, *, greedy: bool, seed: int) -> Opening | None:
    """None where nothing differs."""
    found = {**_position(pairs, steps, seed), **(_request(pairs) if greedy else {})}
    return Opening(**found) if found else None


def less(a: Sequence[Ratio], b: Sequence[Ratio], seed: int) -> Difference | None:
    """The ratio of `b` less that of `a`, paired; None where no prompt has both."""
    from drafter_audit.measure.bootstrap import ratio_difference

    both = any(one[1] and other[1] for one, other in zip(a, b, strict=True))
    return ratio_difference(a, b, seed=seed) if both else None


def _position(pairs: Pairs, steps: int, seed: int) -> dict[str, Any]:
    """The first draft position whose rates differ by more than chance makes them."""
    histograms = [(a.counts.histogram, p.counts.histogram) for a, p in pairs if a.counts and a.counts.histogram]
    for place in range(steps if len(histograms) == len(pairs) else 0):
        ours, theirs = ([_reached(pair[side], place) for pair in histograms] for side in (0, 1))
        found = less(theirs, ours, seed)
        if found is not None and found.is_sure:
            return {"position": place, "rates": (_share(ours), _share(theirs)), "rate_difference": found}
    return {}


def _request(pairs: Pairs) -> dict[str, Any]:
    """The first request that must be the same and is not."""
    for answer, prompt in pairs:
        if prompt.is_exact and answer.ids == prompt.ids and not counts_agree(answer, prompt):
            return {"request": answer.id, **dict(_first_round(answer, prompt))}
    return {}


def _first_round(answer: Answer, prompt: ReferencePrompt) -> Iterator[tuple[str, Any]]:
    if answer.rounds is not None:
        place = parted(answer.rounds, prompt.emitted)
        last = len(prompt.emitted) - 1
        yield "round", last if place is None else place
        if place is not None and place < min(len(answer.rounds), len(prompt.emitted)):
            yield "emitted", (answer.rounds[place], prompt.emitted[place])


def parted(one: Sequence[int] | None, other: Sequence[int]) -> int | None:
    """Where two sequences first differ; None where they are the same."""
    one = one or ()
    for place, (ours, theirs) in enumerate(zip(one, other, strict=False)):
        if ours != theirs:
            return place
    return None if len(one) == len(other) else min(len(one), len(other))


def counts_agree(answer: Answer, prompt: ReferencePrompt) -> bool:
    """As far as the engine tells them."""
    told, counts = answer.counts, prompt.counts
    if told is None or told.rounds != counts.rounds or answer.tokens != counts.tokens:
        return False
    padded = None if told.histogram is None else (*told.histogram, *[0] * (len(counts.histogram) - len(told.histogram)))
    return told.accepted in (None, counts.accepted) and padded in (None, counts.histogram)


def _reached(histogram: Sequence[int], place: int) -> Ratio:
    """Rounds that accepted more than `place` drafts, and all."""
    return sum(histogram[place + 1 :]), sum(histogram)


def _share(ratios: Sequence[Ratio]) -> float:
    return sum(one for one, _ in ratios) / sum(of for _, of in ratios)


def interval_of(found: Difference | None) -> list[float] | None:
    """As JSON has it."""
    return None if found is None or found.interval is None else list(found.interval)
