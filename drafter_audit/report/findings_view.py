"""Findings as a table."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from drafter_audit.audit.finding import Finding
from drafter_audit.errors import escape
from drafter_audit.report.document import Table, once


def findings_block(found: Iterable[tuple[str, tuple[Finding, ...]]]) -> Iterator[Table]:
    """One table over all drafters, nothing where there is no finding."""
    rows = tuple(_row(ref, finding) for ref, findings in found for finding in findings)
    if rows:
        yield Table(("drafter", "severity", "code", "what, and what follows"), once(rows), "Findings")


def findings_with_fixes(findings: Iterable[Finding]) -> Iterator[Table]:
    """One drafter's findings with the edits that mend them, nothing where there is none."""
    rows = tuple((finding.severity, finding.code, "\n".join(_told(finding))) for finding in findings)
    if rows:
        yield Table(("severity", "code", "what, what follows, and what mends it"), rows, "Findings")


def findings_csv(found: Iterable[tuple[str, tuple[Finding, ...]]]) -> Table:
    """A row for each finding, its fix as JSON."""
    headers = ("ref", "severity", "code", "file", "key", "what", "consequence", "fix")
    rows = tuple(
        (ref, f.severity, f.code, f.file, f.key or "", f.what, f.consequence, _fix(f) or "")
        for ref, findings in found
        for f in findings
    )
    return Table(headers, rows)


def _row(ref: str, finding: Finding) -> tuple[str, ...]:
    return ref, finding.severity, finding.code, f"{escape(finding.what)}\n{escape(finding.consequence)}"


def _told(finding: Finding) -> Iterator[str]:
    yield escape(finding.what)
    yield escape(finding.consequence)
    fix = _fix(finding)
    if fix is not None:
        yield f"set in {escape(finding.file)}: {fix}"


def _fix(finding: Finding) -> str | None:
    return None if finding.fix_set is None else json.dumps(finding.fix_set)
