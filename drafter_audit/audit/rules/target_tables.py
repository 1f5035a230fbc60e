"""The headers of the target's embedding and head against the sizes that the drafter was made with."""

from __future__ import annotations

from collections.abc import Iterator

from drafter_audit.audit.code import Code
from drafter_audit.audit.finding import Finding, Findings, Severity
from drafter_audit.drafter.evidence import TargetTable
from drafter_audit.drafter.spec import DrafterSpec

CODES = (
    Code(
        "TABLE-WIDTH",
        ("error", "warning"),
        what="The target's embedding or head, by its header, is of another width than the drafter reads.",
        silent="config.json of both may agree, and a drafter with an embedding of its own loads.",
        evidence="The shapes: of the target's table, and of the drafter's layer or fc.",
        fix="Name the target that the drafter was trained for.",
        source="https://github.com/vllm-project/vllm/issues/18906",
    ),
    Code(
        "TABLE-ROWS",
        ("warning",),
        what="The target's embedding has fewer rows than the drafter's vocabulary.",
        silent="Only ids beyond the table go wrong, and most texts hold none.",
        evidence="The rows of the target's table by its header, and the drafter's vocab_size.",
        fix="Set vocab_size to the target's, or name the target that the drafter was trained for.",
        source="https://github.com/vllm-project/vllm/pull/55133",
    ),
)

_EMBEDDING = "embed_tokens.weight"


def target_tables(spec: DrafterSpec) -> Findings:
    """Nothing is found where no headers were read, or where a table is packed."""
    for table in spec.target_tables:
        if spec.is_drafter:
            yield from _rows(spec, table)
            yield from _width(spec, table)


def _rows(spec: DrafterSpec, table: TargetTable) -> Findings:
    """More rows than the vocabulary are padding, which is harmless."""
    vocabulary = spec.architecture.vocab_size
    if table.part == _EMBEDDING and table.rows is not None and vocabulary is not None and table.rows < vocabulary:
        yield Finding(
            "TABLE-ROWS",
            "warning",
            f"vocab_size is {vocabulary}, the target's {table.name} has {table.rows} rows",
            "ids beyond the table are read out of bounds, or the vocabulary is another one",
            key="vocab_size",
            evidence={"drafter": vocabulary, "target_rows": table.rows, "target_tensor": table.name},
        )


def _width(spec: DrafterSpec, table: TargetTable) -> Findings:
    for what, width, severity in _readers(spec, table.part):
        if table.width is not None and width is not None and table.width != width:
            yield Finding(
                "TABLE-WIDTH",
                severity,
                f"{what} {width} wide, the target's {table.name} is {table.width}",
                "an engine stops where it puts them together, or reads another model's states",
                key="hidden_size",
                evidence={"drafter": width, "target_width": table.width, "target_tensor": table.name},
            )


def _readers(spec: DrafterSpec, part: str) -> Iterator[tuple[str, int | None, Severity]]:
    """What of the drafter must fit the table: the layer, where it borrows it; fc, which reads the target's states."""
    arch = spec.architecture
    if any(tensor.name.endswith(part) and tensor.role == "borrowed" for tensor in spec.tensors):
        yield f"{part} is borrowed from the target, and the drafter is", arch.hidden_size, "error"
    copied = any(tensor.name.endswith(part) and tensor.role == "frozen" for tensor in spec.tensors)
    if part == _EMBEDDING and copied and spec.clues.dim(part, 1) == arch.hidden_size:  # else TENSOR-SHAPE tells of it
        yield f"{part} is said to be the target's own, and is", arch.hidden_size, "error"
    elif part == _EMBEDDING and spec.kind.traits.fuses:
        yield "the states that fc reads are", arch.target_hidden_size, "warning"
