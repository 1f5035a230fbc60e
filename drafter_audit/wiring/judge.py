"""When one wiring counts as better than another: chosen on one half of the prompts, confirmed on the other."""

from __future__ import annotations

from dataclasses import dataclass

from drafter_audit.measure.bars import LEAST_PROMPTS, MIN_GAIN
from drafter_audit.measure.bootstrap import Interval
from drafter_audit.wiring.paired import Paired, Values, later_of
from drafter_audit.wiring.probe import EVERY, Attempt, Probe
from drafter_audit.wiring.result import Outcome
from drafter_audit.wiring.score import Score

_CHOOSE, _CONFIRM = (0, 1), (2,)


@dataclass(frozen=True)
class Confirmed:
    """A gain in KL, above zero, on the prompts that took no part in the choice, with its interval."""

    gain: float
    interval: Interval


@dataclass(frozen=True)
class Judge:
    """`min_gain` as a share of the KL that is to be bettered."""

    probe: Probe
    min_gain: float = MIN_GAIN

    @property
    def prompts(self) -> tuple[int, int]:
        """In the half that chooses, and in the one that confirms."""
        race, rest, confirm = self.probe.corpus.groups
        return len(race) + len(rest), len(confirm)

    @property
    def inconclusive(self) -> str | None:
        """Why no gain can be confirmed on this recording; None where one could be."""
        if min(self.prompts) >= LEAST_PROMPTS:
            return None
        needed = 2 * LEAST_PROMPTS
        return f"{sum(self.prompts)} answers of two tokens or more: at least {needed} are needed, half to confirm on"

    def chosen_by(self, base: Values, other: Values) -> float:
        """The share of the base's KL that is gained on the half that chooses; below zero where `other` is worse."""
        found = self.probe.compared(base, other, _CHOOSE)
        return -found.difference / max(found.base, 1e-9) if found is not None else 0.0

    def confirmed(self, base: Values, other: Values) -> Confirmed | None:
        """The gain of `other` over `base` on the other half; None where it is too small, or might be none."""
        found = self.probe.compared(base, other, _CONFIRM)
        if found is None or found.prompts < LEAST_PROMPTS or self.inconclusive:
            return None
        if -found.difference < self.min_gain * found.base:
            return None
        interval = found.interval()
        if interval is None or interval[1] >= 0:
            return None
        return Confirmed(-found.difference, (-interval[1], -interval[0]))

    def better(self, base: Values, other: Values) -> bool:
        """Whether a gain of the least size is seen on one half, and confirmed on the other."""
        return self.chosen_by(base, other) >= self.min_gain and self.confirmed(base, other) is not None

    def outcome(self, attempt: Attempt, base: Score, whole: Paired, interval: Interval | None) -> Outcome:
        """Of an attempt whose KL was compared with the base's over all that it saw."""
        if not attempt.raced and self.better(attempt.kl(base), attempt.kl(attempt.score)):
            return "better"
        behind = attempt.raced and whole.difference > 0
        return "worse" if behind or (interval is not None and interval[0] > 0) else "indistinguishable"

    def accept_len(self, base: Score, other: Score) -> Paired:
        """`other` less `base` in accepted drafts, over all prompts: no choice was made by it."""
        found = self.probe.compared(base.accepted, other.accepted, EVERY)
        assert found is not None  # both saw the race at least
        return found


def judged_by(score: Score, *, later: bool) -> Values:
    """The KL [n] of the first draft step, or of those after it."""
    return later_of(score.kl) if later else score.kl[0]
