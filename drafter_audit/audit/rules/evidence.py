"""What sampled rows of the target say of a drafter's embedding and head. Nothing is found where none were read."""

from __future__ import annotations

from dataclasses import replace

from drafter_audit.audit.finding import Finding, Findings, Severity
from drafter_audit.drafter.evidence import Evidence
from drafter_audit.drafter.spec import DrafterSpec

_RELATED = 0.5  # cosine from which two tables that differ are still one, trained further: random ones are near 0


def evidence(spec: DrafterSpec) -> Findings:
    """One finding for each tensor whose rows say other than its rule, or say nothing."""
    if spec.evidence_none is not None:
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


def _judge(one: Evidence) -> Finding | None:
    if one.map_leads_outside:
        return _finding(one, "VOCAB-MISMATCH", "error", "its map is damaged, or made for another target's vocabulary")
    if one.closeness is None:
        return _finding(one, "EVIDENCE-NONE", "warning", "its role is by the trainer's rule alone")
    if one.is_broken:
        return _finding(one, "ROWS-NONFINITE", "error", _broken(one))
    if one.is_copy:
        return _copy(one) if one.rule.role == "trainable" else None
    if one.differs_slightly and one.rule.role == "trainable":
        return None  # that is what training does
    if one.kind == "nearly_equal":
        return _finding(one, f"{_part(one)}-NEAR", "warning", _near(one))
    return None if one.is_head else _unrelated(one)


def _copy(one: Evidence) -> Finding:
    consequence = (
        f"it is counted as frozen, although {one.rule.reason}: it was exported from the target, or never moved"
    )
    return _finding(one, f"{_part(one)}-EQUAL", "info", consequence)


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


def _broken(one: Evidence) -> str:
    count = one.closeness.non_finite if one.closeness else 0
    return f"{count} of the compared values are NaN or infinite, as where weights were never loaded"


def _part(one: Evidence) -> str:
    return "HEAD" if one.is_head else "EMB"


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
