"""What a checkpoint stores: missing tensors, leftovers, packed weights, a vocabulary map."""

from __future__ import annotations

from drafter_audit.audit.finding import Finding, Findings
from drafter_audit.drafter.names import canonical
from drafter_audit.drafter.spec import DrafterSpec


def uncounted(spec: DrafterSpec) -> Findings:
    if not spec.parameters.counted:
        yield Finding(
            "NOT-COUNTED",
            "warning",
            f"no weights, and the config of a {spec.kind.name} implies no count",
            "parameters are given as 0 and mean nothing",
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
    reduced = arch.vocab_size and arch.draft_vocab_size and arch.draft_vocab_size < arch.vocab_size
    if reduced and spec.kind.name.startswith("eagle3") and "d2t" not in spec.clues.tensors:
        yield Finding(
            "D2T-MISSING",
            "error",
            f"the draft vocabulary has {arch.draft_vocab_size} of {arch.vocab_size} tokens and no d2t is stored",
            "engines read draft ids as target ids",
            key="d2t",
            file=_weights(spec),
        )


def leftovers(spec: DrafterSpec) -> Findings:
    for tensor in spec.tensors:
        if tensor.reason.startswith("leftover") and tensor.nbytes:
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
