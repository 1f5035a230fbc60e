"""What the entries of a vocabulary map do: identity prefix, absolute ids, entries that lead nowhere or astray."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from drafter_audit.audit.code import Code
from drafter_audit.audit.finding import Finding, Findings, Severity
from drafter_audit.drafter.spec import DrafterSpec
from drafter_audit.drafter.stored_values import NOT_WHOLE
from drafter_audit.drafter.value_reads import D2T, HEAD, T2D

if TYPE_CHECKING:  # the module imports numpy
    from drafter_audit.measure.vocabulary import Slip, VocabularyMap

_TRAINS_FINE = "Shapes fit, training masks by the same map, and an engine that drafts other tokens is only slower."

CODES = (
    Code(
        "D2T-ZERO",
        ("error", "info"),
        what=("d2t is all zeros although the draft vocabulary is reduced: draft ids stand for the first N target ids."),
        silent=(
            "The loss masks the target by the same slice, so training looks good, and no engine looks into the map."
        ),
        evidence=("d2t is all zeros, N and the target's vocabulary; t2d marks the first N alone, or others."),
        fix=("Export the map of the tokens that training drafted; train again if it was trained with this one."),
        source=(
            "https://github.com/verl-project/verl-SpeCo/pull/66, https://github.com/NVIDIA-NeMo/Automodel/pull/2447; "
            "legal where the vocabularies are equal: https://github.com/SafeAILab/EAGLE/issues/222"
        ),
    ),
    Code(
        "D2T-ABS",
        ("error",),
        what="d2t holds target ids where engines add it to the draft id.",
        silent=(
            "Both are whole numbers of one shape, and an id beyond the vocabulary is read past the end, not refused."
        ),
        evidence=(
            "Read as offsets the entries leave the vocabulary or repeat, or no two tokens are neighbours; read as ids "
            "they fit, and many are."
        ),
        fix="Subtract the draft id from each entry; a GGUF file alone holds ids.",
        source=(
            "https://github.com/SafeAILab/EAGLE/issues/222; SGLang's and vLLM's models/llama_eagle3.py add arange to "
            "d2t"
        ),
    ),
    Code(
        "D2T-RANGE",
        ("error",),
        what="An entry of d2t leads outside the target's vocabulary.",
        silent=("Converters check lengths only; on a GPU an index past the end may read another tensor's memory."),
        evidence="How many entries, and the first draft id and its target id.",
        fix="Export d2t again from the vocabulary of this target.",
        source="https://github.com/mobilint/mblt-model-zoo/pull/110",
    ),
    Code(
        "D2T-DUP",
        ("error",),
        what="Two draft ids stand for one target id.",
        silent=_TRAINS_FINE,
        evidence="How many entries, and the first whose target id an earlier one has.",
        fix="Export d2t again: each target id once.",
        source="vLLM llama_eagle3.py writes the logits of draft ids to their target ids, so of two the last stays; "
        "llama.cpp's converter refuses repeats",
    ),
    Code(
        "D2T-ORDER",
        ("info",),
        what="The target ids of d2t do not ascend.",
        silent="It is legal, engines map row by row.",
        evidence="How many entries are below the one before, and the first.",
        fix="None is needed if the rows of lm_head are in the same order.",
        source="SpecForge a6b6b02 specforge/data/preprocessing.py:761 sorts the chosen tokens",
    ),
    Code(
        "D2T-T2D",
        ("error",),
        what="t2d marks other target ids than d2t leads to.",
        silent="Engines read d2t alone and skip t2d, trainers read t2d: neither sees both.",
        evidence="Ids that are marked and not mapped, mapped and not marked, with the first of each.",
        fix="Export both from one vocabulary; which of them training used decides which is right.",
        source="https://github.com/sgl-project/SpecForge/pull/76 (maps that do not fit each other)",
    ),
    Code(
        "D2T-DTYPE",
        ("error", "warning"),
        what="d2t is stored in a dtype that is no index. An error where it cannot hold the map, or holds fractions.",
        silent="Some engines cast it while loading and lose what does not fit.",
        evidence="Its dtype.",
        fix="Store it as int64.",
        source=("SGLang llama_eagle3.py indexes with d2t + arange as it is loaded, vLLM copies it into int64"),
    ),
)

_PADDING = 0.01
"""Share of the target's ids that may lack a draft id before an identity map is called wrong: padding rows at the end of
a vocabulary have no tokens (vllm-project/vllm#55133: 200,058 tokens in 201,024 rows)."""


def vocabulary_map(spec: DrafterSpec) -> Findings:
    """The first of all zeros and absolute ids, which explain the rest; else each way in which entries are wrong."""
    yield from _dtype(spec)
    found = spec.values.map if spec.values is not None else None
    if spec.values is None or found is None or not spec.is_drafter or (spec.values.blank and found.marked == 0):
        return
    missing = _smallest_vocabulary(spec, found) - found.entries
    if found.identity and missing > 0:
        yield _zero(spec, found, missing)
    elif found.holds_ids:
        yield _absolute(spec, found)
    else:
        yield from _outside(spec, found)
        yield from _repeated(spec, found)
        yield from _against_marks(spec, found)
        yield from _order(spec, found)


def _smallest_vocabulary(spec: DrafterSpec, found: VocabularyMap) -> int:
    """A draft vocabulary as large as the target's, padded or not, maps identically (vllm-project/vllm#55133)."""
    sizes = (spec.architecture.vocab_size, spec.target.vocab_size)
    return min((size for size in sizes if size), default=found.entries)


def _dtype(spec: DrafterSpec) -> Findings:
    tensor = spec.clues.tensors.get(D2T)
    if tensor is None or not spec.is_drafter or tensor.dtype in ("I64", "I32", "U64", "U32"):
        return
    unread = dict(spec.values.unread) if spec.values is not None else {}
    broken = unread.get(tensor.name) == NOT_WHOLE
    wrong = f"; {NOT_WHOLE}, and a cast makes other ids of them" if broken else ""
    if tensor.dtype not in ("F64", "F32", "I16", "U16"):
        wrong += "; large offsets do not fit, so draft ids are mapped to the wrong tokens"
    yield _finding(
        spec,
        "D2T-DTYPE",
        f"d2t is stored as {tensor.dtype}",
        f"SGLang indexes with it and stops on a float, vLLM casts it{wrong}",
        {"dtype": tensor.dtype},
        severity="error" if wrong else "warning",
    )


def _zero(spec: DrafterSpec, found: VocabularyMap, missing: int) -> Finding:
    marked = "just those" if found.marks_prefix else "others" if found.marked else "none"
    marks = "" if found.marked is None else f", t2d marks {marked}"
    what = f"d2t maps the {found.entries:,} draft ids to the first {found.entries:,} target ids{marks}"
    padding = missing <= _PADDING * (found.entries + missing)
    wrong = "no other token is ever drafted, and a head of other tokens has every draft rejected"
    right = f"the last {missing} target ids are never drafted, which is right if they are padding"
    evidence = {"draft_vocabulary": found.entries, "target_ids_left_out": missing, "t2d_marks": found.marked,
                "t2d_prefix": found.marks_prefix}  # fmt: skip
    severity: Severity = "info" if padding else "error"
    return _finding(spec, "D2T-ZERO", what, right if padding else wrong, evidence, severity=severity)


def _absolute(spec: DrafterSpec, found: VocabularyMap) -> Finding:
    slips = {"outside": found.outside, "repeated": found.repeated, "unmarked": found.unmarked}
    misfits = {name: slip.to_dict() for name, slip in slips.items() if slip}
    told = "as ids its entries fit the vocabulary, as offsets they do not"
    if not misfits and found.neighbours:
        told = f"as ids {found.neighbours} of them are neighbours, as offsets no two tokens would be"
    return _finding(
        spec,
        "D2T-ABS",
        f"d2t holds target ids, not offsets: {told}",
        "engines add the draft id to each entry, so drafts are other tokens or lie outside the vocabulary",
        misfits | {"neighbours": found.neighbours},
    )


def _outside(spec: DrafterSpec, found: VocabularyMap) -> Findings:
    if found.outside:
        what = f"{_entries(found.outside)} outside the target's {found.vocabulary or 'vocabulary'} ids"
        what += f", such as draft id {found.outside.row} to {found.outside.token}"
        yield _slipped(
            spec, "D2T-RANGE", what, "engines write or read past the end of the logits, or stop", found.outside
        )


def _repeated(spec: DrafterSpec, found: VocabularyMap) -> Findings:
    if found.repeated:
        what = f"{_entries(found.repeated)} to target ids that earlier ones have, such as draft id {found.repeated.row}"
        consequence = "of two logits for one token vLLM keeps one, which one is left to chance"
        yield _slipped(spec, "D2T-DUP", f"{what} to {found.repeated.token}", consequence, found.repeated)


def _told_elsewhere(spec: DrafterSpec, found: VocabularyMap) -> int:
    """How many ids may be marked in vain, or mapped and not marked, for a cause of its own: D2T-RANGE, D2T-DUP,
    D2T-LENGTH."""
    slips = sum(slip.count for slip in (found.outside, found.repeated) if slip)
    return slips + abs(found.entries - (spec.clues.dim(HEAD, 0) or found.entries))


def _against_marks(spec: DrafterSpec, found: VocabularyMap) -> Findings:
    told, known = [], _told_elsewhere(spec, found)
    if max(slip.count if slip else 0 for slip in (found.unmarked, found.unmapped)) <= known:
        return
    if found.unmarked:
        told.append(f"t2d does not mark {found.unmarked.count} ids that d2t leads to, such as {found.unmarked.token}")
    if found.unmapped:
        told.append(f"d2t leads to none of {found.unmapped.count} ids that t2d marks, such as {found.unmapped.token}")
    if told:
        slips = {"unmarked": found.unmarked, "unmapped": found.unmapped}
        yield _finding(
            spec,
            "D2T-T2D",
            "; ".join(told),
            "engines read d2t alone: where training went by t2d, rows of the head stand for tokens they never learned",
            {"d2t": found.entries, "t2d_marks": found.marked}
            | {name: slip.to_dict() for name, slip in slips.items() if slip},
            key=T2D,
        )


def _order(spec: DrafterSpec, found: VocabularyMap) -> Findings:
    if found.descending and not found.outside:
        what = (
            f"the target ids of d2t do not ascend: {found.descending.count} are below the one before, such as draft id"
        )
        consequence = "legal if the rows of lm_head are in the same order; the trainers known here sort"
        what = f"{what} {found.descending.row} to {found.descending.token}"
        yield _slipped(spec, "D2T-ORDER", what, consequence, found.descending, severity="info")


def _entries(slip: Slip) -> str:
    return "1 entry of d2t leads" if slip.count == 1 else f"{slip.count} entries of d2t lead"


def _slipped(
    spec: DrafterSpec, code: str, what: str, consequence: str, slip: Slip, *, severity: Severity = "error"
) -> Finding:
    return _finding(spec, code, what, consequence, slip.to_dict(), severity=severity)


def _finding(
    spec: DrafterSpec,
    code: str,
    what: str,
    consequence: str,
    evidence: Mapping[str, Any],
    *,
    severity: Severity = "error",
    key: str = D2T,
) -> Finding:
    file = spec.clues.tensors[key].file
    return Finding(code, severity, what, consequence, key=spec.clues.tensors[key].name, file=file, evidence=evidence)
