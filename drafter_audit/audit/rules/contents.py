"""What a checkpoint stores: missing tensors, unknown ones, second copies, leftovers."""

from __future__ import annotations

from drafter_audit.audit.code import Code
from drafter_audit.audit.finding import Finding, Findings, Severity
from drafter_audit.drafter.names import canonical
from drafter_audit.drafter.roles import LEFTOVER, SECOND_COPY, UNKNOWN_PART, TensorRole
from drafter_audit.drafter.spec import DrafterSpec

CODES: tuple[Code, ...] = (
    Code(
        "NO-WEIGHTS",
        ("warning", "info"),
        what="No weights were read, so nothing is counted from them. Info for a bundled record, which has none.",
        silent="Counts that a config implies look like measured ones.",
        evidence="The reference has no weight file.",
        fix="Name the folder or repository that holds the weights.",
        source="https://github.com/embeddings-benchmark/mteb/issues/3811",
    ),
    Code(
        "TENSOR-UNKNOWN",
        ("warning",),
        what="A tensor is no known part of an EAGLE drafter.",
        silent="SGLang's Llama class passes over names it does not know, without a word.",
        evidence="The names that are left after every spelling of every trainer.",
        fix="Rename it to what the engine expects, or leave it out if it was for training only.",
        source="SGLang 0.5.23 sglang/srt/models/llama_eagle3.py:370",
    ),
    Code(
        "HEAD-MISSING",
        ("error",),
        what="The head is not stored, and the target's cannot stand in, for the draft vocabulary is reduced.",
        silent="An engine that warns of unexpected weights only leaves the head random: it serves and accepts nothing.",
        evidence="No lm_head among the tensors; draft_vocab_size below vocab_size.",
        fix="Export the head that was trained.",
        source="https://github.com/sgl-project/sglang/issues/27829",
    ),
    Code(
        "TENSOR-MISSING",
        ("error",),
        what="A tensor that the drafter needs is not stored.",
        silent="Loaders that are not strict keep their random or unit weights in its place.",
        evidence="The tensors that this shape calls for, less those in the headers.",
        fix="Export again, with the names that were lost.",
        source="https://github.com/vllm-project/speculators/issues/1114",
    ),
    Code(
        "D2T-MISSING",
        ("error",),
        what="The draft vocabulary is reduced and no map to the target's is stored.",
        silent="Draft ids are taken for the first target ids: training scores stay high, acceptance falls to nothing.",
        evidence="draft_vocab_size or the head's rows below vocab_size; no d2t in the headers.",
        fix="Store d2t: target id less draft id, one int64 for each draft token.",
        source="https://github.com/NVIDIA-NeMo/Automodel/pull/2447",
    ),
    Code(
        "TENSOR-TWICE",
        ("error",),
        what="One tensor is stored under two spellings of its name.",
        silent="A loader that accepts both takes the one that comes last.",
        evidence="Both names, as stored.",
        fix="Remove the stale copy from the file.",
        source="SGLang 0.5.23 sglang/srt/models/llama_eagle3.py:372",
    ),
    Code(
        "LEFTOVER",
        ("warning",),
        what="A head or norm that only the trainer used is stored.",
        silent="Engines pass over it: it costs download, memory at load, and a wrong idea of the drafter's size.",
        evidence="Its name and size.",
        fix="Remove it from the file.",
        source="https://github.com/vllm-project/speculators/pull/962",
    ),
)


_EMBEDDING, _HEAD = "embed_tokens.weight", "lm_head.weight"
_SHOWN = 20  # names in the evidence


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
            file=file_of(spec, unknown[0].name),
        )


def missing(spec: DrafterSpec) -> Findings:
    if not spec.clues.has_weights:
        return
    lost = [one for one in spec.tensors if one.role == "missing" and one.name != _EMBEDDING]  # EMB-WIDTH tells of it
    heads, others = ([one for one in lost if (one.name == _HEAD) is head] for head in (True, False))
    for code, group in (("HEAD-MISSING", heads), ("TENSOR-MISSING", _without_lost_norms(spec, others))):
        if group:
            yield _missing(spec, code, group)
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


def _without_lost_norms(spec: DrafterSpec, tensors: list[TensorRole]) -> list[TensorRole]:
    """Without the norms before fc of which none is stored: NORM-FLAG tells of those."""
    lost = tuple(prefix for prefix in ("input_norm.", "fc_norm.") if not spec.clues.stored(prefix))
    return [tensor for tensor in tensors if not tensor.name.startswith(lost)]


def _missing(spec: DrafterSpec, code: str, tensors: list[TensorRole]) -> Finding:
    """One finding for all of them: they were lost together."""
    first = tensors[0]
    more = f", nor are {len(tensors) - 1} more" if len(tensors) > 1 else ""
    return Finding(
        code,
        "error",
        f"{first.name} {list(first.shape)} is not stored{more}",
        first.reason,
        key=first.name,
        file=_weights(spec),
        evidence={"missing": [tensor.name for tensor in tensors[:_SHOWN]], "count": len(tensors)},
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
            file=file_of(spec, copies[0].name),
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
                file=file_of(spec, tensor.name),
                evidence={"elements": tensor.elements, "logical": tensor.logical},
            )


def _weights(spec: DrafterSpec) -> str:
    return spec.table.files[0] if spec.table and spec.table.files else "weights"


def file_of(spec: DrafterSpec, name: str) -> str:
    tensor = (spec.table.get(name) if spec.table else None) or spec.clues.tensors.get(canonical(name))
    return tensor.file if tensor else "config.json"
