"""Findings as a table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from drafter_audit.audit.finding import Finding
from drafter_audit.errors import escape
from drafter_audit.report.document import Table, once


def findings_block(found: Iterable[tuple[str, tuple[Finding, ...]]]) -> Iterator[Table]:
    """One table over all drafters, nothing where there is no finding."""
    rows = tuple(_row(ref, finding) for ref, findings in found for finding in findings)
    if rows:
        yield Table(("drafter", "severity", "code", "what, and what follows"), once(rows), "Findings")


def _row(ref: str, finding: Finding) -> tuple[str, ...]:
    return ref, finding.severity, finding.code, f"{escape(finding.what)}\n{escape(finding.consequence)}"
