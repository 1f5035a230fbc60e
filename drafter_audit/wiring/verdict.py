"""The verdict on a drafter: the first cause that applies, with its proof in sentences, and what to do."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from drafter_audit.measure import bars
from drafter_audit.measure.loops import MOST
from drafter_audit.wiring.evidence import Claim, Evidence
from drafter_audit.wiring.fix import mend_of
from drafter_audit.wiring.profile import Profile
from drafter_audit.wiring.result import CHANCE, Fault, Found, Standing

Name = Literal["damaged", "miswired", "engine", "undertrained", "healthy", "inconclusive"]

_ASTRAY, _LEAST_ASTRAY = 0.05, 4
"""Tokens drafted as one other: the share of the frequent ones, and how many, that are no chance. The reference drafter,
which is whole, has 1%."""


_NAMED = 3  # of what one line lists


def few(names: Sequence[str], between: str) -> str:
    """The first of them, and how many more.

    >>> few(["a", "b", "c", "d"], "; ")
    'a; b; c, and 1 more'
    """
    more = f", and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return between.join(names[:_NAMED]) + more


@dataclass(frozen=True)
class Verdict:
    """`reasons` are its proof, `todo` what to do, `warnings` what is wrong and decides nothing here: in sentences."""

    name: Name
    reasons: tuple[str, ...]
    todo: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return {"verdict": self.name, "reasons": list(self.reasons), "todo": list(self.todo),
                "warnings": list(self.warnings)}  # fmt: skip


def judged(evidence: Evidence) -> Verdict:
    """The first verdict that has any reason, in the order of the causes."""
    for name, reasons_of, todo_of in _RULES:
        reasons = tuple(reasons_of(evidence))
        if reasons:
            return Verdict(name, reasons, tuple(todo_of(evidence)), tuple(_warnings(evidence)))
    raise AssertionError("the last rule always has a reason")


def explained(fault: Fault) -> str:
    """One fault in a sentence or two."""
    step = "" if fault.steps == "first" else " of the later draft steps"
    low, high = fault.kl_interval
    kl = f"KL{step} falls from {fault.kl_before:.4f} to {fault.kl_after:.4f} nats"
    sure = f"by {fault.gain:.4f} [{low:.4f}, {high:.4f}] on the prompts that took no part in the choice"
    turns = "rises" if fault.accept_len_after >= fault.accept_len_before else "falls"
    cost = f"accept_len {turns} from {fault.accept_len_before:.3f} to {fault.accept_len_after:.3f}"
    within = "" if fault.interval is None else f" (by [{fault.interval[0]:.3f}, {fault.interval[1]:.3f}])"
    told = f"{fault.knob}: declared {_words(fault.declared)}, trained with {_words(fault.trained)}"
    return f"{told}: {kl}, {sure}; {cost}{within}"


def _words(value: object) -> str:
    return "none" if value is None else value if isinstance(value, str) else json.dumps(value)


def _damaged(evidence: Evidence) -> Iterator[str]:
    found, profile = evidence.found, evidence.profile
    proven = _trained_with_its_own(found)
    yield from (each.words for each in evidence.damage if not (proven and each.code == _FOREIGN))
    chance = found.best.accept_len <= CHANCE  # what moves KL there does not tell how it was trained
    yield from (_not_the_trained(fault) for fault in found.faults if fault.costs and _replaced(fault) and not chance)
    if profile is not None and (led := _led_astray(profile)):
        yield led
    if chance:
        control = f"the control with permuted head rows has {found.control.accept_len:.3f}"
        yield f"it drafts at chance: accept_len {found.best.accept_len:.3f} under the best wiring tried, {control}"
        yield from evidence.suspected
    elif _stateless(found):
        yield _without_states(found)


_FOREIGN = "EMB-UNRELATED"
"""Lint's code for a stored embedding that is another than the target's: no damage where the drafter does worse with
that."""

_STORED = {"head": "lm_head", "embedding": "embed_tokens"}


def _replaced(fault: Fault) -> bool:
    """Whether the target's own tensor does better than the stored one."""
    return fault.knob in _STORED and fault.declared == "own" and fault.trained in ("target", "target_rows")


def _trained_with_its_own(found: Found) -> bool:
    """Whether its stored embedding, unlike the target's, is the one that it was trained with."""
    tried = (each for each in found.hypotheses if (each.knob, each.value) == ("embedding", "target"))
    return found.best.wiring.embedding == "own" and any(each.outcome == "worse" for each in tried)


def _not_the_trained(fault: Fault) -> str:
    """Rows at random, permuted, or of other tokens all look so."""
    stored = f"the stored {_STORED[fault.knob]} is not the one it was trained with: the target's does better"
    return f"{stored}. {explained(fault)}"


_OF_THE_STATES = frozenset(
    {"boundaries", "slot_order", "pre_fc_norm", "residual", "hidden_norm", "concat", "last_state"}
)
"""Knobs by which the target's states come in."""


def _stateless(found: Found) -> bool:
    """Whether the states are worth nothing at all; or no draft, and yet another way for them to come in is said to
    bring some. Where a text is so easy that its tokens alone tell how it goes on, neither holds: they still move KL."""
    worth = found.taps_worth
    at_odds = any(fault.costs and fault.knob in _OF_THE_STATES for fault in found.faults)
    return found.inconclusive is None and not worth.drafts and (at_odds or not worth.counts)


def _without_states(found: Found) -> str:
    worth, (low, high) = found.taps_worth, found.taps_worth.accept_len_interval or (0.0, 0.0)
    shuffled = f"shuffled among positions they leave accept_len at {worth.accept_len_without:.3f}"
    gain = f"each in its place adds {worth.accept_len:.3f} [{low:.3f}, {high:.3f}]"
    return f"the target's states draft nothing: {shuffled}, {gain}; fc, or the states it was trained on, are lost"


def _led_astray(profile: Profile) -> str | None:
    astray = profile.astray
    if astray.tokens < _LEAST_ASTRAY or astray.tokens < _ASTRAY * astray.frequent:
        return None
    pairs = ", ".join(f"{token} as {draft}" for token, draft in astray.examples)
    many = f"{astray.tokens} of {astray.frequent} frequent tokens are drafted as one and the same other token"
    return f"{many} ({pairs}): rows of the head, or entries of the map, stand for other tokens than they say"


def _mend_file(_: Evidence) -> Iterator[str]:
    yield "export it again from the training checkpoint, and check that every tensor was matched and copied"


def _miswired(evidence: Evidence) -> Iterator[str]:
    yield from (explained(fault) for fault in evidence.found.faults if fault.costs)


def _mend_wiring(evidence: Evidence) -> Iterator[str]:
    yield from (edit.words for edit in evidence.edits)
    if any(edit.needed and (edit.left or not edit.set) for edit in evidence.edits):
        yield from (f"{fault.knob}: {mend_of(fault.knob)}" for fault in evidence.found.faults if fault.costs)


def _engine(evidence: Evidence) -> Iterator[str]:
    yield from (_parted(claim) for claim in evidence.claims if claim.below)
    best = evidence.found.best
    for claim in evidence.claims:
        if not claim.below and claim.differs and _less(claim, best):
            wires = f"{claim.release.label} wires {', '.join(claim.differs)} otherwise than trained"
            reached = "" if claim.measured is None else f"it reaches {claim.measured:g}, and "
            loop = f"the reference loop, so wired, {_figure(claim)}, as trained {best.accept_len_rounds:.3f}"
            yield f"{wires}: {reached}{loop}"


def _parted(claim: Claim) -> str:
    wired = f" with {', '.join(claim.differs)} as it wires them" if claim.differs else " under the same wiring"
    return f"{claim.release.label} reaches accept_len {claim.measured:g}, the reference loop{wired} {_figure(claim)}"


def _figure(claim: Claim) -> str:
    within = "" if claim.interval is None else f" [{claim.interval[0]:.3f}, {claim.interval[1]:.3f}]"
    return f"{claim.accept_len:.3f}{within}"


def _less(claim: Claim, best: Standing) -> bool:
    """Whether the engine's wiring itself costs."""
    return claim.interval is not None and claim.interval[1] < best.accept_len_rounds


def _mend_engine(evidence: Evidence) -> Iterator[str]:
    yield from (claim.edit.words for claim in evidence.claims if claim.edit is not None and claim.differs)
    if any(claim.below for claim in evidence.claims):
        yield "look in the engine: its version, its log of loaded tensors, template, prompts, dtype and quantisation"


def _undertrained(evidence: Evidence) -> Iterator[str]:
    best = evidence.found.best
    if _to_what_is_asked(evidence).place != "below":
        return
    yield f"accept_len {best.accept_len:.3f}{_within(best)} is below the {evidence.min_accept_len:g} asked for"
    yield f"nothing helps: of {len(evidence.found.hypotheses)} wirings tried none gains {_least_gain(evidence)} of KL"
    if evidence.profile is not None:
        yield from _training(evidence.profile)


def _training(profile: Profile) -> Iterator[str]:
    given = ", ".join(f"{rate:.1%}" for rate in profile.teacher_forced)
    taken = ", ".join("–" if rate is None else f"{rate:.1%}" for rate in profile.free_running)
    yield f"teacher-forced, its drafts are right {given} of the time, step by step; free-running, accepted {taken}"
    ceiling = f"with it a drafter that is always right reaches {profile.ceiling:.3f}"
    yield f"its vocabulary holds {profile.coverage:.1%} of the answers' tokens: {ceiling}"


def _train_on(evidence: Evidence) -> Iterator[str]:
    profile, least = evidence.profile, evidence.min_accept_len or 0.0
    if profile is not None and profile.ceiling < least:
        yield "train with a larger draft vocabulary, or one chosen from such answers: this one cannot reach it"
    else:
        yield "train longer, or on answers of this target to prompts like these; check that the target is the same"


def _inconclusive(evidence: Evidence) -> Iterator[str]:
    found = evidence.found
    if evidence.looping > MOST * evidence.answers:
        yield f"{evidence.looping} of {evidence.answers} answers loop: what is accepted there measures nothing"
    if found.inconclusive is not None:
        yield found.inconclusive
    if _to_what_is_asked(evidence).place == "unsure":
        told, least = f"accept_len {found.best.accept_len:.3f}{_within(found.best)}", evidence.min_accept_len
        yield f"{told} may be above or below the {least:g} asked for"


def _settle(evidence: Evidence) -> Iterator[str]:
    held = _to_what_is_asked(evidence)
    if held.place == "unsure" and held.needed is None:
        yield "ask for another --min-accept-len: no number of prompts tells on which side of itself a figure lies"
    else:
        needed = max(2 * bars.LEAST_PROMPTS, held.needed or 0)
        yield f"record about {needed} prompts, whose answers end by themselves"


def _to_what_is_asked(evidence: Evidence) -> bars.Standing:
    """Where accept_len under the best wiring stands to the least that is asked for: above, where none is."""
    least, best, prompts = evidence.min_accept_len, evidence.found.best, sum(evidence.found.prompts)
    return bars.Standing("above") if least is None else bars.standing(best.accept_len, best.interval, least, prompts)


def _healthy(evidence: Evidence) -> Iterator[str]:
    found = evidence.found
    many, declared = len(found.hypotheses), found.declared
    yield f"of {many} wirings tried none betters the declared one by {_least_gain(evidence)} of KL and accepts more"
    yield f"accept_len {declared.accept_len:.3f}{_within(declared)}; the control with permuted head rows has " + (
        f"{found.control.accept_len:.3f}"
    )
    if evidence.min_accept_len is None:
        yield "whether that is enough was not asked: --min-accept-len says so"


def _nothing(_: Evidence) -> Iterator[str]:
    yield from ()


def _within(standing: Standing) -> str:
    return "" if standing.interval is None else f" [{standing.interval[0]:.3f}, {standing.interval[1]:.3f}]"


def _least_gain(evidence: Evidence) -> str:
    return f"{evidence.found.min_gain:.0%}"


def _warnings(evidence: Evidence) -> Iterator[str]:
    found = evidence.found
    if found.best.accept_len > CHANCE:
        yield from _harmless(evidence)
        if found.inconclusive is None and not found.taps_worth.drafts and not _stateless(found):
            yield f"{_without_states(found)}; they change how sure it is, and not what it drafts"
    if found.faults:
        yield from (f"see to this first, it may be what looks like a wiring: {each}" for each in evidence.suspected)
    yield from evidence.notes
    if not found.faults:
        yield from _undecided(found)


def _undecided(found: Found) -> Iterator[str]:
    told = [(each.name, each.prompts_needed) for each in found.hypotheses if each.outcome == "indistinguishable"]
    names = [f"{name} (about {needed} prompts would tell)" for name, needed in told if needed is not None]
    if names:
        yield f"undecided: {few(names, ', ')}"


def _harmless(evidence: Evidence) -> Iterator[str]:
    """Faults that cost no accept_len, and what mends them where there are no others."""
    faults = evidence.found.faults
    yield from (f"{explained(fault)}; {_free(fault)}" for fault in faults if not fault.costs)
    if faults and not any(fault.costs or _hurts(fault) for fault in faults):
        yield from (edit.words for edit in evidence.edits if edit.needed)


def _hurts(fault: Fault) -> bool:
    """Whether fewer drafts are accepted under the wiring that it is said to have been trained with."""
    return fault.interval is not None and fault.interval[1] < 0


def _free(fault: Fault) -> str:
    return "as declared it accepts more: leave it" if _hurts(fault) else "that costs nothing here"


_Sentences = Callable[[Evidence], Iterator[str]]
_RULES: tuple[tuple[Name, _Sentences, _Sentences], ...] = (
    ("damaged", _damaged, _mend_file),
    ("miswired", _miswired, _mend_wiring),
    ("engine", _engine, _mend_engine),
    ("inconclusive", _inconclusive, _settle),
    ("undertrained", _undertrained, _train_on),
    ("healthy", _healthy, _nothing),
)
"""A recording that decides nothing is no proof that all is well, nor that training was short."""
