"""vLLM, 0.10.2 to 0.33.0: what its two runners would do with a drafter, and the config.json that mends it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from packaging.version import Version

from drafter_audit.drafter.boundaries import Ids
from drafter_audit.drafter.spec import DrafterSpec
from drafter_audit.drafter.wiring import Wiring, declared_wiring
from drafter_audit.engines.base import Effect, Engine, Release, joined
from drafter_audit.engines.vllm import checks, faults, reads
from drafter_audit.engines.vllm.case import Case
from drafter_audit.engines.vllm.parameters import attention_biases
from drafter_audit.engines.vllm.rules import BY_NAME, RULES
from drafter_audit.engines.vllm.seen import IDS, placed, usual_name

_V2_SINCE, _V2_DEFAULT_SINCE = Version("0.17.0"), Version("0.29.0")
_ID_FAULTS = frozenset({"ids_outside", "ids_repeated", "last_unreached", "embedding_fails", "embedding_unreached"})
_WIDTH_FAULTS = frozenset({"states_misfit", "slots_counted"})


def _runners(version: str) -> tuple[str | None, ...]:
    """V2 serves EAGLE-3 since 0.17 and is the default for every target since 0.29."""
    number = Version(version)
    if number < _V2_SINCE:
        return (None,)
    return ("v2", "v1") if number >= _V2_DEFAULT_SINCE else ("v1", "v2")


def _effect_on(spec: DrafterSpec, release: Release) -> Effect:
    """Kinds without an EAGLE layer have no wiring: only the boundaries they would read are noted."""
    declared, case = declared_wiring(spec), Case.of(spec, release)
    if declared is None:
        return Effect(None, None, notes=tuple(reads.other_kind(case)))
    if spec.kind.name == "eagle1":
        rule = BY_NAME["eagle1_last_state"]
        wiring = replace(declared, head="target", final_norm=False)
        return Effect(None, wiring, {"boundaries": rule, "last_state": rule, "final_norm": rule})
    knobs = dict(reads.knobs(case, declared))
    refusals = tuple(checks.refusals(case))
    return Effect(
        loads=False if refusals else None if case.supported is None else True,
        wiring=replace(declared, **{knob: value for knob, (value, _) in knobs.items()}),
        because={knob: rule for knob, (_, rule) in knobs.items()},
        refusals=refusals,
        read=tuple(reads.keys_read(case)),
        ignored=tuple(reads.keys_ignored(case)),
        notes=tuple(checks.notes(case)),
        faults=tuple(faults.faults(case)),
    )


def _edit_for(spec: DrafterSpec, release: Release, wanted: Wiring) -> Mapping[str, Any]:
    found = _effect_on(spec, release)
    if found.wiring is None:
        return {}
    case = Case.of(spec, release)
    refused = {rule.name for rule, _ in found.refusals}
    edit: dict[str, Any] = {}
    for change in _changes(case, refused, wanted.differs(found.wiring), wanted):
        edit = joined(edit, change)
    return edit


def _changes(case: Case, refused: set[str], differs: tuple[str, ...], wanted: Wiring) -> Iterator[Mapping[str, Any]]:
    """Only what must change, one key at a time."""
    yield from _loading(case, refused)
    ids = wanted.boundaries if case.fuses and ("boundaries" in differs or refused & _ID_FAULTS) else None
    if ids is not None and case.hands_out(ids):
        yield from _layer_ids(case, ids)
    elif refused & _WIDTH_FAULTS:
        yield from _slots(case, case.seen.keys, case.spec.architecture.num_aux_hidden_states)
    if "residual" in differs:
        yield case.place("norm_before_residual", wanted.residual == "post_norm")
    if "feedback" in differs:
        yield case.place("norm_output", wanted.feedback == "post_norm")
    if "pre_fc_norm" in differs:
        yield from _norms(case, wanted)


def _layer_ids(case: Case, ids: Ids) -> Iterator[Mapping[str, Any]]:
    """Both runners read the top level first, as boundaries."""
    yield {IDS: list(ids)}
    yield from _slots(case, {**case.seen.keys, IDS: list(ids)}, len(ids))


def _slots(case: Case, keys: Mapping[str, Any], slots: int | None) -> Iterator[Mapping[str, Any]]:
    if slots and case.since("0.22.0") and case.slots_of(keys) != slots:
        yield placed(case.seen, "num_aux_hidden_states", slots, case.release)


def _norms(case: Case, wanted: Wiring) -> Iterator[Mapping[str, Any]]:
    whole = wanted.pre_fc_norm in ("whole", "whole_then_per_state")
    each = wanted.pre_fc_norm in ("per_state", "whole_then_per_state")
    if whole != reads.whole_norm(case)[0]:
        nested = "norm_before_fc" in case.seen.eagle
        yield {"eagle_config": {"norm_before_fc": whole}} if nested else case.place("norm_before_fc", whole)
    if each != bool(case.seen.keys.get("fc_norm")):
        yield case.place("fc_norm", each)


def _loading(case: Case, refused: set[str]) -> Iterator[Mapping[str, Any]]:
    """What keeps it from loading and a key can mend."""
    arch = case.spec.architecture
    if "architecture_unknown" in refused and case.seen.translated is None:
        qk_norm = arch.qk_norm and case.since("0.24.0")
        yield {"architectures": [usual_name(latent=case.spec.kind.name == "eagle3_mla", qk_norm=qk_norm)]}
    if "target_hidden_size_null" in refused:
        yield {"target_hidden_size": None}
    if case.misfit_width:
        yield case.place("target_hidden_size", case.state_width)
    if "head_rows" in refused:
        yield case.place("draft_vocab_size", arch.draft_vocab_size)
    if case.reads_aux and not case.fuses and case.since("0.12.0"):
        yield {"eagle_config": {"use_aux_hidden_state": False}}
    if "parallel_token" in refused and isinstance(case.seen.keys.get("mask_token_id"), int):
        yield {"pard_token": case.seen.keys["mask_token_id"]}
    if "embedding_rows" in refused:
        yield case.place("vocab_size", case.spec.clues.dim("embed_tokens.weight", 0))
    biases = set(attention_biases(case))  # one that is not stored would hold whatever lies in memory
    if biases and biases <= case.spec.clues.tensors.keys() and not case.seen.keys.get("attention_bias"):
        yield placed(case.seen, "attention_bias", True, case.release)


VLLM = Engine("vllm", "0.10.2", "0.33.0", RULES, _effect_on, _edit_for, _runners)
