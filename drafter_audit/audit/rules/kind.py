"""What the checkpoint is: no drafter, or one of an unknown kind or trainer."""

from __future__ import annotations

from drafter_audit.audit.code import Code
from drafter_audit.audit.finding import Finding, Findings
from drafter_audit.drafter.signatures import declares_eagle3
from drafter_audit.drafter.spec import DrafterSpec

CODES: tuple[Code, ...] = (
    Code(
        "KIND-UNKNOWN",
        ("warning",),
        what="This is no kind of drafter known here.",
        silent="A new kind can be loaded as an old one and hardly accept.",
        evidence="config.json and tensors fit no signature: docs/kinds.md lists them.",
        fix="Check that the reference is the drafter; if it is, report its kind.",
        source="https://github.com/sgl-project/sglang/issues/25673",
    ),
    Code(
        "NOT-A-DRAFTER",
        ("error",),
        what="config.json declares an EAGLE-3 drafter, the tensors are a plain language model's.",
        silent="The engine believes the class name until a shape fails deep inside.",
        evidence="The class name or keys, and tensors without fc and with layers of usual width.",
        fix="Name the drafter's own folder.",
        source="https://github.com/vllm-project/vllm/pull/38073",
    ),
    Code(
        "DIALECT-UNKNOWN",
        ("info",),
        what="No trainer's fingerprint was found.",
        silent="Whether embedding and head were trained is nowhere written.",
        evidence="Names and keys of no known trainer.",
        fix="Compare rows with --target.",
        source="https://github.com/SafeAILab/EAGLE/issues/303",
    ),
)


def kind(spec: DrafterSpec) -> Findings:
    if spec.kind.name == "unknown":
        yield Finding(
            "KIND-UNKNOWN",
            "warning",
            f"this is no kind of drafter known here: {spec.kind.reason}",
            "tensors are counted, their roles are not known",
        )
    elif spec.kind.name == "lm" and declares_eagle3(spec.clues):
        yield Finding(
            "NOT-A-DRAFTER",
            "error",
            "config.json declares an EAGLE-3 drafter, the tensors are those of a plain language model",
            "an engine that takes it for a drafter stops deep inside, or accepts nothing",
            evidence={"architectures": list(spec.config.architectures), "layers": len(spec.clues.layers)},
        )
    elif spec.is_drafter and spec.dialect.name == "unknown":
        yield Finding(
            "DIALECT-UNKNOWN",
            "info",
            "no trainer's fingerprint was found",
            "whether embedding and head were trained is not known",
        )
