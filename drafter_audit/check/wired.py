"""The wiring check as one row: which verdict, and the knob or the damage that is blamed."""

from __future__ import annotations

from dataclasses import replace

from drafter_audit.check.job import Job
from drafter_audit.check.replay import recording_of
from drafter_audit.check.row import Outcome, Row

MIN_GAIN = 0.03
"""As the command `wiring` has it."""


def wired(job: Job, row: Row) -> Row:
    """Healthy passes, inconclusive is unmeasured, every other verdict fails. Raises AuditError."""
    from drafter_audit.audit.damage import proven, suspected
    from drafter_audit.audit.lint import lint
    from drafter_audit.engines import newest_releases, read_releases
    from drafter_audit.wiring.check import Asked, Files, checked, probe_here

    recording, findings = recording_of(job), lint(job.ref, level="drafter").findings
    releases = read_releases(job.bars.engines or ()) or newest_releases()
    probe = probe_here(job.ref, recording, job.steps, target=None, dtype=None, watch=lambda _, __: None)
    files = Files(tuple(proven(findings)), tuple(suspected(findings)))
    found = checked(probe, files, Asked(MIN_GAIN, releases, bool(job.bars.engines)))
    verdict = found.verdict
    outcome = _OUTCOMES.get(verdict.name, "fail")
    told = found.evidence.found
    details = {
        "knobs": [fault.knob for fault in told.faults],
        "reasons": list(verdict.reasons),
        "todo": list(verdict.todo),
        "accept_len_best": told.best.accept_len_rounds,
    }
    reason = "; ".join((verdict.name, *verdict.reasons[:2]))
    return replace(row, outcome=outcome, observed=verdict.name, reason=reason, details=details)


_OUTCOMES: dict[str, Outcome] = {"healthy": "pass", "inconclusive": "unmeasured"}
