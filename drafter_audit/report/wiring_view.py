"""What the wiring check found: the verdict with its proof and the edit first, then faults, curves, and all else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from drafter_audit.audit.finding import Finding
from drafter_audit.audit.lint import Lint
from drafter_audit.errors import escape
from drafter_audit.report.document import Block, Document, Lines, Table
from drafter_audit.report.findings_view import findings_with_fixes
from drafter_audit.report.numbers import NOTHING, bar, count, figure, interval, plain, raw, share
from drafter_audit.wiring.check import Checked
from drafter_audit.wiring.evidence import Claim
from drafter_audit.wiring.profile import Group, Profile
from drafter_audit.wiring.result import Found, SlotCurve, Standing, Tried
from drafter_audit.wiring.signs import signs
from drafter_audit.wiring.verdict import few

_SHOWN = 12
"""Hypotheses in the table; all are in the JSON."""


def wiring_document(lint: Lint, checked: Checked) -> Document:
    return Document(tuple(_blocks(lint, checked)), _csv(checked.evidence.found))


def wiring_result(lint: Lint, checked: Checked) -> dict[str, Any]:
    """The JSON of `wiring`."""
    claims = {claim.release.label: claim.to_dict() for claim in checked.evidence.claims}
    engines = [served.to_dict() | claims.get(served.release.label, {}) for served in lint.engines]
    return checked.to_dict() | {"engines": engines, "findings": [finding.to_dict() for finding in lint.findings]}


def _blocks(lint: Lint, checked: Checked) -> Iterator[Block]:
    evidence, verdict = checked.evidence, checked.verdict
    found = evidence.found
    yield Lines(tuple(map(escape, verdict.reasons)), f"{lint.spec.ref}: {verdict.name}")
    if verdict.todo:
        yield Lines(tuple(map(escape, verdict.todo)), "What to do")
    if verdict.warnings:
        yield Lines(tuple(map(escape, verdict.warnings)), "Warnings")
    yield _standings(found)
    yield from _faults(found)
    yield from (_curve(found, slot) for slot in found.slots)
    yield _hypotheses(found.hypotheses)
    if evidence.profile is not None:
        yield from _profile(evidence.profile)
    yield from _beside(checked)
    yield Lines(tuple(_controls(found)), "Controls")
    yield from _not_observable(found)
    yield from findings_with_fixes(_grave(lint))
    yield Lines(tuple(_measured_on(checked)), "Measured on")
    if evidence.remarks:
        yield Lines(tuple(map(escape, evidence.remarks)), "Notes")


def _grave(lint: Lint) -> Iterator[Finding]:
    """Of `lint`'s, errors and warnings; the rest is in the JSON and in `lint`."""
    yield from (finding for finding in lint.findings if finding.severity != "info")


def _standings(found: Found) -> Table:
    standings = {"declared": found.declared} | ({"best": found.best} if found.faults else {})
    headers = ("wiring", "KL", "KL, later steps", "accept_len", "95% interval", "in rounds", "positions")
    rows = tuple((name, *_standing(each)) for name, each in standings.items())
    return Table(headers, rows, "KL(target ‖ drafter) in nats, and accept_len", frozenset(range(1, 7)))


def _standing(one: Standing) -> tuple[str, ...]:
    kl, later = figure(one.kl, 4), figure(one.kl_later, 4)
    rounds = figure(one.accept_len_rounds)
    return kl, later, figure(one.accept_len), interval(one.interval), rounds, count(one.positions)


def _faults(found: Found) -> Iterator[Table]:
    rows = tuple(
        (
            fault.knob,
            plain(fault.declared),
            plain(fault.trained),
            f"{fault.kl_before:.4f} → {fault.kl_after:.4f}",
            f"{fault.accept_len_before:.3f} → {fault.accept_len_after:.3f}",
            "yes" if fault.costs else "no",
        )
        for fault in found.faults
    )
    if rows:
        headers = ("knob", "declared", "trained", "KL", "accept_len", "costs")
        yield Table(headers, rows, "Faults, each where all others are mended")


def _curve(found: Found, slot: SlotCurve) -> Table:
    """The shorter the bar the nearer to the target; the longest is the worst boundary's."""
    top = max((kl for kl in slot.kl_curve if kl is not None), default=1.0) or 1.0
    both = zip(slot.kl_curve, slot.accept_len_curve, strict=True)
    rows = tuple(
        (str(at), figure(kl, 4), NOTHING if kl is None else bar(kl / top), figure(length), _mark(slot, at))
        for at, (kl, length) in enumerate(both)
    )
    return Table(("boundary", "KL", "", "accept_len", ""), rows, f"Slot {slot.slot}", frozenset({0, 1, 3}))


def _mark(slot: SlotCurve, at: int) -> str:
    marks = {"declared": at == slot.declared, "lowest": at == slot.best}
    return ", ".join(name for name, is_so in marks.items() if is_so)


def _hypotheses(tried: tuple[Tried, ...]) -> Table:
    rows = tuple(
        (
            escape(one.name),
            figure(one.kl, 4),
            f"{one.delta_kl or 0.0:+.4f}",
            interval(one.delta_kl_interval, 4),
            f"{one.delta_accept_len:+.3f}",
            count(one.positions),
            one.outcome,
        )
        for one in tried[:_SHOWN]
    )
    headers = ("wiring", "KL", "less declared", "95% interval", "accept_len less declared", "positions", "outcome")
    more = f", the best {_SHOWN} of {len(tried)}" if len(tried) > _SHOWN else ""
    return Table(headers, rows, f"Tried beside the declared wiring{more}", frozenset({1, 2, 3, 4, 5}))


def _profile(profile: Profile) -> Iterator[Block]:
    steps = enumerate(zip(profile.teacher_forced, profile.free_running, strict=False), 1)
    rows = tuple(
        (str(k), share(given), "" if taken is None else bar(taken), share(taken)) for k, (given, taken) in steps
    )
    headers = ("draft", "right, teacher-forced", "", "accepted after all before")
    yield Table(headers, rows, "By draft step, under the best wiring", frozenset({0, 1, 3}))
    yield _groups("By absolute position", "positions", profile.positions)
    if len(profile.categories) > 1:
        yield _groups("By category", "category", profile.categories)
    seen = tuple(f"{escape(sign.seen)}: {sign.points_to}" for sign in signs(profile))
    if seen:
        yield Lines(seen, "What the profile alone points to")


def _groups(title: str, header: str, groups: tuple[Group, ...]) -> Table:
    rows = tuple((escape(group.name), count(group.starts), figure(group.accept_len)) for group in groups)
    return Table((header, "starts", "accept_len"), rows, title, frozenset({1, 2}))


def _beside(checked: Checked) -> Iterator[Block]:
    """What was set beside the search: training's figures, engines, the live loop."""
    evidence = checked.evidence
    training = evidence.training()
    if training is not None:
        said = ", ".join(f"{rate:.1%}" for rate in training["accuracies"])
        given = ", ".join(f"{rate:.1%}" for rate in training["measured_accuracies"] or ()) or NOTHING
        promise = f"training's accuracies {said} promise accept_len {training['accept_len']:.3f}"
        got = f"measured: {given}, accept_len {figure(training['measured_accept_len'])}"
        yield Lines((promise, got), "Training's promise")
    if evidence.claims:
        headers = ("engine", "knobs not as found best", "reference loop, so wired", "95% interval", "engine")
        yield Table(headers, tuple(map(_claim, evidence.claims)), "accept_len under each engine's wiring")
    if evidence.live:
        rows = tuple(
            (e.wiring, e.why_not or figure(e.accept_len), interval(e.interval), count(e.rounds)) for e in evidence.live
        )
        yield Table(("wiring", "accept_len", "95% interval", "rounds"), rows, "Live", frozenset({1, 2, 3}))


def _claim(claim: Claim) -> tuple[str, ...]:
    reached = claim.why_not or figure(claim.accept_len)
    differs = ", ".join(claim.differs) or "none"
    return claim.release.label, differs, reached, interval(claim.interval), figure(claim.measured)


def _controls(found: Found) -> Iterator[str]:
    control, worth = found.control, found.taps_worth
    yield f"permuted head rows: accept_len {control.accept_len:.3f}"
    if control.identity_map is not None:
        yield f"draft ids taken for target ids: accept_len {control.identity_map:.3f}"
    if worth is not None:
        yield (
            f"states shuffled among positions: accept_len {worth.accept_len_without:.3f}, "
            f"KL {figure(worth.kl_without)}: the states are worth {worth.accept_len:.3f} of accept_len"
        )


def _not_observable(found: Found) -> Iterator[Table]:
    """A line for all values of a knob that one reason hides."""
    hidden: dict[tuple[str, str], list[str]] = {}
    for one in found.not_observable:
        hidden.setdefault((one.knob, one.reason), []).append(plain(one.value))
    rows = tuple((knob, few(values, "; "), escape(reason)) for (knob, reason), values in hidden.items())
    if rows:
        yield Table(("knob", "value", "why it cannot be told"), rows, "Not observable")


def _measured_on(checked: Checked) -> Iterator[str]:
    evidence, recording = checked.evidence, checked.evidence.found.recording
    yield f"recording {recording['folder']} of {recording['target']} ({recording['dtype']})"
    halves = " and ".join(map(str, evidence.found.prompts))
    name = f"{recording['prompts_name']} (sha256 {str(recording['prompts_sha256'])[:12]})"
    yield f"{count(evidence.answers)} prompts of {name}, {halves} to choose and to confirm on"
    ends = f"{count(evidence.capped)} answers hit the cap, {count(evidence.looping)} loop"
    yield f"{ends}; {evidence.found.steps} drafts a round"


def _csv(found: Found) -> Table:
    headers = ("name", "knob", "value", "kl", "delta_kl", "delta_kl_low", "delta_kl_high", "accept_len",
               "delta_accept_len", "positions", "outcome")  # fmt: skip
    return Table(headers, tuple(_row(one) for one in found.hypotheses))


def _row(one: Tried) -> tuple[str, ...]:
    low, high = one.delta_kl_interval or (None, None)
    figures = (one.kl, one.delta_kl, low, high, one.accept_len, one.delta_accept_len, one.positions, one.outcome)
    return (one.name, one.knob, json.dumps(one.value), *map(raw, figures))
