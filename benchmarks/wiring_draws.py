"""Draws from one long recording, as if each had been recorded by itself, without running anything anew.

What a wiring scores at a position depends on that prompt alone. So every wiring is scored once on all prompts, and a
draw is a choice of prompts, their answers cut to a length, and the scores of the starts that are left.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate

import numpy as np

from drafter_audit.errors import AuditError
from drafter_audit.measure.bars import LEAST_PROMPTS
from drafter_audit.model.drafter import Drafter
from drafter_audit.recording.manifest import Answer
from drafter_audit.recording.recording import Recording
from drafter_audit.wiring.hypotheses import Hypothesis, hypotheses
from drafter_audit.wiring.judge import Judge
from drafter_audit.wiring.paired import Rows, mean_of
from drafter_audit.wiring.probe import Attempt, Probe, kl_of, open_probe
from drafter_audit.wiring.score import Score
from drafter_audit.wiring.search import Stand, winner

STEPS = 3
FAR_KL, FAR_ACCEPTED = 1.5, 0.25
"""What is far behind: a KL of more than so many times the declared wiring's, and so many drafts fewer in a round."""


@dataclass(frozen=True)
class Draw:
    """The answers `kept`, by their place in the recording, each cut to `longest` starts of rounds."""

    kept: tuple[int, ...]
    longest: int


def draw(answers: Sequence[Answer], positions: int, order: Sequence[int]) -> Draw:
    """The first prompts of `order`, as few as the search needs, their answers cut so that `positions` are left or
    hardly more; where the whole answers have too few, as many prompts as it takes."""
    starts = [answers[place].answer_length - 1 for place in order]
    least = 2 * LEAST_PROMPTS
    for longest in range(1, max(starts[:least])):
        if sum(min(each, longest) for each in starts[:least]) >= positions:
            return Draw(tuple(order[:least]), longest)
    sums = list(accumulate(starts))
    enough = next((at + 1 for at, whole in enumerate(sums) if whole >= positions), len(order))
    return Draw(tuple(order[: max(least, enough)]), max(starts))


def drawn(recording: Recording, chosen: Draw) -> Recording:
    """That part of the recording. Its answers' files are the whole ones."""
    cut = [recording.manifest.answers[place] for place in chosen.kept]
    answers = tuple(replace(each, answer_length=min(each.answer_length, chosen.longest + 1)) for each in cut)
    return replace(recording, manifest=replace(recording.manifest, answers=answers, count=len(answers)))


@dataclass(frozen=True)
class Scored:
    """A drafter, and the wirings that depart from its declared one by one knob, scored on all prompts. Those that are
    far behind on the prompts of a race by both rules are left out: no draw would choose them."""

    probe: Probe
    base: Score
    attempts: tuple[Attempt, ...]

    @classmethod
    def of(cls, ref: str, recording: Recording) -> Scored:
        probe = open_probe(ref, recording, steps=STEPS)
        supposed, _ = hypotheses(probe.scope, probe.declared)
        ahead = _ahead(probe, [(each, drafter) for each in supposed if (drafter := _built(probe, each)) is not None])
        scores = probe.scores([drafter for _, drafter in ahead])
        attempts = [Attempt(each, drafter, score) for (each, drafter), score in zip(ahead, scores, strict=True)]
        return cls(probe, probe.whole(probe.declared), tuple(attempts))

    @cached_property
    def first(self) -> Mapping[int, int]:
        """The first start of each prompt, by its place in the recording."""
        places, rows = np.unique(self.probe.corpus.prompt_of, return_index=True)
        return dict(zip(map(int, places), map(int, rows), strict=True))

    def on(self, chosen: Draw) -> Sample:
        recording = self.probe.corpus.recording
        probe = Probe(self.probe.variants, drawn(recording, chosen), STEPS)
        answers = probe.corpus.manifest.answers
        rows = np.concatenate(
            [self.first[chosen.kept[p]] + np.arange(answers[p].answer_length - 1) for p in probe.corpus.order]
        )
        attempts = [replace(each, score=at(each.score, rows)) for each in self.attempts]
        return Sample(Judge(probe), Stand(probe.declared, at(self.base, rows)), tuple(attempts))


Built = tuple[Hypothesis, Drafter]


def _built(probe: Probe, hypothesis: Hypothesis) -> Drafter | None:
    """None where the files lack what its wiring needs."""
    try:
        return probe.under(hypothesis.wiring)
    except AuditError:
        return None


def _ahead(probe: Probe, built: Sequence[Built]) -> list[Built]:
    """Those whose KL is not far above the declared wiring's on the first prompts, or whose accept_len not far below."""
    base, *others = probe.scores([probe.under(probe.declared), *(drafter for _, drafter in built)], (0,))
    kl, accepted = mean_of(base.kl[0]) or 0.0, mean_of(base.accepted) or 0.0
    near = [
        kl_of(score) <= FAR_KL * kl or (mean_of(score.accepted) or 0.0) >= accepted - FAR_ACCEPTED for score in others
    ]
    return [each for each, kept in zip(built, near, strict=True) if kept]


def at(score: Score, rows: Rows) -> Score:
    """Of those starts, in that order."""
    return Score(score.kl[:, rows], score.accepted[rows], score.omitted[rows])


@dataclass(frozen=True)
class Sample:
    """The scores of one draw, and the judge that knows its halves."""

    judge: Judge
    declared: Stand
    attempts: tuple[Attempt, ...]

    def by_kl(self) -> Attempt | None:
        """The search's own first step."""
        return winner(self.judge, self.declared, self.attempts)

    def by_accept_len(self) -> Attempt | None:
        """What a search by accept_len would do: the most accepted on the half that chooses, and blamed where the
        interval of the gain lies above zero on the half that confirms, which has as many prompts as KL must have."""
        base, judge = self.declared.score.accepted, self.judge
        alone = [each for each in self.attempts if each.hypothesis.alone(self.declared.wiring)]
        best = max(alone, key=lambda each: -judge.chosen_by(base, each.score.accepted))
        found = judge.probe.compared(base, best.score.accepted, (2,))
        if found is None or min(judge.prompts) < LEAST_PROMPTS:
            return None
        interval = found.interval()
        return best if interval is not None and interval[0] > 0 else None
