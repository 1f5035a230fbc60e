"""A shard index against the headers of its shards, both ways. Counts are always those of the headers."""

from __future__ import annotations

from types import MappingProxyType

from drafter_audit.audit.code import Code
from drafter_audit.audit.finding import Finding, Findings, Severity
from drafter_audit.checkpoint.table import FaultKind, IndexFault
from drafter_audit.drafter.spec import DrafterSpec

CODES: tuple[Code, ...] = (
    Code(
        "INDEX-ABSENT",
        ("error",),
        what="The shard index lists a tensor that no file holds.",
        silent="Readers that filter by what exists go on with a partial set.",
        evidence="The names, and the headers of all shards.",
        fix="Add the shard, or write the index anew.",
        source="https://github.com/NVIDIA/Model-Optimizer/pull/1417",
    ),
    Code(
        "INDEX-MISPLACED",
        ("warning",),
        what="The shard index names the wrong file of a tensor.",
        silent="Readers that open every file find it all the same; those that follow the index do not.",
        evidence="The name, the file in the index, and the file it lies in.",
        fix="Write the index anew.",
        source="https://github.com/Blaizzy/mlx-vlm/pull/1827",
    ),
    Code(
        "INDEX-UNLISTED",
        ("warning",),
        what="The shard index leaves out a tensor, or a shard of its series.",
        silent="Half of the readers load it, half leave it random.",
        evidence="The names in headers, or files, that the index lacks.",
        fix="Write the index anew, or remove the stale file.",
        source="https://github.com/Blaizzy/mlx-vlm/pull/1827",
    ),
    Code(
        "INDEX-DUPLICATE",
        ("warning",),
        what="More than one shard holds one tensor.",
        silent="An engine that reads every key of every shard keeps the last one it meets.",
        evidence="The name and the files.",
        fix="Remove the stale copy.",
        source="https://github.com/syv-ai/qwen38-27b-rtx3090/pull/123",
    ),
    Code(
        "INDEX-TOTAL",
        ("info",),
        what="total_size of the shard index is not the bytes of its tensors.",
        silent="Sizes on pages and in registries are computed from it.",
        evidence="Both numbers.",
        fix="Write the index anew.",
        source="https://github.com/embeddings-benchmark/mteb/issues/3811",
    ),
)


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
