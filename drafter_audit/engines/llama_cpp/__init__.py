"""llama.cpp: convert_hf_to_gguf.py, which decides most of the wiring, and the runtime's draft-eagle3."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from drafter_audit.drafter.boundaries import Ids, default_boundaries
from drafter_audit.drafter.config_view import ConfigView
from drafter_audit.drafter.rope import read_rope
from drafter_audit.drafter.spec import DrafterSpec
from drafter_audit.drafter.wiring import Scaling, Wiring, declared_wiring
from drafter_audit.engines.base import Effect, Engine, Release, Rule
from drafter_audit.engines.llama_cpp import rules

_KEY = "eagle_aux_hidden_state_layer_ids"
_READ = ("architectures", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
         "num_key_value_heads", "head_dim", "rms_norm_eps", "vocab_size", "draft_vocab_size", "target_hidden_size",
         "norm_before_residual", "rope_theta", "rope_scaling", "rope_parameters",
         "max_position_embeddings")  # fmt: skip
# Class names that lead to the converter's Llama class.
_CLASSES = frozenset({"LlamaForCausalLM", "LlamaForCausalLMEagle3", "Eagle3Speculator", "Eagle3DraftModel"})
_NEW_CLASSES = frozenset({"Eagle3LlamaForCausalLM"})
_KNOWN = re.compile(
    r"^(fc\.weight|d2t|t2d|(embed_tokens|norm|lm_head)\.weight"
    r"|layers\.0\.(input_layernorm|hidden_norm|post_attention_layernorm)\.weight"
    r"|layers\.0\.(self_attn\.[qkvo]|mlp\.(gate|up|down))_proj\.weight|.*rotary_emb\.inv_freq)$"
)
_SCALINGS = frozenset({"linear", "yarn", "longrope", "su", "llama3"})
_LLAMA3_FROM = 8192
# model_type of targets whose graphs (deepseek2, qwen2, qwen2moe, glm4-moe, gemma3, llama4 .cpp) keep no layer inputs.
_UNHOOKED = frozenset({"deepseek_v2", "deepseek_v3", "kimi_k2", "kimi_k25", "qwen2", "qwen2_moe", "glm4_moe",
                       "gemma3", "gemma3_text", "llama4", "llama4_text"})  # fmt: skip
# Those that keep the inputs (llama, qwen3, qwen3moe, minimax-m2 .cpp) but not the last output.
_NO_LAST = frozenset({"llama", "mistral", "qwen3", "qwen3_moe", "minimax_m2"})
_OTHER_KINDS = {
    "eagle3_mla": "latent attention", "peagle": "mask_hidden and parallel drafting",
    "eagle3_noaux": "an EAGLE-3 layer without fc", "eagle1": "an EAGLE-1 layer",
}  # fmt: skip
_Said = Iterator[tuple[Rule, str]]
_Knobs = dict[str, tuple[Any, Rule]]


def _effect_on(spec: DrafterSpec, release: Release) -> Effect:
    if not spec.kind.traits.eagle:
        return Effect(None, None)
    if spec.kind.name in _OTHER_KINDS:
        what = f"the drafter has {_OTHER_KINDS[spec.kind.name]}, which no release knows"
        return Effect(False, None, refusals=((rules.KIND, what),))
    knobs = _knobs(spec, release)
    wiring = Wiring(**{knob: value for knob, (value, _) in knobs.items()})
    refusals = tuple(_refusals(spec, release, wiring))
    new = (_KEY, "norm_before_fc") if rules.IDS.holds(release) else ()
    return Effect(
        loads=not refusals,
        wiring=wiring,
        because={knob: rule for knob, (_, rule) in knobs.items()},
        refusals=refusals,
        read=(*_READ, *new),
        ignored=tuple(_ignored(spec, wiring, knobs)),
        notes=((rules.UNDATED, "this build may or may not read ids yet"),) if rules.UNDATED.holds(release) else (),
    )


def _edit_for(spec: DrafterSpec, release: Release, wanted: Wiring) -> Mapping[str, Any]:
    return {} if _is_gguf(spec) else dict(_to_set(spec, release, wanted))


def _knobs(spec: DrafterSpec, release: Release) -> _Knobs:
    """Every knob of the wiring with the rule that sets it."""
    boundaries, ids_rule = _boundaries(spec, release)
    ascending = boundaries is None or list(boundaries) == sorted(boundaries)
    reduced, gguf = spec.architecture.reduced_vocabulary, _is_gguf(spec)
    return {
        "boundaries": (boundaries, ids_rule),
        "slot_order": ("ascending" if ascending else "listed", rules.LISTED),
        "pre_fc_norm": _pre_fc_norm(spec, release),
        "residual": ("post_norm" if spec.config.raw.get("norm_before_residual") else "pre_norm", rules.RESIDUAL),
        "feedback": ("pre_norm", rules.FEEDBACK),
        "hidden_norm": ("hidden_norm", rules.LAYER),
        "concat": ("embedding_first", rules.LAYER),
        "token_shift": (1, rules.STEP),
        "position_offset": (0, rules.STEP),
        "rope_theta": (_rope(spec)[0], rules.ROPE),
        "rope_scaling": (_rope(spec)[1], rules.ROPE),
        "vocab_map": ("identity" if not reduced else "absolute" if gguf else "offset", rules.VOCAB),
        "embedding": (_stored_embedding(spec), rules.EMBEDDING),
        "head": (_stored_head(spec), rules.HEAD),
        "embedding_scale": (1.0, rules.EMBEDDING),
        "final_norm": (True, rules.FINAL_NORM),
        "last_state": ("pre_norm", rules.LAST),
    }


def _boundaries(spec: DrafterSpec, release: Release) -> tuple[Ids | None, Rule]:
    top = spec.config.layer_ids(_KEY)
    if _is_gguf(spec):
        return top, rules.STORED
    if top is not None and rules.IDS.holds(release):
        return top, rules.IDS
    layers = spec.target.num_layers
    return (None if layers is None else default_boundaries(layers)), rules.IDS if rules.IDS.holds(
        release
    ) else rules.IDS_OLD


def _pre_fc_norm(spec: DrafterSpec, release: Release) -> tuple[Any, Rule]:
    if not rules.PRE_FC.holds(release):
        return "none", rules.PRE_FC_OLD
    return ("whole" if spec.config.raw.get("norm_before_fc") else "none"), rules.PRE_FC


def _rope(spec: DrafterSpec) -> tuple[float, Scaling | None]:
    """Base and scaling as they come out of the converter; a GGUF file's own are read as they are."""
    layer = {**spec.config.raw, **spec.config.layer}
    hidden = "rope_scaling" if layer.get("rope_parameters") else ""
    flat = {key: value for key, value in layer.items() if key not in (spec.config.layer_section, hidden)}
    rope = read_rope(ConfigView(flat, spec.config.where))
    if rope.type not in _SCALINGS:
        return rope.theta, None
    scaling = {"type": rope.type, **dict(rope.scaling)}
    if rope.type == "llama3" and "original_max_position_embeddings" in scaling:
        scaling["original_max_position_embeddings"] = flat.get("original_max_position_embeddings", _LLAMA3_FROM)
    return rope.theta, tuple(sorted(scaling.items()))


def _stored_embedding(spec: DrafterSpec) -> str:
    """A stored copy of the target's computes what the target's does."""
    declared = declared_wiring(spec)
    return declared.embedding if declared is not None and _stores(spec, "embed_tokens.weight") else "target"


def _stored_head(spec: DrafterSpec) -> str:
    return "own" if _stores(spec, "lm_head.weight") else "target"


def _stores(spec: DrafterSpec, name: str) -> bool:
    if spec.clues.has_weights:
        return name in spec.clues.tensors
    return any(tensor.name.endswith(name) and tensor.role not in ("missing", "borrowed") for tensor in spec.tensors)


def _refusals(spec: DrafterSpec, release: Release, wiring: Wiring) -> _Said:
    yield from _unloadable_file(spec, release) if _is_gguf(spec) else _unconvertible(spec, release)
    slots = spec.architecture.num_aux_hidden_states
    told = len(wiring.boundaries) if wiring.boundaries else 3
    if slots not in (None, 3) or told != 3:
        yield rules.THREE, f"fc reads {slots} states, {told} ids are given: there must be three"
    yield from _unreachable(spec, release, wiring)


def _unloadable_file(spec: DrafterSpec, release: Release) -> _Said:
    rule = rules.GGUF_KEY if rules.GGUF_KEY.holds(release) else rules.GGUF_KEY_OLD
    wanted = "eagle3.target_layers" if rule is rules.GGUF_KEY else "eagle3.extract_layers"
    held = spec.table.metadata.get(wanted) if spec.table else None
    if not isinstance(None if held is None else json.loads(held), list):
        yield rule, f"the file has no {wanted}"


def _unconvertible(spec: DrafterSpec, release: Release) -> _Said:
    config, names = spec.config, spec.config.architectures
    if not names or names[0] not in _classes(release):
        yield rules.CLASS, f"the converter does not know {names[0] if names else 'a checkpoint without architectures'}"
    depth = spec.architecture.num_layers
    if depth != 1:
        yield rules.DETECT, f"the drafter has {depth} layers, one is taken"
    if config.get("draft_vocab_size") is None and "draft_vocab_size" not in config.raw:
        yield rules.DETECT, "without draft_vocab_size it is converted as a plain Llama model"
    if spurious := _spurious(spec, release):
        yield (
            rules.TENSORS,
            f"{', '.join(spurious[:3])} {'has' if len(spurious) == 1 else 'have'} no place in the GGUF file",
        )


def _spurious(spec: DrafterSpec, release: Release) -> list[str]:
    """Stored tensors without a place in the file, and input_norm where its flag is not read."""
    companions = spec.clues.packing.companions if spec.clues.has_weights else ()
    found = [name for name, tensor in spec.clues.tensors.items() if tensor.name not in companions]
    normed = _pre_fc_norm(spec, release)[0] == "whole"
    return [name for name in found if not (_KNOWN.match(name) or (normed and name == "input_norm.weight"))]


def _unreachable(spec: DrafterSpec, release: Release, wiring: Wiring) -> _Said:
    layers, types = spec.target.num_layers, set(spec.target.model_types)
    boundaries = wiring.boundaries or ()
    if beyond := [b for b in boundaries if b < 0 or (layers is not None and b > layers)]:
        yield rules.RANGE, f"{beyond} {'is' if len(beyond) == 1 else 'are'} no boundary of a target of {layers} layers"
    if unhooked := sorted(types & _UNHOOKED):
        yield rules.HOOKS, f"the graph of a {unhooked[0]} target keeps no layer inputs: the first request aborts"
    elif "minimax_m2" in types and rules.HOOKS_LATE.holds(release):
        yield rules.HOOKS_LATE, "the graph of a minimax_m2 target keeps no layer inputs yet: the first request aborts"
    elif layers in boundaries and types & _NO_LAST:
        yield rules.LAST, f"the graph of a {min(types & _NO_LAST)} target does not keep its last output"


def _ignored(spec: DrafterSpec, wiring: Wiring, knobs: _Knobs) -> Iterator[tuple[str, Rule]]:
    aux, config = spec.aux_layers, spec.config
    if aux.key is not None and aux.key != _KEY and aux.boundaries != wiring.boundaries:
        yield aux.key, knobs["boundaries"][1]
    elif aux.key == _KEY and config.layer_ids(_KEY) != wiring.boundaries:
        yield _KEY, knobs["boundaries"][1]
    rule = knobs["pre_fc_norm"][1]
    if wiring.pre_fc_norm == "none" and spec.architecture.norm_before_fc:
        yield ("eagle_config." if config.eagle.boolean("norm_before_fc") else "") + "norm_before_fc", rule
    yield from ((key, rule) for key in ("fc_norm", "use_aux_norm") if config.raw.get(key))
    if config.raw.get("norm_output"):
        yield "norm_output", rules.FEEDBACK
    if config.eagle.boolean("return_hidden_post_norm"):
        yield "eagle_config.return_hidden_post_norm", rules.FEEDBACK


def _to_set(spec: DrafterSpec, release: Release, wanted: Wiring) -> Iterator[tuple[str, Any]]:
    raw, names = spec.config.raw, spec.config.architectures
    if not names or names[0] not in _classes(release):
        yield "architectures", ["LlamaForCausalLMEagle3"]
    if "draft_vocab_size" not in raw and spec.architecture.draft_vocab_size is not None:
        yield "draft_vocab_size", spec.architecture.draft_vocab_size
    ids = wanted.boundaries
    if rules.IDS.holds(release) and ids is not None and ids != _boundaries(spec, release)[0]:
        yield _KEY, list(ids)
    if rules.PRE_FC.holds(release) and wanted.pre_fc_norm == "whole" and not raw.get("norm_before_fc"):
        yield "norm_before_fc", True
    if wanted.residual == "post_norm" and not raw.get("norm_before_residual"):
        yield "norm_before_residual", True


def _classes(release: Release) -> frozenset[str]:
    """Eagle3LlamaForCausalLM came later; at the latest with the newest release."""
    return _CLASSES | _NEW_CLASSES if rules.IDS.holds(release) else _CLASSES


def _is_gguf(spec: DrafterSpec) -> bool:
    return spec.dialect.name == "gguf"


LLAMA_CPP = Engine("llama.cpp", "9637", "11312", rules.RULES, _effect_on, _edit_for)
