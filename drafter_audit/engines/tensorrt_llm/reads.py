"""What TensorRT-LLM reads of a drafter's config and files, and the wiring that it makes of them."""

from __future__ import annotations

from typing import Any

from drafter_audit.drafter.boundaries import default_boundaries
from drafter_audit.drafter.config_view import ConfigView
from drafter_audit.drafter.rope import read_rope
from drafter_audit.drafter.spec import DrafterSpec
from drafter_audit.drafter.wiring import declared_wiring
from drafter_audit.engines.base import Release, Rule
from drafter_audit.engines.tensorrt_llm import rules

CAPTURED = 3  # states, where the user lists no layers
LEAST_LAYERS = 6
Knobs = dict[str, tuple[Any, Rule]]


def knobs(spec: DrafterSpec, release: Release) -> Knobs:
    """Every knob of the wiring with the rule that sets it."""
    layers, arch = spec.target.num_layers, spec.architecture
    return {
        "boundaries": (default_boundaries(layers) if layers and layers >= LEAST_LAYERS else None, rules.DEFAULT_IDS),
        "slot_order": ("ascending", rules.ASCENDING),
        "pre_fc_norm": pre_fc_norm(spec, release),
        "residual": ("pre_norm", rules.RESIDUAL),
        "feedback": feedback(spec, release),
        "hidden_norm": ("hidden_norm", rules.LAYER),
        "concat": ("embedding_first", rules.LAYER),
        "token_shift": (1, rules.STEP),
        "position_offset": (0, rules.STEP),
        **rope(spec, release),
        "vocab_map": ("offset" if arch.reduced_vocabulary else "identity", rules.VOCAB),
        "embedding": ("own" if own_width(spec) else "target", rules.EMBEDDING),
        "head": ("own" if names_a_head(spec) else "target", rules.HEAD),
        "embedding_scale": (None if scales(spec) else 1.0, rules.EMBEDDING),
        "final_norm": (True, rules.FINAL_NORM),
        "last_state": ("pre_norm", rules.DEFAULT_IDS),
    }


def pre_fc_norm(spec: DrafterSpec, release: Release) -> tuple[Any, Rule]:
    """The norms that stand before fc."""
    if skips_fc(spec):
        return "none", rules.FC_SKIP
    if rules.FC_NORM.holds(release) and flag(spec, "fc_norm"):
        return "per_state", rules.FC_NORM
    if not rules.PRE_FC.holds(release):
        return "none", rules.PRE_FC_OLD
    return ("whole" if nested_flag(spec, "norm_before_fc") else "none"), rules.PRE_FC


def feedback(spec: DrafterSpec, release: Release) -> tuple[Any, Rule]:
    """What the next step reads."""
    rule = rules.FEEDBACK if rules.FEEDBACK.holds(release) else rules.FEEDBACK_OLD
    said = nested_flag(spec, "return_hidden_post_norm") or (rule is rules.FEEDBACK and flag(spec, "norm_output"))
    return ("post_norm" if said else "pre_norm"), rule


def rope(spec: DrafterSpec, release: Release) -> Knobs:
    """Base and scaling, as the transformers of that release reads them."""
    rule = rules.ROPE_OLD if rules.ROPE_OLD.holds(release) else rules.ROPE
    hidden = ("rope_parameters",) if rule is rules.ROPE_OLD else ()
    config = {key: value for key, value in spec.config.raw.items() if key not in hidden}
    read = read_rope(ConfigView(config, spec.config.where))
    scaling = tuple(sorted((("type", read.type), *read.scaling)))
    return {"rope_theta": (read.theta, rule), "rope_scaling": (None if read.type == "default" else scaling, rule)}


def nulls(spec: DrafterSpec) -> list[str]:
    """Keys that are null, and must not be there if they are."""
    return [key for key in ("eagle_config", "target_hidden_size") if spec.config.raw.get(key, 0) is None]


def width(spec: DrafterSpec) -> int | None:
    """How wide it takes one state to be."""
    declared = spec.sizes.declared
    return declared["target_hidden_size"] or spec.architecture.hidden_size


def skips_fc(spec: DrafterSpec) -> bool:
    """States that together are as wide as the drafter go past fc, and past the norms before it."""
    return spec.kind.traits.fuses and (width(spec) or 0) * CAPTURED == spec.architecture.hidden_size


def own_width(spec: DrafterSpec) -> bool:
    """Whether the drafter is of another width than the states, and so has an embedding of its own."""
    return width(spec) != spec.architecture.hidden_size


def scales(spec: DrafterSpec) -> bool:
    """Gemma multiplies its embedding's rows in the model: whether the drafter gets them so was not read."""
    return any(name.startswith("gemma") for name in spec.target.model_types)


def names_a_head(spec: DrafterSpec) -> bool:
    """Any tensor with lm_head in its name, a trainer's leftover too; without weights, as the dialect has it."""
    if spec.clues.has_weights:
        return spec.clues.stored("lm_head")
    declared = declared_wiring(spec)
    return declared is not None and declared.head == "own"


def flag(spec: DrafterSpec, key: str) -> bool:
    """A switch; one that is absent is off."""
    return bool(spec.config.boolean(key))


def nested_flag(spec: DrafterSpec, key: str) -> bool:
    """The same in eagle_config."""
    return bool(spec.config.eagle.boolean(key))
