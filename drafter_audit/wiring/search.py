"""From the declared wiring to the one a drafter was trained with, one confirmed step after another.

What each knob of the best wiring gains is then asked again with all others mended, and what gains too little is taken
back: a fault may have made it look needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from drafter_audit.drafter.wiring import Wiring
from drafter_audit.errors import AuditError
from drafter_audit.measure.bars import MIN_GAIN
from drafter_audit.wiring.controls import control, taps_worth
from drafter_audit.wiring.hypotheses import STATES, knob_of, moved, reverted
from drafter_audit.wiring.judge import Judge, judged_by
from drafter_audit.wiring.probe import LATER, Attempt, Probe
from drafter_audit.wiring.result import Fault, Found, NotObservable, Step
from drafter_audit.wiring.score import Score
from drafter_audit.wiring.tables import slot_curves, standing, tried

_FIRST = ("pre_fc_norm", "residual", "hidden_norm", "final_norm", "concat", "token_shift")
_TIERS = ((*_FIRST, "vocab_map", "head", "embedding"), None, LATER)
"""Norms, vocabulary map and head before the states and all else, since a missing norm hides which states are right;
last what shows in later steps only, where all faults of the first step show too."""

_LONGEST_PATH = 8


@dataclass(frozen=True)
class Stand:
    """A wiring and its score on everything."""

    wiring: Wiring
    score: Score


def search(probe: Probe, min_gain: float = MIN_GAIN) -> Found:
    """All that the recording tells of the drafter's wiring. Raises CannotRunError where a control fails, and what
    loading and reading raise."""
    judge, declared = Judge(probe, min_gain), _stand(probe, probe.declared)
    checked = control(probe)
    attempts, hidden = probe.attempts(declared.wiring, declared.score)
    best, path = _climbed(judge, declared, attempts)
    best = _without_needless(judge, best, declared)
    compared = [found for each in attempts if (found := tried(judge, each, declared.score)) is not None]
    return Found(
        declared=standing(probe, declared.wiring, declared.score),
        best=standing(probe, best.wiring, best.score),
        faults=tuple(_faults(judge, best, declared)),
        path=path,
        slots=slot_curves(probe, attempts, declared.score),
        hypotheses=tuple(sorted(compared, key=lambda one: one.delta_kl or 0.0)),
        not_observable=hidden + tuple(_unseen(attempts, declared.score, judge)),
        control=checked,
        taps_worth=taps_worth(probe, best.wiring, best.score),
        steps=probe.steps,
        min_gain=min_gain,
        prompts=judge.prompts,
        inconclusive=judge.inconclusive,
        recording=_described(probe),
    )


def _climbed(judge: Judge, declared: Stand, attempts: Sequence[Attempt]) -> tuple[Stand, tuple[Step, ...]]:
    """The best wiring that confirmed steps lead to, and those steps."""
    here, path, probe = declared, list[Step](), judge.probe
    while len(path) < _LONGEST_PATH:
        best = winner(judge, here, attempts)
        if best is None:
            break
        path.append(_step(probe, best, here))
        here = Stand(best.hypothesis.wiring, best.score)
        attempts, _ = probe.attempts(here.wiring, here.score)
    return here, tuple(path)


def winner(judge: Judge, here: Stand, attempts: Sequence[Attempt]) -> Attempt | None:
    """Of the first tier in which one is confirmed, the one that gains most on the half that chooses."""
    for tier in range(len(_TIERS)):
        ranked = [
            (judge.chosen_by(each.kl(here.score), each.kl(each.score)), each)
            for each in attempts
            if not each.raced and _tier(each.hypothesis.knob) == tier and each.hypothesis.alone(here.wiring)
        ]
        if ranked:
            _, best = max(ranked, key=lambda one: one[0])
            if judge.better(best.kl(here.score), best.kl(best.score)):
                return _most_usual(judge, best, [each for _, each in ranked])
    return None


def _most_usual(judge: Judge, best: Attempt, ranked: Sequence[Attempt]) -> Attempt:
    """Of values of the best one's knob that do as well as it, to within the least gain, the first that is listed: the
    most usual stand first. Which boundaries are read has no usual value."""
    if best.hypothesis.knob in STATES:
        return best
    own = best.kl(best.score)
    rivals = (each for each in ranked if each.hypothesis.knob == best.hypothesis.knob)
    return next(each for each in rivals if judge.chosen_by(own, each.kl(each.score)) >= -judge.min_gain)


def _tier(knob: str) -> int:
    return next((place for place, knobs in enumerate(_TIERS) if knobs is not None and knob in knobs), 1)


def _step(probe: Probe, winner: Attempt, before: Stand) -> Step:
    kl, what = probe.compared(winner.kl(before.score), winner.kl(winner.score)), winner.hypothesis
    assert kl is not None  # or it would not have won
    return Step(what.name, what.knob, what.value, kl.base, kl.other)


def _without_needless(judge: Judge, best: Stand, declared: Stand) -> Stand:
    """`best` with every change taken back whose gain is not confirmed once all others are made."""
    while True:
        needless = []
        for knob, less in _less(judge.probe, best.wiring, declared.wiring):
            before, after = (judged_by(each.score, later=knob in LATER) for each in (less, best))
            if judge.confirmed(before, after) is None:
                needless.append((judge.chosen_by(before, after), less))
        if not needless:
            return best
        best = min(needless, key=lambda one: one[0])[1]


def _less(probe: Probe, best: Wiring, declared: Wiring) -> Iterator[tuple[str, Stand]]:
    """`best` with one change taken back: a knob, or one slot where several were moved. What cannot be run is needed."""
    knobs = knob_of(best, declared)
    wirings = [(knob, reverted(best, declared, knob)) for knob in knobs]
    if "boundaries" in knobs:
        pairs = enumerate(zip(best.boundaries or (), declared.boundaries or (), strict=True))
        changed = [(slot, before) for slot, (now, before) in pairs if now != before]
        wirings += [("boundaries", moved(best, *each)) for each in changed if len(changed) > 1]
    for knob, wiring in wirings:
        try:
            yield knob, _stand(probe, wiring)
        except AuditError:  # of no other wiring than the best: there is nothing to take back
            continue


def _faults(judge: Judge, best: Stand, declared: Stand) -> Iterator[Fault]:
    """Each knob on which the best wiring departs from the declared one, with what it costs by itself."""
    for knob, (was, trained) in knob_of(best.wiring, declared.wiring).items():
        try:
            less = _stand(judge.probe, reverted(best.wiring, declared.wiring, knob))
        except AuditError:  # it cannot be as declared where the others are mended
            less = declared
        later = knob in LATER
        before, after = judged_by(less.score, later=later), judged_by(best.score, later=later)
        confirmed, accepted = judge.confirmed(before, after), judge.accept_len(less.score, best.score)
        kl = judge.probe.compared(before, after)
        assert confirmed is not None  # or it would have been taken back
        assert kl is not None
        yield Fault(
            knob=knob,
            declared=was,
            trained=trained,
            steps="later" if later else "first",
            kl_before=kl.base,
            kl_after=kl.other,
            gain=confirmed.gain,
            kl_interval=confirmed.interval,
            accept_len_before=1 + accepted.base,
            accept_len_after=1 + accepted.other,
            interval=accepted.interval(),
        )


def _unseen(attempts: Sequence[Attempt], base: Score, judge: Judge) -> Iterator[NotObservable]:
    for each in attempts:
        if judge.probe.compared(each.kl(base), each.kl(each.score)) is None:
            why = "no position is known under both: its draft vocabulary and the recorded logits have nothing in common"
            yield NotObservable(each.hypothesis.knob, each.hypothesis.value, why)


def _stand(probe: Probe, wiring: Wiring) -> Stand:
    return Stand(wiring, probe.whole(wiring))


def _described(probe: Probe) -> dict[str, object]:
    manifest = probe.corpus.manifest
    names = ("target", "revision", "dtype", "prompts_name", "prompts_sha256", "count", "top", "temperature")
    return {"folder": str(probe.corpus.recording.folder)} | {name: getattr(manifest, name) for name in names}
