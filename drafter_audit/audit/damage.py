"""Which findings say that the file itself is damaged: tensors or the map, which no wiring mends."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from drafter_audit.audit.finding import Finding

PROVEN = frozenset(
    {"VALUES-NONFINITE", "VALUES-BLANK", "ROWS-NONFINITE", "NORM-ZERO", "HEAD-DUPROWS", "HEAD-ZERO", "EMB-ZERO"}
    | {"EMB-UNRELATED", "D2T-ZERO", "D2T-RANGE", "D2T-DUP", "D2T-T2D", "HEAD-MISSING", "TENSOR-MISSING"}
)
"""Of severity error. D2T-ABS is none of them: a map of target ids is whole, and the knob `vocab_map` says how it is
read."""

LOOKS_SO = frozenset({"HEAD-RANDOM", "EMB-RANDOM", "NORM-ONES", "EMB-NEAR", "HEAD-NEAR", "HEAD-ZERO", "VALUES-BLANK"})
"""Warnings: damage only where the drafter drafts as if it were."""


def proven(findings: Iterable[Finding]) -> Iterator[tuple[str, str]]:
    """Codes, each with its sentence."""
    yield from ((each.code, _told(each)) for each in findings if each.severity == "error" and each.code in PROVEN)


def suspected(findings: Iterable[Finding]) -> Iterator[str]:
    """In sentences."""
    yield from (_told(each) for each in findings if each.severity == "warning" and each.code in LOOKS_SO)


def _told(finding: Finding) -> str:
    return f"{finding.code}: {finding.what}; {finding.consequence}"
