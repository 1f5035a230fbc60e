"""What a checkpoint stores: missing tensors, leftovers, packed weights, a vocabulary map."""

from __future__ import annotations

from drafter_audit.audit.finding import Finding, Findings, Severity
from drafter_audit.drafter.names import canonical
from drafter_audit.drafter.packing import PackedWeight
from drafter_audit.drafter.roles import LEFTOVER, SECOND_COPY, UNKNOWN_PART, TensorRole
from drafter_audit.drafter.spec import DrafterSpec


def without_weights(spec: DrafterSpec) -> Findings:
    """Counts that no header proves are never passed off as measured."""
    if spec.clues.has_weights:
        return
    if not spec.parameters.counted:
        consequence = (
            f"a config.json of kind {spec.kind.name} implies no count: parameters are given as 0 and mean nothing"
        )
    else:
        consequence = "shapes and counts are what config.json implies, nothing proves them"
    severity: Severity = "info" if spec.source == "bundled" and spec.parameters.counted else "warning"
    yield Finding("NO-WEIGHTS", severity, "no weights were read", consequence)


def unknown_tensors(spec: DrafterSpec) -> Findings:
    unknown = [tensor for tensor in spec.tensors if tensor.reason == UNKNOWN_PART]
    if unknown:
        yield Finding(
            "TENSOR-UNKNOWN",
            "warning",
            f"{len(unknown)} tensors are no known part of an EAGLE drafter, such as {unknown[0].name}",
            "engines drop them silently or refuse the file",
            key=unknown[0].name,
            file=_file_of(spec, unknown[0].name),
        )


def missing(spec: DrafterSpec) -> Findings:
    if not spec.clues.has_weights:
        return
    for tensor in spec.tensors:
        if tensor.role == "missing" and tensor.name != "embed_tokens.weight":  # EMB-WIDTH tells of that one
            code = "HEAD-MISSING" if tensor.name == "lm_head.weight" else "TENSOR-MISSING"
            yield Finding(
                code,
                "error",
                f"{tensor.name} {list(tensor.shape)} is not stored",
                tensor.reason,
                key=tensor.name,
                file=_weights(spec),
            )
    arch = spec.architecture
    if arch.reduced_vocabulary and spec.kind.traits.eagle and "d2t" not in spec.clues.tensors:
        yield Finding(
            "D2T-MISSING",
            "error",
            f"the draft vocabulary has {arch.draft_vocab_size} of {arch.vocab_size} tokens and no d2t is stored",
            "engines read draft ids as target ids",
            key="d2t",
            file=_weights(spec),
        )


def second_copies(spec: DrafterSpec) -> Findings:
    """One tensor under two prefixes: which of the two an engine takes is left to the order of the file."""
    copies = [tensor for tensor in spec.tensors if tensor.reason == SECOND_COPY]
    if copies:
        yield Finding(
            "TENSOR-TWICE",
            "error",
            f"{len(copies)} tensors are stored a second time under another prefix, such as {copies[0].name}",
            "which one an engine loads is left to chance, and counts hold both",
            key=copies[0].name,
            file=_file_of(spec, copies[0].name),
        )


def leftovers(spec: DrafterSpec) -> Findings:
    for tensor in spec.tensors:
        if tensor.reason == LEFTOVER:
            yield Finding(
                "LEFTOVER",
                "warning",
                f"{tensor.name} {list(tensor.shape)} is a train-time leftover",
                f"{tensor.nbytes:,} bytes that no engine reads",
                key=tensor.name,
                file=_file_of(spec, tensor.name),
                evidence={"elements": tensor.elements, "logical": tensor.logical},
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
        file=_file_of(spec, tensors[0].name),
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
        file=_file_of(spec, names[0]),
        evidence={"names": names[:20], "tensors": len(names), **numbers},
    )


def _three_numbers(tensors: list[TensorRole]) -> dict[str, int]:
    return {
        "elements": sum(tensor.elements for tensor in tensors),
        "logical": sum(tensor.logical for tensor in tensors),
        "bytes": sum(tensor.nbytes for tensor in tensors),
    }


def _weights(spec: DrafterSpec) -> str:
    return spec.table.files[0] if spec.table and spec.table.files else "weights"


def _file_of(spec: DrafterSpec, name: str) -> str:
    tensor = (spec.table.get(name) if spec.table else None) or spec.clues.tensors.get(canonical(name))
    return tensor.file if tensor else "config.json"
