"""The wiring check as one row: which verdict, and the knob or the damage that is blamed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

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
        "fix_keys": sorted({key for edit in found.evidence.edits for key in _keys(edit.set)}),
    }
    reason = "; ".join((verdict.name, *verdict.reasons[:2]))
    return replace(row, outcome=outcome, observed=verdict.name, reason=reason, details=details)


def _keys(edit: Mapping[str, Any]) -> Iterator[str]:
    """Those of config.json that an edit sets, sections before a dot."""
    for key, value in edit.items():
        yield from (f"{key}.{name}" for name in value) if isinstance(value, Mapping) else (key,)


_OUTCOMES: dict[str, Outcome] = {"healthy": "pass", "inconclusive": "unmeasured"}
