"""A shard index against the headers of its shards, both ways. Counts are always those of the headers."""

from __future__ import annotations

from types import MappingProxyType

from drafter_audit.audit.finding import Finding, Findings, Severity
from drafter_audit.checkpoint.table import FaultKind, IndexFault
from drafter_audit.drafter.spec import DrafterSpec

_SHOWN = 5  # names in the evidence

# Code, severity, what is true of the tensors (of the files) that are named, and what follows from it.
_RULES: MappingProxyType[FaultKind, tuple[str, Severity, str, str]] = MappingProxyType(
    {
        "absent": (
            "INDEX-ABSENT",
            "error",
            "the index lists what no file holds",
            "they are not counted, and a reader leaves them random or stops",
        ),
        "misplaced": (
            "INDEX-MISPLACED",
            "warning",
            "the index names the wrong file of",
            "they are counted where they lie; a reader that follows the index does not find them",
        ),
        "unlisted": (
            "INDEX-UNLISTED",
            "warning",
            "the index leaves out what is stored",
            "they are counted; a reader that follows the index leaves them out",
        ),
        "unread": (
            "INDEX-UNLISTED",
            "warning",
            "the index leaves out a shard of its series",
            "they are not read and not counted; a reader that takes every file takes them",
        ),
        "duplicate": (
            "INDEX-DUPLICATE",
            "warning",
            "more than one file holds",
            "each is counted once, where the index says, else in the first; which one a reader takes is open",
        ),
    }
)


def index_against_headers(spec: DrafterSpec) -> Findings:
    """Tensors listed and absent, listed elsewhere, stored and unlisted, stored twice; a wrong total."""
    if spec.table is None or spec.table.index is None:
        return
    for fault in spec.table.index_faults:
        yield _total(fault, spec.table.index) if fault.kind == "total" else _named(fault, spec.table.index)


def _named(fault: IndexFault, index: str) -> Finding:
    code, severity, what, consequence = _RULES[fault.kind]
    count = len(fault.names)
    return Finding(
        code,
        severity,
        f"{what}: {fault.said[0]}{f' and {count - 1} more' if count > 1 else ''}",
        consequence,
        key=fault.names[0],
        file=index,
        evidence={"kind": fault.kind, "count": count, "first": list(fault.said[:_SHOWN])},
    )


def _total(fault: IndexFault, index: str) -> Finding:
    total, stored = fault.numbers or (None, 0)
    # Anything may stand there, of any length.
    shown = total if isinstance(total, int) else f"no whole number but a {type(total).__name__}"
    return Finding(
        "INDEX-TOTAL",
        "info",
        f"total_size is {shown}, the tensors take {stored} bytes",
        "nothing here uses it; a reader that plans memory by it is misled",
        key="metadata.total_size",
        file=index,
        evidence={"total_size": shown, "stored_bytes": stored},
    )
