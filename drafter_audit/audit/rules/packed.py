"""Packed weights: each format with its numbers, and containers that nothing tells how to read."""

from __future__ import annotations

from drafter_audit.audit.code import Code
from drafter_audit.audit.finding import Finding, Findings
from drafter_audit.audit.rules.contents import file_of
from drafter_audit.drafter.packing import PackedWeight
from drafter_audit.drafter.roles import TensorRole
from drafter_audit.drafter.spec import DrafterSpec

CODES: tuple[Code, ...] = (
    Code(
        "PACKED-WEIGHTS",
        ("info",),
        what="Weights are packed: several parameters in one stored element.",
        silent="Pages count stored elements, which depends on the bit width.",
        evidence="Format, bits, and three numbers: stored elements, parameters, bytes.",
        fix="Nothing to mend: read the number of parameters here.",
        source="https://github.com/huggingface/hub-docs/issues/2704",
    ),
    Code(
        "PACKED-UNKNOWN",
        ("warning",),
        what="Tensors look packed and nothing tells how many parameters they hold.",
        silent="A count of their elements looks like any other count.",
        evidence="Integer containers whose quantisation neither config nor scales tell.",
        fix="Add quantization_config with the format and bits.",
        source="https://github.com/huggingface/hub-docs/issues/2704",
    ),
)


def packed(spec: DrafterSpec) -> Findings:
    """Each packed format with its three numbers, and the containers that nothing tells how to read."""
    members: dict[str, list[TensorRole]] = {}
    for tensor in spec.tensors:
        if tensor.packed:
            members.setdefault(tensor.packed, []).append(tensor)
    for tensors in members.values():
        weight = spec.clues.packing.weights[tensors[0].name]
        yield _packed(spec, weight, tensors) if weight.bits else _packed_unknown(spec, tensors)


def _packed(spec: DrafterSpec, weight: PackedWeight, tensors: list[TensorRole]) -> Finding:
    numbers = _three_numbers(tensors)
    weights = spec.clues.packing.weights
    return Finding(
        "PACKED-WEIGHTS",
        "info",
        f"{len(tensors)} tensors hold {weight.label} weights, such as {tensors[0].name}: "
        f"{numbers['elements']:,} stored elements are {numbers['logical']:,} parameters in {numbers['bytes']:,} bytes",
        "a count of stored elements, such as a page may show, is not the number of parameters",
        key=tensors[0].name,
        file=file_of(spec, tensors[0].name),
        evidence={
            "format": weight.format,
            "bits": weight.bits,
            "told_by": sorted({weights[tensor.name].told_by for tensor in tensors}),
            "tensors": len(tensors),
            **numbers,
        },
    )


def _packed_unknown(spec: DrafterSpec, tensors: list[TensorRole]) -> Finding:
    numbers = _three_numbers(tensors)
    names = [tensor.name for tensor in tensors]
    some = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return Finding(
        "PACKED-UNKNOWN",
        "warning",
        f"{len(names)} tensors look packed and nothing tells how many parameters they hold: {some}",
        f"their {numbers['elements']:,} stored elements are counted as parameters, which may be too few",
        key=names[0],
        file=file_of(spec, names[0]),
        evidence={"names": names[:20], "tensors": len(names), **numbers},
    )


def _three_numbers(tensors: list[TensorRole]) -> dict[str, int]:
    return {
        "elements": sum(tensor.elements for tensor in tensors),
        "logical": sum(tensor.logical for tensor in tensors),
        "bytes": sum(tensor.nbytes for tensor in tensors),
    }
