"""Positions: the drafter's rope and the target's."""

from __future__ import annotations

from typing import Any

from drafter_audit.audit.code import Code
from drafter_audit.audit.finding import Finding, Findings
from drafter_audit.audit.rules.reach import attends
from drafter_audit.drafter.config_view import ConfigView
from drafter_audit.drafter.rope import Rope
from drafter_audit.drafter.spec import DrafterSpec
from drafter_audit.facts import registry

CODES = (
    Code(
        "ROPE-DIFF",
        ("warning", "info"),
        what=(
            "The drafter's rope differs from its target's: base, type, a number of the scaling, the share of a head "
            "that is turned, or the split among the axes of an image."
        ),
        silent="Acceptance is a little lower everywhere, or falls with the position; nothing stops.",
        evidence="config.json of both, the layouts of transformers 4 and 5 brought to one.",
        fix=("Compare with what training used. Some exporters differ on purpose, so this is never an error."),
        source=(
            "https://github.com/NVIDIA/Model-Optimizer/pull/917, https://github.com/vllm-"
            "project/speculators/pull/574, https://github.com/vllm-project/speculators/issues/738"
        ),
    ),
    Code(
        "ROPE-UNSUPPORTED",
        ("error",),
        what="The rope type is one that neither vLLM nor SGLang knows.",
        silent=(
            "It is loud there: both stop. A trainer or another engine may fall back to another type without a word."
        ),
        evidence="The types that both sources branch on.",
        fix="Write the type under the name that engines know.",
        source=(
            "vLLM 0.32.0 layers/rotary_embedding/__init__.py:102-350, SGLang 0.5.23 "
            "layers/rotary_embedding/factory.py:201-438, https://github.com/NVIDIA-NeMo/Automodel/pull/2399"
        ),
    ),
    Code(
        "ROPE-INTERLEAVED",
        ("warning",),
        what=(
            "A drafter with latent attention declares that its rope turns halves, not pairs (rope_interleave false)."
        ),
        silent="Every query and key is turned in the wrong order; text stays right, acceptance is lost.",
        evidence="config.json alone.",
        fix="Serve it with an engine that reads the key, or reorder the rows of the projections.",
        source=(
            "vLLM 0.32.0 models/deepseek_v2.py:1126 turns pairs always; SGLang 0.5.23 models/deepseek_v2.py:2166 "
            "reads it"
        ),
    ),
)

_KNOWN_TYPES = frozenset({
    "default", "linear", "dynamic", "ntk", "yarn", "deepseek_yarn", "deepseek_llama_scaling", "llama3", "mllama4",
    "longrope", "proportional", "openpangu", "bailing_mrope",
})  # fmt: skip
_SCALES = frozenset({"partial_rotary_factor", "mrope_section"})  # comparable between types of rope, too


def rope_against_target(spec: DrafterSpec) -> Findings:
    ours, theirs = spec.architecture.rope, spec.target.rope
    if theirs is None or not attends(spec) or not _both_told(spec):
        return
    apart = rope_differences(ours, theirs)
    if apart:
        image = all(name.startswith("mrope") for name, _ in apart)  # text has one position for all axes
        said = ", ".join(f"{name} is {_shown(one)}, the target's {_shown(other)}" for name, (one, other) in apart)
        yield Finding(
            "ROPE-DIFF",
            "info" if image else "warning",
            said,
            "text drafts the same; after an image its positions are not the target's"
            if image
            else f"it drafts right only where training ran with the drafter's own{_added_yarn(ours, theirs)}",
            key="rope_theta" if apart[0][0] == "rope_theta" else "rope_scaling",
            evidence={"drafter": ours.to_dict(), "target": theirs.to_dict()},
        )


def rope_differences(ours: Rope, theirs: Rope) -> list[tuple[str, tuple[Any, Any]]]:
    """Each setting in which two ropes differ, with both values; None for one that is not set.

    Numbers of the scaling are compared where the types are the same: those of another type mean other things.
    """
    one, other = dict(ours.scaling), dict(theirs.scaling)
    alike = ours.type == theirs.type
    names = sorted(name for name in one.keys() | other.keys() if alike or name in _SCALES)
    pairs: list[tuple[str, tuple[Any, Any]]] = [
        ("rope_theta", (ours.theta, theirs.theta)),
        ("rope type", (ours.type, theirs.type)),
        *((name, (one.get(name), other.get(name))) for name in names),
    ]
    return [(name, values) for name, values in pairs if values[0] != values[1]]


def _both_told(spec: DrafterSpec) -> bool:
    """What a config leaves out has its default; what a record does not hold is not known."""
    target = spec.target
    theirs = target.ref if (target.read_from or "").startswith("bundled") else None
    return _told(spec.ref if spec.source == "bundled" else None) and _told(theirs)


def _told(bundled: str | None) -> bool:
    """Whether a record settles its model's rope: it holds the whole config, or the keys themselves."""
    if bundled is None:
        return True
    record = registry.find(bundled) or registry.load(bundled)
    config = ConfigView(record.config, bundled)
    keys = {*config.raw, *config.layer}
    return record.config_complete or "rope_parameters" in keys or {"rope_theta", "rope_scaling"} <= keys


def _added_yarn(ours: Rope, theirs: Rope) -> str:
    factor = dict(ours.scaling).get("factor")
    if ours.type != "yarn" or theirs.type != "default":
        return ""
    same = " of 32, as here" if factor == 32 else " of 32"
    return f"; ModelOpt's exporter adds YaRN that training did not use, by default with a factor{same}"


def _shown(value: object) -> str:
    return "not set" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def rope_type(spec: DrafterSpec) -> Findings:
    rope = spec.architecture.rope
    if attends(spec) and rope.type not in _KNOWN_TYPES:
        yield Finding(
            "ROPE-UNSUPPORTED",
            "error",
            f"the rope type is {rope.type}",
            "vLLM and SGLang do not know it and stop",
            key="rope_scaling",
            evidence=rope.to_dict(),
        )
    if spec.kind.name == "eagle3_mla" and spec.config.boolean("rope_interleave") is False:
        yield Finding(
            "ROPE-INTERLEAVED",
            "warning",
            "rope_interleave is false",
            "vLLM's latent attention turns pairs all the same, SGLang's turns halves as declared",
            key="rope_interleave",
        )
