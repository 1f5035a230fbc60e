"""What sampled rows of the target say of a drafter's embedding and head. Nothing is found where none were read."""

from __future__ import annotations

from dataclasses import replace

from drafter_audit.audit.code import Code
from drafter_audit.audit.finding import Finding, Findings, Severity
from drafter_audit.drafter.evidence import Evidence
from drafter_audit.drafter.spec import DrafterSpec

CODES: tuple[Code, ...] = (
    Code(
        "EMB-UNRELATED",
        ("error", "warning"),
        what="The embedding is not the target's, although it should be. A warning where the trainer is unknown.",
        silent="SGLang puts the target's in its place and works; vLLM keeps it and accepts nothing.",
        evidence="Sampled rows of both: cosine, norm ratio, largest difference.",
        fix="Export again with the target's embedding, or leave it out.",
        source="https://github.com/lightseekorg/TorchSpec/issues/38",
    ),
    Code(
        "EMB-NEAR",
        ("warning",),
        what="The embedding is nearly the target's: a few rows differ, or all by a little.",
        silent=(
            "An engine that shares equal tables decides by the rows it sees, under tensor parallelism by each "
            "rank's own."
        ),
        evidence="The rows that differ, of those sampled.",
        fix="Export a true copy, or leave it out.",
        source="https://github.com/vllm-project/vllm/pull/50280",
    ),
    Code(
        "HEAD-NEAR",
        ("warning",),
        what="The head is nearly the target's, and is not said to be trained, or differs in a few rows only.",
        silent="As for an embedding: ranks may decide differently whether to share it.",
        evidence="The rows that differ, of those sampled.",
        fix="Export a true copy, or say that it was trained.",
        source="https://github.com/vllm-project/vllm/pull/50280",
    ),
    Code(
        "EMB-EQUAL",
        ("info",),
        what="The embedding is the target's, although its trainer is said to train it.",
        silent="It works; a run that should have trained it did not.",
        evidence="Sampled rows, equal to the target's.",
        fix="Check that its gradient was on.",
        source="vllm-project/speculators@c05b95b src/speculators/models/eagle3/core.py:68",
    ),
    Code(
        "HEAD-EQUAL",
        ("info",),
        what="The head is the target's, although its trainer starts it afresh and trains it.",
        silent="It works; a run that should have trained it did not, or the export took the target's.",
        evidence="Sampled rows, equal to the target's.",
        fix="Check that the trained head was exported.",
        source="https://github.com/sgl-project/SpecForge/issues/478",
    ),
    Code(
        "ROWS-NONFINITE",
        ("error",),
        what="Sampled rows hold a NaN or an infinity.",
        silent="Logits of NaN are sampled like any others, and every draft is refused.",
        evidence="How many of the compared values.",
        fix="Export again: a trainer that fills with NaN before loading left it there.",
        source="vllm-project/speculators@c05b95b src/speculators/model.py:73",
    ),
    Code(
        "EVIDENCE-NONE",
        ("warning",),
        what="A target was named, and no rows were compared with it, or not those of one tensor.",
        silent="Roles by the trainer's rule look like proved ones.",
        evidence="The reason.",
        fix="Name a target whose weights can be read, or the one file that holds the tensor.",
        source="https://github.com/NVIDIA/Model-Optimizer/pull/1417",
    ),
)


_RELATED = 0.5  # cosine from which two tables that differ are still one, trained further: random ones are near 0


_BROKEN = "one of them in the way of a token spoils its draft: it looks so where weights were never loaded"


def evidence(spec: DrafterSpec) -> Findings:
    """One finding for each tensor whose rows say other than its rule, or say nothing."""
    if spec.evidence_none is not None and not _nothing_stored(spec):
        yield Finding(
            "EVIDENCE-NONE",
            "warning",
            f"no rows were compared with the target's: {spec.evidence_none}",
            "roles are by the trainer's rule alone",
        )
    for one in spec.evidence:
        found = _judge(one)
        if found is not None:
            yield replace(found, file=spec.table[one.tensor].file if spec.table else "weights")


def _nothing_stored(spec: DrafterSpec) -> bool:
    """Whether a drafter borrows both tables, so that nothing needs proof; its level says that no rows were read."""
    tables = ("embed_tokens.weight", "lm_head.weight")
    return spec.table is not None and spec.is_drafter and not any(map(spec.clues.tensors.get, tables))


def _judge(one: Evidence) -> Finding | None:
    if one.map_leads_outside:
        return _finding(one, "VOCAB-MISMATCH", "error", "its map is damaged, or made for another target's vocabulary")
    if one.closeness is None:
        return _finding(one, "EVIDENCE-NONE", "warning", "its role is by the trainer's rule alone")
    if one.is_broken:
        count = one.closeness.non_finite
        what = (
            f"{one.tensor}, or the target's {one.target_tensor}, holds NaN or infinity: {count} of the values compared"
        )
        return replace(_finding(one, "ROWS-NONFINITE", "error", _BROKEN), what=what)
    if one.is_copy:
        return _copy(one) if one.rule.role == "trainable" else None
    if one.differs_slightly and one.rule.role == "trainable":
        return None  # that is what training does
    if one.kind == "nearly_equal":
        return _finding(one, "HEAD-NEAR" if one.is_head else "EMB-NEAR", "warning", _near(one))
    return None if one.is_head else _unrelated(one)


def _copy(one: Evidence) -> Finding:
    consequence = (
        f"it is counted as frozen, although {one.rule.reason}: it was exported from the target, or never moved"
    )
    return _finding(one, "HEAD-EQUAL" if one.is_head else "EMB-EQUAL", "info", consequence)


def _near(one: Evidence) -> str:
    """vllm-project/vllm#50280: ranks that hold no differing row shared the target's table, the others did not."""
    if one.differs_slightly:
        return "it was trained on a little, or exported with a loss: no engine that shares what is equal will share it"
    ranges = ", ".join(f"{first}" if first == last else f"{first}-{last}" for first, last in one.differing[:8])
    more = f" and {len(one.differing) - 8} more ranges" if len(one.differing) > 8 else ""
    return (
        f"sampled rows {ranges}{more} differ: an engine that shares what is equal decides by the rows it sees, under "
        "tensor parallelism by those of one rank"
    )


def _unrelated(one: Evidence) -> Finding | None:
    """lightseekorg/TorchSpec#38, sgl-project/SpecForge#645: an exporter that saved the embedding it had initialised."""
    if one.rule.role == "trainable":
        return None
    cosine = one.closeness.cosine if one.closeness else None
    what = "a random or foreign embedding was exported" if cosine is None or cosine < _RELATED else "it was changed"
    consequence = f"{what}: SGLang replaces it with the target's, vLLM keeps it and drafts with it"
    return _finding(one, "EMB-UNRELATED", "error" if one.rule.role == "frozen" else "warning", consequence)


def _finding(one: Evidence, code: str, severity: Severity, consequence: str) -> Finding:
    keys = ("class", "norm_ratio", "max_abs", "cosine", "rows_sampled", "differing_ranges")
    told = one.to_dict()
    return Finding(
        code,
        severity,
        f"{one.tensor} is {one.words}",
        consequence,
        key=one.tensor,
        evidence={key: told[key] for key in keys},
    )
