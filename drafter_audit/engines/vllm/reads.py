"""The knobs that vLLM decides, each with the rule behind it, and the keys of config.json that it reads and does not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from drafter_audit.drafter.boundaries import Ids
from drafter_audit.drafter.wiring import PreFcNorm, Wiring
from drafter_audit.engines.base import Rule
from drafter_audit.engines.vllm.case import Case
from drafter_audit.engines.vllm.rules import BY_NAME
from drafter_audit.engines.vllm.seen import IDS, LAYERS, copied

Knob = tuple[str, tuple[Any, Rule]]

_PRE_FC: dict[tuple[bool, bool], PreFcNorm] = {
    (False, False): "none",
    (True, False): "whole",
    (False, True): "per_state",
    (True, True): "whole_then_per_state",
}

# Keys of the flat config that the draft classes read, and since when.
_READ = {
    "architectures": "0", "model_type": "0", IDS: "0.11.1", "draft_vocab_size": "0", "target_hidden_size": "0",
    "norm_before_residual": "0", "norm_before_fc": "0.18.0", "fc_norm": "0.22.0", "norm_output": "0.22.0",
    "num_aux_hidden_states": "0.22.0", "attention_bias": "0.16.0", "num_hidden_layers": "0.11.1", "hidden_size": "0",
    "intermediate_size": "0", "num_attention_heads": "0", "num_key_value_heads": "0", "head_dim": "0",
    "vocab_size": "0", "rms_norm_eps": "0", "rope_theta": "0", "rope_scaling": "0", "rope_parameters": "0",
    "max_position_embeddings": "0", "logit_scale": "0", "quantization_config": "0", "hidden_act": "0",
}  # fmt: skip

# Other kinds, by name and whether V2 runs -> since when their ids are read. V1 does not run DSpark.
_OTHER_SINCE = {("dflash", False): "0.22.0", ("dflash", True): "0.24.0", ("dspark", True): "0.25.0"}


def knobs(case: Case, declared: Wiring) -> Iterator[Knob]:
    """Knob -> (its value, the rule that sets it)."""
    yield from _states(case, declared)
    yield "pre_fc_norm", pre_fc_norm(case)
    yield "residual", _residual(case)
    yield "feedback", _feedback(case)
    if declared.hidden_norm is None:
        yield "hidden_norm", ("hidden_norm", BY_NAME["hidden_norm_always"])
    if not declared.final_norm:
        yield "final_norm", (True, BY_NAME["final_norm_always"])
    if declared.vocab_map == "offset":
        yield "vocab_map", _vocab_map(case)
    yield "embedding", _embedding(case, declared)
    yield "head", _head(case, declared)


def _states(case: Case, declared: Wiring) -> Iterator[Knob]:
    if not case.reads_aux:
        rule = BY_NAME["noaux_last_state"]
        yield "boundaries", (declared.boundaries, rule)
        yield "last_state", ("post_norm", rule)
        return
    ids, rule = case.ids
    if not case.fuses:
        yield "last_state", ("pre_norm", BY_NAME["noaux_needs_switch"])
    yield "boundaries", (case.captured, rule)
    yield "slot_order", ("ascending", BY_NAME["ids_sorted"] if _unsorted(ids, declared) else rule)


def _unsorted(ids: Ids | None, declared: Wiring) -> bool:
    return declared.slot_order == "listed" or (ids is not None and list(ids) != sorted(ids))


def pre_fc_norm(case: Case) -> tuple[PreFcNorm, Rule]:
    """Where both norms are concerned, the rule of the one that is on, of the first where none is."""
    (whole, first), (each, second) = whole_norm(case), norm_of_each(case)
    declared = case.spec.architecture
    of_each = each or (declared.fc_norm and not declared.norm_before_fc)
    return _PRE_FC[whole, each], second if of_each else first


def whole_norm(case: Case) -> tuple[bool, Rule]:
    keys, eagle = case.seen.keys, case.seen.eagle
    if case.seen.model_class == "latent":
        return False, BY_NAME["latent_norm_before_fc"]
    if not case.since("0.18.0"):
        return False, BY_NAME["norm_before_fc_unread"]
    top = bool(keys.get("norm_before_fc"))
    if not case.since("0.22.0"):
        return top, BY_NAME["norm_before_fc_top_level"]
    return bool(eagle.get("norm_before_fc", top)), BY_NAME["norm_before_fc_nested"]


def norm_of_each(case: Case) -> tuple[bool, Rule]:
    if not case.since("0.22.0"):
        return False, BY_NAME["fc_norm_unread"]
    if case.seen.model_class == "latent" and not case.since("0.23.0"):
        return False, BY_NAME["latent_fc_norm_unapplied"]
    return bool(case.seen.keys.get("fc_norm")), _lost(case, "fc_norm") or BY_NAME["fc_norm_read"]


def _lost(case: Case, key: str) -> Rule | None:
    """The rule by which a key of speculators' top level does not arrive."""
    kind = case.seen.translated
    lost = kind is not None and case.spec.config.raw.get(key) and not copied(kind, key, case.release)
    return BY_NAME["speculators_untranslated"] if lost else None


def _residual(case: Case) -> tuple[str, Rule]:
    on = bool(case.seen.keys.get("norm_before_residual"))
    assumed = case.seen.translated == "eagle3" and "norm_before_residual" not in case.spec.config.raw
    return "post_norm" if on else "pre_norm", BY_NAME["residual_default_true" if assumed else "residual_switch"]


def _feedback(case: Case) -> tuple[str, Rule]:
    if not case.since("0.22.0"):
        return "pre_norm", BY_NAME["norm_output_unread"]
    on = bool(case.seen.keys.get("norm_output"))
    return "post_norm" if on else "pre_norm", _lost(case, "norm_output") or BY_NAME["norm_output_read"]


def _vocab_map(case: Case) -> tuple[str, Rule]:
    clues = case.spec.clues
    missing = clues.has_weights and "d2t" not in clues.tensors
    return ("identity", BY_NAME["map_missing"]) if missing else ("offset", BY_NAME["map_offset"])


def _embedding(case: Case, declared: Wiring) -> tuple[str, Rule]:
    clues = case.spec.clues
    if clues.has_weights and "embed_tokens.weight" not in clues.tensors:
        return "target", BY_NAME["embedding_from_target"]
    same_width = case.state_width in (None, case.spec.architecture.hidden_size)
    if not case.since("0.11.1") and same_width:
        return "target", BY_NAME["embedding_replaced"]
    return declared.embedding, BY_NAME["embedding_kept"]


def _head(case: Case, declared: Wiring) -> tuple[str | None, Rule]:
    clues = case.spec.clues
    if clues.has_weights and "lm_head.weight" not in clues.tensors and not case.since("0.11.1"):
        return None, BY_NAME["missing_weight"]
    if declared.head == "embedding":
        return "target", BY_NAME["tie_unread"]
    return declared.head, BY_NAME["head_from_target" if declared.head == "target" else "head_from_file"]


def keys_read(case: Case) -> Iterator[str]:
    """Keys of this config.json that reach the draft model, as they are nested there."""
    raw, layer = case.spec.config.raw, case.spec.config.section(LAYERS)
    kind = case.seen.translated
    for key, since in _READ.items():
        if not case.since(since):
            continue
        if key in raw and (kind is None or copied(kind, key, case.release)):
            yield key
        elif kind is not None and key in layer:
            yield f"{LAYERS}.{key}"
    yield from _nested_read(case)


def _nested_read(case: Case) -> Iterator[str]:
    rules = {
        IDS: case.since("0.22.0"),  # V2 counts them
        "layer_ids": case.v2 and case.since("0.27.0"),
        "norm_before_fc": case.since("0.22.0"),
        "use_aux_hidden_state": case.since("0.12.0"),
    }
    yield from (f"eagle_config.{key}" for key, read in rules.items() if read and key in case.seen.eagle)


def keys_ignored(case: Case) -> Iterator[tuple[str, Rule]]:
    """Keys that are set and would matter. One that only chooses what is chosen anyway is none."""
    eagle, raw = case.spec.config.eagle.raw, case.spec.config.raw
    yield from _ids_ignored(case)
    if case.seen.translated:
        lost = (key for key in ("norm_before_fc", "fc_norm", "norm_output") if _lost(case, key))
        yield from ((key, BY_NAME["speculators_untranslated"]) for key in lost)
    if eagle.get("norm_before_fc") and not whole_norm(case)[0]:
        yield "eagle_config.norm_before_fc", whole_norm(case)[1]
    if raw.get("use_aux_norm"):
        yield "use_aux_norm", norm_of_each(case)[1]
    if eagle.get("return_hidden_post_norm") and _feedback(case)[0] == "pre_norm":
        yield "eagle_config.return_hidden_post_norm", _feedback(case)[1]
    unread = {
        "norm_before_fc": whole_norm(case)[1] if not whole_norm(case)[0] else None,
        "fc_norm": BY_NAME["fc_norm_unread"] if not case.since("0.22.0") else None,
        "norm_output": BY_NAME["norm_output_unread"] if not case.since("0.22.0") else None,
        "tie_word_embeddings": BY_NAME["tie_unread"],
    }
    if not case.seen.translated:
        yield from ((key, rule) for key, rule in unread.items() if rule and raw.get(key) is True)


def _ids_ignored(case: Case) -> Iterator[tuple[str, Rule]]:
    if not case.fuses:
        return
    if case.ids[1].name == "ids_unread" and case.spec.config.raw.get(IDS):
        yield IDS, case.ids[1]
    if case.spec.config.eagle.raw.get(IDS) and case.ids[1].name in ("ids_default", "ids_unread"):
        name = "ids_nested_unread_v2" if case.v2 else "ids_nested_unread"
        lost = case.seen.translated is not None and not case.seen.eagle
        rule = case.ids[1] if case.ids[1].name == "ids_unread" else BY_NAME[name]
        yield f"eagle_config.{IDS}", BY_NAME["speculators_untranslated"] if lost else rule


def other_kind(case: Case) -> Iterator[tuple[Rule, str]]:
    """The boundaries of a drafter without an EAGLE layer: DFlash's and DSpark's ids plus one."""
    found, since = case.spec.aux_layers.boundaries, _OTHER_SINCE.get((case.spec.kind.name, case.v2))
    if since is not None and found is not None and case.since(since):
        rule = BY_NAME["other_kind_ids"]
        yield rule, f"boundaries {list(found)} are captured"
