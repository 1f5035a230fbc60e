"""The checks that run nothing: what lint finds, and how the drafter compares with a reference. Seconds, no torch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from drafter_audit.audit.finding import SEVERITIES, Finding, Severity
from drafter_audit.check.job import Job
from drafter_audit.check.row import Outcome, Row
from drafter_audit.errors import AuditError, CheckpointError, SourceError
from drafter_audit.sources.reference import parse_reference

if TYPE_CHECKING:
    from drafter_audit.audit.compare import Comparison
    from drafter_audit.audit.lint import Lint

_SHOWN = 3


def linted(job: Job, row: Row) -> Row:
    """Fails at a finding as grave as the bar, and for a checkpoint that is damaged past reading. Raises AuditError."""
    try:
        found, note = _lint(job)
    except CheckpointError as error:
        if not _is_its_own(job):
            raise
        return replace(row, outcome="fail", observed="unreadable", reason=str(error))
    grave = tuple(finding for finding in found.findings if _as_grave(finding, job.fail_on))
    if not found.spec.is_drafter:
        told = f"{found.spec.kind.name}: {found.spec.kind.reason}"
        return replace(row, outcome="fail", observed="no drafter", reason=f"{_no_drafter(found)}: {told}")
    counts = {each: sum(f.severity == each for f in found.findings) for each in SEVERITIES}
    details = {
        "findings": [finding.to_dict() for finding in grave],
        "level": found.level,
        "not_checked": [*found.not_checked, *note],
    }
    observed = ", ".join(f"{number} {severity}" for severity, number in counts.items())
    reason = _told(grave) if grave else f"no finding of severity {row.bound} or graver"
    reason = "; ".join((reason, *note, *_only_files(job)))
    return replace(row, outcome="fail" if grave else "pass", observed=observed, reason=reason, details=details)


def _no_drafter(found: Lint) -> str:
    """A gate for drafters lets nothing else through, be there a finding on it or none."""
    codes = [finding.code for finding in found.findings if finding.code in ("KIND-UNKNOWN", "NOT-A-DRAFTER")]
    return ", ".join((*codes, "not known to be a drafter"))


def _lint(job: Job) -> tuple[Lint, tuple[str, ...]]:
    """With the target where it is named. Where it is out of reach and a recording stands for it, without; that is
    said."""
    from drafter_audit.audit.lint import lint

    engines = job.bars.engines or ()
    try:
        return lint(job.ref, target=job.target, engines=engines), ()
    except SourceError as error:
        if job.target is None or job.recording is None:
            raise
        return lint(job.ref, engines=engines), (f"not held to its target's rows: {error}",)


def _only_files(job: Job) -> Iterator[str]:
    """A pass must not be taken for one that ran the drafter."""
    if not (job.of("replay") or job.of("live")):
        yield "its files alone were checked: no recording is named, and live is not asked for"


def _is_its_own(job: Job) -> bool:
    """Whether the drafter's files cannot be read, be its target's as they may. A bundled record has none."""
    from drafter_audit.drafter.open import open_drafter

    if parse_reference(job.ref).kind == "bundled":
        return False
    try:
        open_drafter(job.ref, level="drafter")
    except CheckpointError:
        return True
    return False


def _as_grave(finding: Finding, severity: Severity) -> bool:
    return SEVERITIES.index(finding.severity) <= SEVERITIES.index(severity)


def _told(findings: tuple[Finding, ...]) -> str:
    told = [f"{finding.code}: {finding.what}" for finding in findings[:_SHOWN]]
    more = len(findings) - len(told)
    return "; ".join((*told, *([f"and {more} more"] if more else [])))


def compared(job: Job, rows: Sequence[Row]) -> Iterator[Row]:
    """Each asked likeness with the reference. Raises AuditError."""
    from drafter_audit.audit.compare import compare

    if not rows:
        return
    found = compare([str(job.bars.reference), job.ref])
    for row in rows:
        yield (_architecture if row.check == "same_architecture" else _parameters)(row, found)


def _architecture(row: Row, found: Comparison) -> Row:
    told = next(each for each in found.conclusions if each.code == "same_architecture")
    same = bool(told.numbers["same"])
    return replace(row, outcome="pass" if same else "fail", observed="same" if same else "other", reason=told.text)


def _parameters(row: Row, found: Comparison) -> Row:
    """As many stored, and as many of them trained, where that is known of both."""
    told = next((each for each in found.conclusions if each.code == "size_difference"), None)
    theirs, ours = (spec.parameters for spec in found.drafters)
    if told is None:
        raise AuditError("nothing was counted", row.drafter, "name checkpoints that have weights")
    outcome: Outcome = "pass" if told.numbers["stored"] == 0 == told.numbers["trainable"] else "fail"
    if told.numbers["stored"] == 0 and (theirs.unknown or ours.unknown):
        outcome = "unmeasured"
    details = {"reference": theirs.to_dict(), "drafter": ours.to_dict()}
    return replace(row, outcome=outcome, observed=ours.stored, bound=theirs.stored, reason=told.text, details=details)
