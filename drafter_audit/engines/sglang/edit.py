"""The edit of config.json that brings SGLang nearest to a wanted wiring."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from drafter_audit.drafter.wiring import Wiring, scaling_of
from drafter_audit.engines.base import merged
from drafter_audit.engines.flat import to_lift
from drafter_audit.engines.sglang import rules as r
from drafter_audit.engines.sglang.drafts import CLASSES, Draft
from drafter_audit.engines.sglang.targets import capture, ids_for

_MODEL_TYPE = {"llama": "llama", "latent": "deepseek_v3", "eagle1": "llama"}
_IDS = "eagle_aux_hidden_state_layer_ids"


def edit_config(draft: Draft, wanted: Wiring) -> Mapping[str, Any]:
    """Keys to set, null to remove: the class and what it needs to load, then each knob, and only what changes."""
    keys = _identity(draft) | _sizes(draft, wanted) | _norms(draft, wanted) | _rope(draft, wanted)
    return merged(_changes(draft.raw, keys), _ids(draft, wanted))


def _identity(draft: Draft) -> dict[str, Any]:
    """The class; and every setting of the layers that lies in a section, where SGLang does not look."""
    flat = to_lift(draft.spec.config)
    named = next((name for name in draft.spec.config.architectures if name in CLASSES), None)
    if named != draft.name:
        flat["architectures"] = [draft.name]
    return {"model_type": draft.raw.get("model_type") or _MODEL_TYPE[draft.layout]} | flat


def _sizes(draft: Draft, wanted: Wiring) -> dict[str, Any]:
    if draft.layout == "eagle1":
        return {}
    arch, keys = draft.spec.architecture, dict[str, Any]()
    if wanted.head == "own":
        keys |= {"draft_vocab_size": arch.draft_vocab_size, "tie_word_embeddings": False}
    if draft.raw.get("target_hidden_size") != arch.target_hidden_size:
        keys["target_hidden_size"] = None if arch.target_hidden_size == arch.hidden_size else arch.target_hidden_size
    if draft.raw.get("num_aux_hidden_states") is not None:
        keys["num_aux_hidden_states"] = arch.num_aux_hidden_states
    if draft.stored is not None and bool(draft.raw.get("bias")) != arch.fc_bias:
        keys["bias"] = arch.fc_bias
    reach, targets = draft.raw.get("max_position_embeddings"), draft.spec.target.max_position_embeddings
    if targets and (reach or arch.max_position_embeddings or targets) < targets:
        keys["max_position_embeddings"] = targets
    return keys


def _norms(draft: Draft, wanted: Wiring) -> dict[str, Any]:
    if draft.layout == "eagle1":
        return {}
    keys: dict[str, Any] = {
        "norm_before_fc": wanted.pre_fc_norm in ("whole", "whole_then_per_state"),
        "fc_norm": wanted.pre_fc_norm in ("per_state", "whole_then_per_state"),
        "norm_output": wanted.feedback == "post_norm",
    }
    if "norm_before_fc" in draft.eagle:
        keys["eagle_config"] = {"norm_before_fc": keys["norm_before_fc"]}
    return keys


def _rope(draft: Draft, wanted: Wiring) -> dict[str, Any]:
    """Written as all releases read it, where it is read otherwise than wanted."""
    present = (draft.rope.theta, scaling_of(draft.rope))
    if draft.spec.config.layer_section is None and present == (wanted.rope_theta, wanted.rope_scaling):
        return {}
    scaling = dict(wanted.rope_scaling or ())
    kind = scaling.pop("type", None)
    keys = {
        "rope_theta": wanted.rope_theta,
        "rope_scaling": {"rope_type": kind, **scaling} if kind else None,
        "rope_parameters": None,
    }
    return {key: value for key, value in keys.items() if value is not None or draft.raw.get(key) is not None}


def _ids(draft: Draft, wanted: Wiring) -> dict[str, Any]:
    """The ids in SGLang's own numbering."""
    if draft.layout == "eagle1":
        return {}
    if draft.spec.kind.name == "eagle3_noaux":
        off = {"eagle_config": {"use_aux_hidden_state": False}}
        return {} if not draft.uses_aux or r.AUX_ALWAYS.holds(draft.release) else off
    if wanted.boundaries is None or _holds(draft, wanted):
        return {}
    ids = ids_for(draft.spec.target, draft.release, wanted.boundaries)
    if ids is None:
        return {}
    return {"eagle_config": {_IDS: list(ids)}}


def _holds(draft: Draft, wanted: Wiring) -> bool:
    """Whether the ids as they are give the wanted boundaries, as many as fc is built for, and none lie elsewhere."""
    if draft.ids is None and draft.spec.aux_layers.declared is not None:
        return False
    found = capture(draft.spec.target, draft.release, draft.ids)
    return found.boundaries == wanted.boundaries and not found.refusals and len(found.boundaries or ()) == draft.slots


def _changes(raw: Mapping[str, Any], keys: Mapping[str, Any]) -> dict[str, Any]:
    """Those of `keys` that are not so already; a switch that is absent is off, and stays absent."""
    found: dict[str, Any] = {}
    for key, value in keys.items():
        if isinstance(value, Mapping) and isinstance(raw.get(key), Mapping) and key == "eagle_config":
            if inner := _changes(raw[key], value):
                found[key] = inner
        elif key not in raw and (value is None or value is False):
            continue
        elif raw.get(key) != value or value is None:
            found[key] = value
    return found
