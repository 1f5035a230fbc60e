"""The wiring that SGLang gives a drafter that loads, and the rule behind each knob."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from drafter_audit.drafter.spec import DrafterSpec
from drafter_audit.drafter.wiring import Wiring, scaling_of
from drafter_audit.engines.base import Rule
from drafter_audit.engines.sglang import rules as r
from drafter_audit.engines.sglang.drafts import Draft
from drafter_audit.engines.sglang.targets import Captured

Knobs = dict[str, tuple[Any, Rule]]


def wiring_of(draft: Draft, captured: Captured) -> tuple[Wiring, dict[str, Rule]]:
    """The wiring and, for each knob that SGLang decides, its rule."""
    knobs = _eagle1(draft.spec) if draft.layout == "eagle1" else _eagle3(draft, captured)
    rope, rule = draft.rope, r.ROPE_OLD if r.ROPE_OLD.holds(draft.release) else r.ROPE_NEW
    knobs |= {"rope_theta": (rope.theta, rule), "rope_scaling": (scaling_of(rope), rule)}
    values = {knob: value for knob, (value, _) in knobs.items()}
    return Wiring(**values), {knob: rule for knob, (_, rule) in knobs.items()}


def _eagle1(spec: DrafterSpec) -> Knobs:
    layers = spec.target.num_layers
    values: dict[str, Any] = {
        "boundaries": None if layers is None else (layers,),
        "hidden_norm": "none",
        "embedding": "target",
        "head": "target",
        "final_norm": False,
        "last_state": "post_norm",
    }
    return {knob: (value, r.EAGLE1) for knob, value in values.items()}


def _eagle3(draft: Draft, captured: Captured) -> Knobs:
    layers = draft.spec.target.num_layers
    last = None if layers is None else (layers,)
    return {
        "boundaries": (captured.boundaries, captured.rule) if draft.uses_aux else (last, r.LAST_STATE_ONLY),
        "slot_order": ("ascending", r.ASCENDING),
        "pre_fc_norm": _pre_fc_norm(draft),
        "residual": ("pre_norm", r.RESIDUAL),
        "feedback": _feedback(draft),
        "hidden_norm": ("hidden_norm", r.HIDDEN_NORM),
        "vocab_map": (_vocab_map(draft), r.VOCAB_MAP),
        "embedding": ("target" if draft.shares_embedding else "own", r.EMBEDDING),
        "embedding_scale": (1.0, r.EMBEDDING_SCALE),
        "head": _head(draft),
        "final_norm": (True, r.FINAL_NORM),
        "last_state": ("pre_norm", captured.rule) if draft.uses_aux else ("post_norm", r.LAST_STATE_ONLY),
    }


def _pre_fc_norm(draft: Draft) -> tuple[str, Rule]:
    if draft.skips_fc:
        return "none", r.FC_SKIPPED
    if r.NO_PRE_NORMS.holds(draft.release):
        return "none", r.NO_PRE_NORMS
    each = draft.flag("fc_norm") or draft.flag("use_aux_norm")
    knows = draft.layout == "llama" and r.NORM_BEFORE_FC.holds(draft.release)
    if not knows:
        asked = draft.flag("norm_before_fc", nested=True)
        return ("per_state" if each else "none"), (r.NO_NORM_BEFORE_FC if asked else r.FC_NORM)
    whole = draft.flag("norm_before_fc", nested=True)
    if whole and each:
        return "whole_then_per_state", r.NORM_BEFORE_FC
    return ("whole", r.NORM_BEFORE_FC) if whole else ("per_state" if each else "none", r.FC_NORM)


def _feedback(draft: Draft) -> tuple[str, Rule]:
    if r.FEEDBACK.holds(draft.release):
        return "pre_norm", r.FEEDBACK
    return "post_norm" if draft.flag("norm_output") else "pre_norm", r.NORM_OUTPUT


def _vocab_map(draft: Draft) -> str:
    """An offset map of a full vocabulary is all zeros, the same as none."""
    stored = draft.stored is None or any("d2t" in name for name in draft.stored)
    return "offset" if stored and draft.spec.architecture.reduced_vocabulary else "identity"


def _head(draft: Draft) -> tuple[str, Rule]:
    if draft.tied:
        return "embedding", r.HEAD_TIED
    return ("target", r.HEAD_OF_TARGET) if draft.takes_targets_head else ("own", r.HEAD_ROWS)


def ignored(draft: Draft) -> Iterator[tuple[str, Rule]]:
    """Keys that are set, matter, and are not read."""
    raw, eagle = draft.raw, draft.eagle
    asked = {
        "eagle_aux_hidden_state_layer_ids": (raw.get("eagle_aux_hidden_state_layer_ids") and not draft.ids, r.IDS_KEY),
        "eagle_config.layer_ids": (eagle.get("layer_ids") and not draft.ids, r.IDS_KEY),
        "norm_before_residual": (raw.get("norm_before_residual"), r.RESIDUAL),
        "attention_bias": (raw.get("attention_bias"), r.ATTENTION_BIAS),
        "eagle_config.return_hidden_post_norm": (eagle.get("return_hidden_post_norm"), r.NORM_OUTPUT),
        "norm_output": (raw.get("norm_output") and r.FEEDBACK.holds(draft.release), r.FEEDBACK),
        "fc_norm": (raw.get("fc_norm") and r.NO_PRE_NORMS.holds(draft.release), r.NO_PRE_NORMS),
        "norm_before_fc": (_unread_norm_before_fc(draft), r.NO_NORM_BEFORE_FC),
        "eagle_config.use_aux_hidden_state": (
            eagle.get("use_aux_hidden_state") is False and r.AUX_ALWAYS.holds(draft.release),
            r.AUX_ALWAYS,
        ),
        "rope_parameters": (_unread_rope(draft), r.ROPE_OLD),
        "sliding_window": (raw.get("sliding_window") and raw.get("use_sliding_window") is not False, r.WINDOW),
    }
    yield from ((key, rule) for key, (set_, rule) in asked.items() if set_)


def _unread_norm_before_fc(draft: Draft) -> bool:
    knows = draft.layout == "llama" and r.NORM_BEFORE_FC.holds(draft.release)
    return draft.flag("norm_before_fc", nested=True) and not knows


def _unread_rope(draft: Draft) -> bool:
    """Of consequence only where the other layout does not say the same."""
    read, declared = draft.rope, draft.spec.architecture.rope
    same = (read.theta, scaling_of(read)) == (declared.theta, scaling_of(declared))
    return r.ROPE_OLD.holds(draft.release) and bool(draft.raw.get("rope_parameters")) and not same


def faults(draft: Draft) -> Iterator[tuple[Rule, str]]:
    """What turns no knob of the wiring, and yet changes what is computed."""
    clues = draft.spec.clues
    if draft.spec.architecture.attention_bias:
        yield r.ATTENTION_BIAS, "the biases of q, k and v are dropped"
    if draft.spec.architecture.qk_norm:
        yield r.QK_NORM, "the norms on queries and keys are dropped"
    if clues.stored("fc.bias") and not draft.raw.get("bias"):
        yield r.FC_BIAS, "the stored fc.bias is dropped, as bias is not true"
    deep = [layer for layer in range(1, draft.layers) if f"layers.{layer}.hidden_norm.weight" not in draft.filled]
    if draft.stored is not None and deep and draft.layout == "llama":
        yield r.DEEP_NORM, f"layers {', '.join(map(str, deep))} store no hidden_norm: ones stand in its place"
    if draft.skips_fc and draft.uses_aux:
        yield r.FC_SKIPPED, "the captured states are as wide as the embedding, so fc is left out"
    if draft.spec.kind.name == "peagle":
        yield r.PARALLEL, "it is trained to draft several tokens at once, and is run one at a time"


def notes(draft: Draft) -> Iterator[tuple[Rule, str]]:
    """What is good to know, and changes nothing by itself."""
    if any(kind.startswith("gemma") for kind in draft.spec.target.model_types):
        yield r.EMBEDDING_SCALE, "the target scales its embedding by the root of its width, the drafter does not"
    if draft.dropped and draft.layout != "eagle1":
        yield r.DROPPED, f"dropped: {', '.join(draft.dropped[:4])}" + (" and more" if draft.dropped[4:] else "")
