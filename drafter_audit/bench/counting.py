"""Answers become an acceptance record, as far as the engine's own counts go: nothing is made up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from drafter_audit.bench.metrics import Counters
from drafter_audit.bench.wire import Answer, Counts
from drafter_audit.errors import ServerError
from drafter_audit.measure.acceptance import Acceptance, PromptCounts
from drafter_audit.measure.shape import Shape

DEFINITION = "1 + A/S"
SERVER_DEFINITION = "N/S: emitted tokens per round, those of the prefill included, cut at the end"
_NO_ROUND = "see in its log whether it speculates"
_CONTRADICTION = "use a release of the engine whose counts hold, and report it to the engine"


@dataclass(frozen=True)
class Counted:
    """What a run counted, in rounds of `shape`, None for plain decoding. `acceptance` is None where the engine tells
    rounds and tokens alone; `notes` say what was not told."""

    shape: Shape | None
    answers: tuple[Answer, ...]
    acceptance: Acceptance | None
    notes: tuple[str, ...] = ()

    @property
    def steps(self) -> int:
        """0 for plain decoding."""
        return self.shape.steps if self.shape else 0

    @property
    def verified(self) -> int:
        """Tokens that one pass of the target verifies."""
        return self.shape.num_draft_tokens if self.shape else 1

    @property
    def rounds(self) -> int:
        return sum(answer.counts.rounds for answer in self.answers if answer.counts)

    @property
    def tokens(self) -> int:
        return sum(answer.tokens for answer in self.answers)

    @property
    def accept_len_server(self) -> float | None:
        """N/S, as SGLang calls an accept length; None for plain decoding."""
        return self.tokens / self.rounds if self.rounds else None

    @property
    def bounds(self) -> tuple[float, float] | None:
        """What 1 + A/S lies between where only N/S is told: each answer's last round passed its end by 0 to k."""
        if not self.rounds:
            return None
        least = (self.tokens - len(self.answers)) / self.rounds
        most = least + self.steps * len(self.answers) / self.rounds
        return max(1.0, least), min(1.0 + self.steps, most)


def counts_of(added: Counters) -> Counts:
    """What counters gained by one answer, as counts of it."""
    histogram = None
    if added.per_position is not None:
        histogram = tuple(a - b for a, b in pairwise((added.rounds, *added.per_position, 0)))
    return Counts(added.rounds, added.accepted, added.drafted, histogram)


def counted(answers: Sequence[Answer], shape: Shape | None, where: str) -> Counted:
    """Raises ServerError where the counts contradict each other, AuditError where no round was run."""
    told = tuple(answer for answer in answers if answer.counts is not None)
    if shape is None or not told:
        return Counted(shape, tuple(answers), None)
    _check_rounds(told, where)
    try:
        acceptance, notes = _acceptance(told, shape)
    except ValueError as error:
        raise ServerError(f"its counts contradict each other: {error}", where, _CONTRADICTION) from error
    return Counted(shape, tuple(answers), acceptance, notes)


def _check_rounds(answers: Sequence[Answer], where: str) -> None:
    """Raises ServerError for answers of several tokens of which no round was counted: it did not speculate."""
    if any(answer.counts.rounds for answer in answers if answer.counts):
        return
    longest = max(answer.tokens for answer in answers)
    if longest > 1:
        raise ServerError(f"it counted no round for answers of up to {longest} tokens", where, _NO_ROUND)


def _acceptance(answers: tuple[Answer, ...], shape: Shape) -> tuple[Acceptance | None, tuple[str, ...]]:
    sums = [_sum(answers, name) for name in ("rounds", "accepted", "drafted")]
    rounds, accepted, drafted = sums
    if rounds is None or accepted is None:
        return None, ("the engine tells rounds and tokens alone, so accept_len is known within bounds only",)
    _check_ends(answers, shape)
    whole = drafted in (None, rounds * (shape.num_draft_tokens - 1))
    if whole and all(_fits(answer) for answer in answers):
        each = [_prompt(answer, shape) for answer in answers]
        pooled = Acceptance.pooled(each, steps=shape.steps, topk=shape.topk, num_draft_tokens=shape.num_draft_tokens)
        return pooled, _notes(answers)
    record = Acceptance.from_counters(
        steps=shape.steps,
        rounds=rounds,
        accepted=accepted,
        drafted=drafted,
        topk=shape.topk,
        num_draft_tokens=shape.num_draft_tokens,
        histogram=_histogram(answers, shape),
        prompts=len(answers),
        tokens=sum(answer.tokens for answer in answers),
    )
    return record, _notes(answers)


def _notes(answers: tuple[Answer, ...]) -> tuple[str, ...]:
    without = sum(answer.ids is None for answer in answers)
    return (
        (f"{without} of {len(answers)} answers came without token ids: loops were not looked for",) if without else ()
    )


def _sum(answers: Sequence[Answer], name: str) -> int | None:
    values = [getattr(answer.counts, name) for answer in answers]
    return None if None in values else sum(values)


def _overshoot(answer: Answer) -> int | None:
    """What its last round emitted past its end."""
    counts = answer.counts
    if counts is None or counts.accepted is None:
        return None
    return 1 + counts.accepted + counts.rounds - answer.tokens


def _check_ends(answers: Sequence[Answer], shape: Shape) -> None:
    """Raises ValueError where a last round would have passed the end by more than it can emit."""
    for answer in answers:
        past = _overshoot(answer)
        if past is not None and past > shape.steps:
            raise ValueError(f"{answer.counts} of an answer of {answer.tokens} tokens, at {shape.steps} steps")


def _fits(answer: Answer) -> bool:
    """Whether its counts are whole: a histogram, and no token that came from a step without drafts."""
    past, counts = _overshoot(answer), answer.counts
    return counts is not None and counts.histogram is not None and past is not None and past >= 0


def _prompt(answer: Answer, shape: Shape) -> PromptCounts:
    counts = answer.counts
    assert counts is not None  # as `_fits` says
    assert counts.histogram is not None
    found = PromptCounts(
        answer.id,
        answer.category,
        answer.tokens,
        _padded(counts.histogram, shape),
        overshoot=_overshoot(answer) or 0,
        capped=answer.capped,
        degenerate=answer.degenerate,
    )
    if (found.rounds, found.accepted) != (counts.rounds, counts.accepted):
        raise ValueError(f"{counts} of {answer.id!r}")
    return found


def _padded(histogram: Sequence[int], shape: Shape) -> tuple[int, ...]:
    """SGLang's ends with the longest run that was accepted."""
    if len(histogram) > shape.steps + 1:
        raise ValueError(f"a round accepted {len(histogram) - 1} drafts at {shape.steps} steps")
    return (*histogram, *[0] * (shape.steps + 1 - len(histogram)))


def _histogram(answers: Sequence[Answer], shape: Shape) -> tuple[int, ...] | None:
    each = [answer.counts.histogram for answer in answers if answer.counts]
    if any(one is None for one in each):
        return None
    return tuple(map(sum, zip(*(_padded(one or (), shape) for one in each), strict=True)))
