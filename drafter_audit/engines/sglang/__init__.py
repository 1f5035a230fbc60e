"""SGLang: what it makes of an EAGLE drafter, from 0.5.3 to 0.5.23, and the config.json that brings it nearest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from drafter_audit.drafter.spec import DrafterSpec
from drafter_audit.drafter.wiring import Wiring
from drafter_audit.engines.base import Effect, Engine, Release, Rule
from drafter_audit.engines.sglang import rules as r
from drafter_audit.engines.sglang.drafts import CLASSES, Draft, class_for, named_draft, obstacles
from drafter_audit.engines.sglang.edit import edit_config
from drafter_audit.engines.sglang.knobs import faults, ignored, notes, wiring_of
from drafter_audit.engines.sglang.targets import Captured, capture

RULES: tuple[Rule, ...] = tuple(rule for rule in vars(r).values() if isinstance(rule, Rule))

_READ = (
    "architectures", "model_type", "hidden_size", "num_hidden_layers", "draft_vocab_size", "vocab_size",
    "target_hidden_size", "num_aux_hidden_states", "bias", "tie_word_embeddings", "norm_before_fc", "fc_norm",
    "use_aux_norm", "norm_output", "rope_theta", "rope_scaling", "rope_parameters", "max_position_embeddings",
    "rms_norm_eps", "head_dim", "num_attention_heads", "num_key_value_heads", "intermediate_size", "hidden_act",
    "q_lora_rank", "kv_lora_rank",
)  # fmt: skip
_READ_NESTED = ("eagle_aux_hidden_state_layer_ids", "use_aux_hidden_state", "norm_before_fc")


def _effect_on(spec: DrafterSpec, release: Release) -> Effect:
    if not spec.kind.traits.eagle:
        return Effect(None, None, notes=((r.OTHER_KIND, _other_kind(spec)),))
    draft = named_draft(spec, release)
    if draft is None or (draft.layout == "eagle1") != (spec.kind.name == "eagle1"):
        return Effect(False, None, refusals=((r.CLASS, _class_words(spec, release)),))
    return _effect(draft)


def _edit_for(spec: DrafterSpec, release: Release, wanted: Wiring) -> Mapping[str, Any]:
    named, suited = named_draft(spec, release), class_for(spec, release)
    name = suited or (named.name if named else None)
    if name is None or spec.dialect.name == "gguf":
        return {}
    return edit_config(Draft(spec, release, name), wanted)


def _effect(draft: Draft) -> Effect:
    captured = _captured(draft)
    refusals = (*captured.refusals, *_too_few(draft, captured), *obstacles(draft))
    wiring, because = wiring_of(draft, captured)
    return Effect(
        loads=False if refusals else None if captured.rule is r.UNKNOWN_TARGET else True,
        wiring=wiring,
        because=because,
        refusals=refusals,
        read=(*(key for key in _READ if key in draft.raw), *_nested(draft)),
        ignored=tuple(ignored(draft)),
        notes=(*captured.notes, *notes(draft)),
        faults=(*captured.faults, *faults(draft)),
    )


def _nested(draft: Draft) -> list[str]:
    return [f"eagle_config.{key}" for key in _READ_NESTED if key in draft.eagle]


def _captured(draft: Draft) -> Captured:
    """An EAGLE-1 drafter, and one without aux states, asks nothing of the target's class."""
    if draft.layout == "eagle1" or not draft.uses_aux:
        return Captured(None, r.LAST_STATE_ONLY)
    return capture(draft.spec.target, draft.release, draft.ids)


def _too_few(draft: Draft, captured: Captured) -> tuple[tuple[Rule, str], ...]:
    found = captured.boundaries
    if found is None or not draft.uses_aux or len(found) == draft.slots:
        return ()
    return ((r.FC_WIDTH, f"{len(found)} states are captured, and fc is built for {draft.slots}"),)


def _class_words(spec: DrafterSpec, release: Release) -> str:
    named = ", ".join(spec.config.architectures) or "none"
    known = ", ".join(name for name, (layout, _) in CLASSES.items() if class_for(spec, release) == name)
    return f"architectures names {named}, which SGLang {release.version} does not run as such a drafter" + (
        f"; it would as {known}" if known else ""
    )


def _other_kind(spec: DrafterSpec) -> str:
    aux, words = spec.aux_layers, f"a checkpoint of kind {spec.kind.name} is not run by EAGLE-3"
    if spec.kind.name != "dflash" or aux.reading != "output_of_layer" or not aux.declared or not aux.boundaries:
        return words
    return f"{words}; as DFlash, ids {list(aux.declared)} stand for boundaries {list(aux.boundaries)}"


SGLANG = Engine("sglang", r.OLDEST, r.NEWEST, RULES, _effect_on, _edit_for)
