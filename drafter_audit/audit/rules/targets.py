"""The drafter against its target: unknown, not readable, of another vocabulary or head size."""

from __future__ import annotations

from drafter_audit.audit.code import Code
from drafter_audit.audit.finding import Finding, Findings
from drafter_audit.drafter.spec import DrafterSpec

CODES: tuple[Code, ...] = (
    Code(
        "TARGET-UNKNOWN",
        ("info",),
        what="No file says which target the drafter is for.",
        silent="A drafter runs on a newer or tuned target, and accepts less.",
        evidence="Neither config, card, project file nor record names one.",
        fix="Pass --target, or name it in drafter-audit.toml.",
        source="https://github.com/SafeAILab/EAGLE/issues/98",
    ),
    Code(
        "TARGET-UNREAD",
        ("warning",),
        what="The target that a file names could not be read.",
        silent="What was not checked looks like what was found right.",
        evidence="The reason, and who named the target.",
        fix="Pass --target with a reference that can be read.",
        source="https://github.com/NVIDIA/Model-Optimizer/pull/1417",
    ),
    Code(
        "VOCAB-MISMATCH",
        ("warning", "error", "info"),
        what=(
            "The drafter's vocabulary is not the target's. An error where the stored map leads outside the "
            "target's table, info where sampled rows agree and the rest is padding."
        ),
        silent="Shapes may fit all the same; the tokens then mean something else.",
        evidence="Both vocab_size, or the entries of d2t that lead outside.",
        fix="Use the target it was trained for; padding rows alone are harmless.",
        source="https://github.com/SafeAILab/EAGLE/issues/258",
    ),
    Code(
        "HEAD-DIM-TARGET",
        ("info",),
        what="The drafter's heads have another size than the target's.",
        silent="It computes right; an engine that pages both caches alike may refuse to start.",
        evidence="Both head_dim, declared or derived.",
        fix="None in the file: take an engine that pages the caches of drafter and target apart.",
        source="https://github.com/Tencent/AngelSlim/issues/5",
    ),
)


def target(spec: DrafterSpec) -> Findings:
    if not spec.is_drafter:
        return
    target = spec.target
    if target.ref is None:
        yield Finding(
            "TARGET-UNKNOWN",
            "info",
            "no file says which target this drafter is for",
            "layer ids cannot be checked against a layer count; name it with --target",
            key=None,
        )
    elif target.unread:
        yield Finding(
            "TARGET-UNREAD",
            "warning",
            f"the target {target.ref} could not be read: {target.unread}",
            "layer ids cannot be checked against its layer count",
            key=None,
            evidence={"said_by": target.said_by},
        )


def vocabulary(spec: DrafterSpec) -> Findings:
    """The drafter's vocabulary against its target's, by their configs."""
    ours, theirs = spec.architecture.vocab_size, spec.target.vocab_size
    declared = spec.sizes.declared["vocab_size"]  # where that is right, a tensor is not: SHAPE-MISMATCH, T2D-LENGTH
    if spec.is_drafter and ours and theirs and theirs not in (ours, declared):
        padded = any(one.is_copy for one in spec.evidence)  # the rows that both have are the same tokens'
        yield Finding(
            "VOCAB-MISMATCH",
            "info" if padded else "warning",
            f"vocab_size is {ours}, the target's {theirs}" + (", and sampled rows agree" if padded else ""),
            "the rest is padding" if padded else "padding rows are harmless, another tokenizer is not",
            key="vocab_size",
            evidence={"drafter": ours, "target": theirs},
        )


def target_heads(spec: DrafterSpec) -> Findings:
    """Heads of another size than the target's are allowed (Tencent/AngelSlim#5: 80 beside 128)."""
    ours, theirs = spec.architecture.head_dim, spec.target.head_dim
    if spec.kind.traits.eagle and spec.kind.name != "eagle3_mla" and ours and theirs and ours != theirs:
        yield Finding(
            "HEAD-DIM-TARGET",
            "info",
            f"head_dim is {ours}, the target's {theirs}",
            "it computes right; an engine that pages both caches alike may not start",
            key="head_dim",
            evidence={"drafter": ours, "target": theirs},
        )
