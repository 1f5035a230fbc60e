"""What was tried, as tables: each hypothesis beside the declared wiring, each slot's curve, and how a wiring stands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from drafter_audit.decode.replay import rounds_of
from drafter_audit.drafter.wiring import Wiring
from drafter_audit.measure.bootstrap import ratio_interval
from drafter_audit.wiring.hypotheses import moved
from drafter_audit.wiring.judge import Judge
from drafter_audit.wiring.paired import Values, later_of, mean_of
from drafter_audit.wiring.probe import EVERY, Attempt, Probe
from drafter_audit.wiring.result import SlotCurve, Standing, Tried
from drafter_audit.wiring.score import Score


def standing(probe: Probe, wiring: Wiring, score: Score) -> Standing:
    """How a wiring that was run on everything stands."""
    prompts = probe.corpus.prompt_of
    by_prompt = [score.accepted[prompts == place] for place in probe.corpus.order]
    known = [each for each in by_prompt if len(each) and not np.isnan(each).any()]
    interval = ratio_interval([float(each.sum()) for each in known], [len(each) for each in known])
    rounds = [taken for each in known for _, taken in rounds_of(each.astype(int).tolist(), probe.steps)]
    seen = ~np.isnan(score.kl[0])
    return Standing(
        wiring=wiring,
        kl=mean_of(score.kl[0]),
        kl_later=mean_of(later_of(score.kl)),
        accept_len=1 + float(np.concatenate(known).mean()),
        interval=None if interval is None else (1 + interval[0], 1 + interval[1]),
        accept_len_rounds=1 + sum(rounds) / len(rounds),
        positions=int(seen.sum()),
        unseen=int((~np.isnan(score.accepted) & ~seen).sum()),
        omitted=mean_of(score.omitted) or 0.0,
    )


def tried(judge: Judge, attempt: Attempt, base: Score) -> Tried | None:
    """One attempt beside the base; None where the two were known nowhere together."""
    probe, whole = judge.probe, attempt.kl(base)
    kl = probe.compared(whole, attempt.kl(attempt.score))
    accepted = probe.compared(base.accepted, attempt.score.accepted)
    if kl is None or accepted is None:
        return None
    interval, declared = kl.interval(), mean_of(whole)
    outcome = judge.outcome(attempt, base, kl, interval)
    needed, resolution = None, judge.min_gain * kl.base
    if outcome == "indistinguishable" and interval is not None and interval[0] < -resolution:
        needed = kl.needed(resolution, interval)
    return Tried(
        name=attempt.hypothesis.name,
        knob=attempt.hypothesis.knob,
        value=attempt.hypothesis.value,
        wiring=attempt.hypothesis.wiring,
        steps="later" if attempt.later else "first",
        kl=None if declared is None else declared + kl.difference,
        delta_kl=kl.difference,
        delta_kl_interval=interval,
        accept_len=1 + float(np.nanmean(base.accepted)) + accepted.difference,
        delta_accept_len=accepted.difference,
        delta_accept_len_interval=accepted.interval(),
        positions=accepted.positions,
        prompts=accepted.prompts,
        outcome=outcome,
        prompts_needed=needed,
        also=attempt.also,
    )


def slot_curves(probe: Probe, attempts: Sequence[Attempt], base: Score) -> tuple[SlotCurve, ...]:
    """Each slot of the declared wiring over the boundaries 0..L. A point is the declared wiring's figure on all
    positions plus the paired difference over those at which the point was tried: all points are on one footing."""
    read = probe.declared.boundaries or ()
    found = {repr(each.hypothesis.wiring): each for each in attempts}
    return tuple(_curve(probe, found, base, slot, read[slot]) for slot in range(len(read)))


def _curve(probe: Probe, found: Mapping[str, Attempt], base: Score, slot: int, declared: int) -> SlotCurve:
    kls: list[float | None] = []
    lengths: list[float | None] = []
    for boundary in range(probe.scope.num_layers + 1):
        attempt = found.get(repr(moved(probe.declared, slot, boundary)))
        score = base if boundary == declared else None if attempt is None else attempt.score
        kls.append(None if score is None else _moved_mean(probe, base.kl[0], score.kl[0]))
        length = None if score is None else _moved_mean(probe, base.accepted, score.accepted)
        lengths.append(None if length is None else 1 + length)
    known = [(kl, boundary) for boundary, kl in enumerate(kls) if kl is not None]
    best = min(known)[1] if known else declared
    return SlotCurve(slot, declared, best, tuple(kls), tuple(lengths))


def _moved_mean(probe: Probe, base: Values, other: Values) -> float | None:
    whole, found = mean_of(base), probe.compared(base, other, EVERY)
    return None if whole is None or found is None else whole + found.difference
