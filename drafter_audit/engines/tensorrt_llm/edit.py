"""The edit of config.json that brings TensorRT-LLM nearest to a wanted wiring; layers are listed at launch alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from drafter_audit.drafter.spec import DrafterSpec
from drafter_audit.drafter.wiring import Wiring
from drafter_audit.engines.base import SECTION, Release
from drafter_audit.engines.flat import to_lift
from drafter_audit.engines.tensorrt_llm import rules
from drafter_audit.engines.tensorrt_llm.reads import feedback, flag, nested_flag, nulls, rope, width


def edit_config(spec: DrafterSpec, release: Release, wanted: Wiring) -> Mapping[str, Any]:
    """Keys to set, null to remove: the layer's own where they lie nested, what keeps it from stopping, each knob."""
    if spec.dialect.name == "gguf":
        return {}
    top, nested = _flags_to_set(spec, release, wanted), _nested_to_set(spec, release, wanted)
    return {**to_lift(spec.config), **dict(_sizes_to_set(spec)), **top, **({SECTION: nested} if nested else {})}


def _sizes_to_set(spec: DrafterSpec) -> Iterator[tuple[str, Any]]:
    """Keys that keep it from stopping; null removes one."""
    arch = spec.architecture
    yield from ((key, None) for key in nulls(spec))
    if flag(spec, "tie_word_embeddings"):
        yield "tie_word_embeddings", False
    if spec.clues.has_weights and arch.target_hidden_size not in (None, width(spec)):
        yield "target_hidden_size", arch.target_hidden_size


def _flags_to_set(spec: DrafterSpec, release: Release, wanted: Wiring) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if rules.FC_NORM.holds(release) and wanted.pre_fc_norm == "per_state" and not flag(spec, "fc_norm"):
        found["fc_norm"] = True
    decided = rope(spec, release)
    if any(getattr(wanted, knob) != value for knob, (value, _) in decided.items()):
        scaling = None if wanted.rope_scaling is None else {"rope_type": dict(wanted.rope_scaling)["type"]}
        rest = {key: value for key, value in wanted.rope_scaling or () if key != "type"}
        found |= {"rope_theta": wanted.rope_theta, "rope_scaling": None if scaling is None else {**scaling, **rest}}
    return found


def _nested_to_set(spec: DrafterSpec, release: Release, wanted: Wiring) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if rules.PRE_FC.holds(release) and wanted.pre_fc_norm == "whole" and not nested_flag(spec, "norm_before_fc"):
        found["norm_before_fc"] = True
    if wanted.feedback == "post_norm" and feedback(spec, release)[0] != "post_norm":
        found["return_hidden_post_norm"] = True
    return found
