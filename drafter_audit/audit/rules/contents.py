"""What a checkpoint stores: missing tensors, leftovers, packed weights, a vocabulary map."""

from __future__ import annotations

from drafter_audit.audit.finding import Finding, Findings, Severity
from drafter_audit.drafter.names import canonical
from drafter_audit.drafter.roles import LEFTOVER, SECOND_COPY, UNKNOWN_PART
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
        if tensor.role == "missing":
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
                evidence={"elements": tensor.elements},
            )


def packed(spec: DrafterSpec) -> Findings:
    names = [t.name for t in spec.tensors if t.name.endswith(("weight_packed", "qweight")) or t.dtype in {"U32", "F4"}]
    if names:
        yield Finding(
            "PACKED-WEIGHTS",
            "warning",
            f"{len(names)} tensors hold packed weights, such as {names[0]}",
            "they are counted as stored, so parameter counts are of containers, not of weights",
            key=names[0],
            file=_file_of(spec, names[0]),
        )


def _weights(spec: DrafterSpec) -> str:
    return spec.table.files[0] if spec.table and spec.table.files else "weights"


def _file_of(spec: DrafterSpec, name: str) -> str:
    tensor = (spec.table.get(name) if spec.table else None) or spec.clues.tensors.get(canonical(name))
    return tensor.file if tensor else "config.json"
