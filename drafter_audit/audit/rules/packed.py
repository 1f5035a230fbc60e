"""Packed weights: each format with its numbers, and containers that nothing tells how to read."""

from __future__ import annotations

from drafter_audit.audit.code import Code
from drafter_audit.audit.finding import Finding, Findings
from drafter_audit.audit.rules.contents import file_of
from drafter_audit.drafter.packing import PackedWeight
from drafter_audit.drafter.quantization import read_quantization
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
        "QUANT-FLAG",
        ("warning",),
        what="config.json declares quantised weights, and none is stored: all are plain floats, without scales.",
        silent="An engine that builds quantised layers keeps their empty scales, or casts what it finds.",
        evidence="quantization_config, and the dtypes in the headers.",
        fix="Remove quantization_config, or export the quantised weights; it may have been copied from the target.",
        source="deduced from https://github.com/vllm-project/vllm/pull/26590 (it decides how layers are built)",
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


_PLAIN = frozenset({"BF16", "F16", "F32", "F64", "I64", "I32", "BOOL"})
_WHILE_LOADING = ("bitsandbytes", "torchao", "quanto", "hqq")  # transformers quantises plain weights by these


def declared_only(spec: DrafterSpec) -> Findings:
    """vLLM and SGLang take a config's fp8, GPTQ, AWQ or compressed-tensors to say how the file is stored."""
    method = read_quantization(spec.config, spec.clues.quant_file).method
    stored = {tensor.dtype for tensor in spec.table or ()}
    quantised = bool(spec.clues.packing.companions) or bool(stored - _PLAIN)
    if spec.is_drafter and stored and method and method not in _WHILE_LOADING and not quantised:
        yield Finding(
            "QUANT-FLAG",
            "warning",
            f"config.json declares {method}, and all weights are plain ({', '.join(sorted(stored))})",
            "an engine builds quantised layers and finds no scales for them",
            key="quantization_config",
            evidence={"declared": method, "dtypes": sorted(stored)},
        )


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
