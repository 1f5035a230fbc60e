"""The wiring check as one row: which verdict, and the knob or the damage that is blamed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from drafter_audit.check.job import Job
from drafter_audit.check.replay import recording_of
from drafter_audit.check.row import Outcome, Row
from drafter_audit.errors import SourceError
from drafter_audit.measure.bars import MIN_GAIN

if TYPE_CHECKING:
    from drafter_audit.audit.finding import Finding
    from drafter_audit.recording.recording import Recording
    from drafter_audit.wiring.probe import Probe


def wired(job: Job, row: Row) -> Row:
    """Healthy passes, inconclusive is unmeasured, every other verdict fails. Raises AuditError."""
    from drafter_audit.audit.damage import proven, suspected
    from drafter_audit.engines import newest_releases, read_releases
    from drafter_audit.wiring.check import Asked, Files, checked

    releases = read_releases(job.bars.engines or ()) or newest_releases()
    findings, probe = _read(job)
    files = Files(tuple(proven(findings)), tuple(suspected(findings)))
    found = checked(probe, files, Asked(MIN_GAIN, releases, bool(job.bars.engines)))
    verdict = found.verdict
    outcome = _OUTCOMES.get(verdict.name, "fail")
    told = found.evidence.found
    details = {
        "knobs": [fault.knob for fault in told.faults],
        "reasons": list(verdict.reasons),
        "todo": list(verdict.todo),
        "warnings": list(verdict.warnings),
        "accept_len_best": told.best.accept_len_rounds,
        "fix_keys": sorted({key for edit in found.evidence.edits for key in _keys(edit.set)}),
    }
    warned = (f"warning: {each}" for each in verdict.warnings[:1])
    reason = "; ".join((verdict.name, *verdict.reasons[:2], *warned))
    return replace(row, outcome=outcome, observed=verdict.name, reason=reason, details=details)


def _read(job: Job) -> tuple[Sequence[Finding], Probe]:
    """Both with the target that is named; where that is out of reach, with the recorded one where it is at hand."""
    recording = recording_of(job)
    try:
        return _with(job, recording, job.target)
    except SourceError:
        if job.target is None:
            raise
        return _with(job, recording, None)


def _with(job: Job, recording: Recording, target: str | None) -> tuple[Sequence[Finding], Probe]:
    from drafter_audit.audit.lint import lint
    from drafter_audit.wiring.check import probe_here
    from drafter_audit.wiring.probe import lent_by

    lends = lent_by(recording, target)
    found = lint(job.ref, target=lends, level="target_rows" if lends else "drafter")
    probe = probe_here(job.ref, recording, job.steps, target=target, dtype=None, watch=lambda _, __: None)
    return found.findings, probe


def _keys(edit: Mapping[str, Any]) -> Iterator[str]:
    """Those of config.json that an edit sets, sections before a dot."""
    for key, value in edit.items():
        yield from (f"{key}.{name}" for name in value) if isinstance(value, Mapping) else (key,)


_OUTCOMES: dict[str, Outcome] = {"healthy": "pass", "inconclusive": "unmeasured"}
