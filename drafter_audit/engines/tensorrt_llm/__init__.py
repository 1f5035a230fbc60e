"""TensorRT-LLM, PyTorch backend, in its default one-model mode, with nothing but the drafter's path in the user's
speculative_config.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from drafter_audit.drafter.boundaries import Ids, default_boundaries
from drafter_audit.drafter.config_view import ConfigView
from drafter_audit.drafter.rope import read_rope
from drafter_audit.drafter.spec import DrafterSpec
from drafter_audit.drafter.wiring import Wiring, declared_wiring
from drafter_audit.engines.base import Effect, Release, Rule
from drafter_audit.engines.flat import to_lift
from drafter_audit.engines.tensorrt_llm import rules

_READ = ("hidden_size", "target_hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
         "num_key_value_heads", "head_dim", "rms_norm_eps", "vocab_size", "draft_vocab_size", "attention_bias",
         "mlp_bias", "bias", "tie_word_embeddings", "rope_theta", "rope_scaling", "kv_lora_rank",
         "eagle_config.next_layer_regular",
         "eagle_config.eh_proj_before_attn", "eagle_config.eh_proj_bias",
         "eagle_config.return_hidden_post_norm")  # fmt: skip
_CAPTURED = 3  # states, where the user lists no layers
_LEAST_LAYERS = 6
_Said = Iterator[tuple[Rule, str]]
_Knobs = dict[str, tuple[Any, Rule]]


@dataclass(frozen=True)
class _Engine:
    name: str = "tensorrt-llm"
    oldest: str = "1.0.0"
    newest: str = "1.4.0rc1"
    rules: tuple[Rule, ...] = rules.RULES

    def runners(self, version: str) -> tuple[str | None, ...]:
        return (None,)

    def effect(self, spec: DrafterSpec, release: Release) -> Effect:
        if not spec.kind.traits.eagle:
            return Effect(None, None)
        if spec.kind.name == "eagle1":
            return Effect(
                False, None, refusals=((rules.KIND, "an EAGLE-1 drafter is not known to the PyTorch backend"),)
            )
        knobs, refusals = _knobs(spec, release), tuple(_refusals(spec, release))
        wiring = Wiring(**{knob: value for knob, (value, _) in knobs.items()})
        return Effect(
            loads=not refusals,
            wiring=wiring,
            because={knob: rule for knob, (_, rule) in knobs.items()},
            refusals=refusals,
            read=_read(release),
            ignored=tuple(_ignored(spec, release, wiring)),
            notes=tuple(_notes(spec)),
            launch=_launch(spec, wiring),
        )

    def edit(self, spec: DrafterSpec, release: Release, wanted: Wiring) -> Mapping[str, Any]:
        top, nested = _flags_to_set(spec, release, wanted), _nested_to_set(spec, release, wanted)
        if spec.dialect.name == "gguf":
            return {}
        flat = {**to_lift(spec.config), **dict(_sizes_to_set(spec))}
        return {**flat, **top, **({"eagle_config": nested} if nested else {})}


def _read(release: Release) -> tuple[str, ...]:
    extra = ("eagle_config.norm_before_fc",) if rules.PRE_FC.holds(release) else ()
    return (*_READ, *extra, *(("fc_norm", "norm_output") if rules.FC_NORM.holds(release) else ()))


def _knobs(spec: DrafterSpec, release: Release) -> _Knobs:
    """Every knob of the wiring with the rule that sets it."""
    layers, arch = spec.target.num_layers, spec.architecture
    return {
        "boundaries": (default_boundaries(layers) if layers and layers >= _LEAST_LAYERS else None, rules.DEFAULT_IDS),
        "slot_order": ("ascending", rules.ASCENDING),
        "pre_fc_norm": _pre_fc_norm(spec, release),
        "residual": ("pre_norm", rules.RESIDUAL),
        "feedback": _feedback(spec, release),
        "hidden_norm": ("hidden_norm", rules.LAYER),
        "concat": ("embedding_first", rules.LAYER),
        "token_shift": (1, rules.STEP),
        "position_offset": (0, rules.STEP),
        **_rope(spec, release),
        "vocab_map": ("offset" if arch.reduced_vocabulary else "identity", rules.VOCAB),
        "embedding": ("own" if _own_width(spec) else "target", rules.EMBEDDING),
        "head": ("own" if _names_a_head(spec) else "target", rules.HEAD),
        "embedding_scale": (None if _scales(spec) else 1.0, rules.EMBEDDING),
        "final_norm": (True, rules.FINAL_NORM),
        "last_state": ("pre_norm", rules.DEFAULT_IDS),
    }


def _pre_fc_norm(spec: DrafterSpec, release: Release) -> tuple[Any, Rule]:
    if _skips_fc(spec):
        return "none", rules.FC_SKIP
    if rules.FC_NORM.holds(release) and _flag(spec, "fc_norm"):
        return "per_state", rules.FC_NORM
    if not rules.PRE_FC.holds(release):
        return "none", rules.PRE_FC_OLD
    return ("whole" if _nested_flag(spec, "norm_before_fc") else "none"), rules.PRE_FC


def _feedback(spec: DrafterSpec, release: Release) -> tuple[Any, Rule]:
    rule = rules.FEEDBACK if rules.FEEDBACK.holds(release) else rules.FEEDBACK_OLD
    said = _nested_flag(spec, "return_hidden_post_norm") or (rule is rules.FEEDBACK and _flag(spec, "norm_output"))
    return ("post_norm" if said else "pre_norm"), rule


def _rope(spec: DrafterSpec, release: Release) -> _Knobs:
    rule = rules.ROPE_OLD if rules.ROPE_OLD.holds(release) else rules.ROPE
    hidden = ("rope_parameters",) if rule is rules.ROPE_OLD else ()
    config = {key: value for key, value in spec.config.raw.items() if key not in hidden}
    rope = read_rope(ConfigView(config, spec.config.where))
    scaling = tuple(sorted((("type", rope.type), *rope.scaling)))
    return {"rope_theta": (rope.theta, rule), "rope_scaling": (None if rope.type == "default" else scaling, rule)}


def _refusals(spec: DrafterSpec, release: Release) -> _Said:
    if spec.dialect.name == "gguf" or to_lift(spec.config):
        what = (
            "a GGUF file" if spec.dialect.name == "gguf" else f"the layer's settings lie in {spec.config.layer_section}"
        )
        yield rules.FORMAT, f"{what}, TensorRT-LLM reads a flat config.json beside safetensors"
        return
    if spec.kind.name == "eagle3_mla" and rules.MLA_OLD.holds(release):
        yield rules.MLA_OLD, "the drafter has latent attention, which this release does not know"
    for key in _nulls(spec):
        yield rules.NULLS, f"{key} is null, and is used nonetheless"
    if _flag(spec, "tie_word_embeddings") and not _own_width(spec):
        yield rules.TIED, "tie_word_embeddings is true, and the drafter has no embedding yet to tie its head to"
    layers = spec.target.num_layers
    if layers and layers < _LEAST_LAYERS:
        yield rules.SHALLOW, f"the target has {layers} layers, too few for the default capture"
    yield from _wrong_fc(spec)
    yield from _missing(spec)


def _wrong_fc(spec: DrafterSpec) -> _Said:
    """What fc was made for, against the three states that are captured."""
    arch = spec.architecture
    slots = arch.num_aux_hidden_states if spec.kind.traits.fuses else 1
    if slots not in (None, _CAPTURED):
        yield (
            rules.SLOTS,
            f"the drafter reads {slots} states, {_CAPTURED} are captured: list them in eagle3_layers_to_capture",
        )
    elif spec.clues.has_weights and arch.target_hidden_size != _width(spec):
        yield rules.WIDTH, f"fc reads states of width {arch.target_hidden_size}, config.json announces {_width(spec)}"


def _missing(spec: DrafterSpec) -> _Said:
    stored = spec.clues.tensors
    lost = [tensor.name for tensor in spec.tensors if tensor.role == "missing"]
    deeper = range(1, spec.architecture.num_layers or 1) if spec.clues.has_weights else ()
    lost += [name for i in deeper if (name := f"layers.{i}.hidden_norm.weight") not in stored]
    if not spec.architecture.final_norm and "norm.weight" not in stored:
        lost.append("norm.weight")
    if _own_width(spec) and spec.clues.has_weights and "embed_tokens.weight" not in stored:
        lost.append("embed_tokens.weight")
    if lost:
        yield rules.MISSING, f"the file lacks {', '.join(dict.fromkeys(lost))}"


def _ignored(spec: DrafterSpec, release: Release, wiring: Wiring) -> Iterator[tuple[str, Rule]]:
    aux = spec.aux_layers
    if aux.key is not None and aux.boundaries != wiring.boundaries:
        yield aux.key, rules.DEFAULT_IDS
    if spec.kind.name == "eagle3_noaux":
        yield "eagle_config.use_aux_hidden_state", rules.SLOTS
    if _flag(spec, "norm_before_residual"):
        yield "norm_before_residual", rules.RESIDUAL
    if wiring.pre_fc_norm != "whole" and _flag(spec, "norm_before_fc"):
        yield "norm_before_fc", _pre_fc_norm(spec, release)[1]
    if wiring.pre_fc_norm != "per_state" and (_flag(spec, "fc_norm") or _flag(spec, "use_aux_norm")):
        yield ("fc_norm" if _flag(spec, "fc_norm") else "use_aux_norm"), _pre_fc_norm(spec, release)[1]
    if wiring.feedback == "pre_norm" and _flag(spec, "norm_output"):
        yield "norm_output", _feedback(spec, release)[1]


def _notes(spec: DrafterSpec) -> _Said:
    arch, config = spec.architecture, spec.config
    if spec.kind.name == "peagle":
        yield rules.PARALLEL, "the drafter drafts in parallel elsewhere; here it runs step by step"
    dropped = [name for name, key in (("fc.bias", "bias"), ("q_proj.bias", "attention_bias"))
               if spec.clues.stored(name) and not _flag(spec, key)]  # fmt: skip
    if dropped:
        yield rules.BIAS, f"{' and '.join(dropped)} are stored, no key announces them: they are dropped"
    if config.architectures and not _two_model(config.architectures[0]):
        yield rules.CLASS, f"{config.architectures[0]} is accepted in one-model mode, the default, only"
    if not config.has("draft_vocab_size"):
        yield rules.DRAFT_VOCAB, f"draft_vocab_size is absent: vocab_size, {arch.vocab_size}, is taken"
    if _skips_fc(spec):
        yield rules.FC_SKIP, f"3 states of {_width(spec)} are as wide as the drafter: fc is skipped"
    if 0 in (spec.aux_layers.boundaries or ()):
        yield (
            rules.EMBEDDING_STATE,
            "boundary 0, the embedding output, is wanted: eagle3_layers_to_capture cannot name it, -1 is another state",
        )


def _launch(spec: DrafterSpec, wiring: Wiring) -> Mapping[str, Any]:
    """The layers to list in the speculative_config: outputs of layers, and -1 for the last state after its norm."""
    declared = declared_wiring(spec)
    if declared is None or declared.boundaries is None or set(declared.boundaries) == set(wiring.boundaries or ()):
        return {}
    ids = _ids(declared, declared.boundaries, spec.target.num_layers)
    return {} if ids is None else {"speculative_config": {"eagle3_layers_to_capture": list(ids)}}


def _ids(declared: Wiring, boundaries: Ids, layers: int | None) -> Ids | None:
    """None where one of the boundaries cannot be named."""
    if declared.last_state == "post_norm" and boundaries == (layers,):
        return (-1,)
    ids = tuple(sorted({boundary - 1 for boundary in boundaries}))
    return None if ids[0] < 0 or len(ids) < len(boundaries) else ids


def _sizes_to_set(spec: DrafterSpec) -> Iterator[tuple[str, Any]]:
    """Keys that keep it from stopping; null removes one."""
    arch = spec.architecture
    yield from ((key, None) for key in _nulls(spec))
    if _flag(spec, "tie_word_embeddings"):
        yield "tie_word_embeddings", False
    if spec.clues.has_weights and arch.target_hidden_size not in (None, _width(spec)):
        yield "target_hidden_size", arch.target_hidden_size


def _flags_to_set(spec: DrafterSpec, release: Release, wanted: Wiring) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if rules.FC_NORM.holds(release) and wanted.pre_fc_norm == "per_state" and not _flag(spec, "fc_norm"):
        found["fc_norm"] = True
    knobs = _rope(spec, release)
    if any(getattr(wanted, knob) != value for knob, (value, _) in knobs.items()):
        scaling = None if wanted.rope_scaling is None else {"rope_type": dict(wanted.rope_scaling)["type"]}
        rest = {key: value for key, value in wanted.rope_scaling or () if key != "type"}
        found |= {"rope_theta": wanted.rope_theta, "rope_scaling": None if scaling is None else {**scaling, **rest}}
    return found


def _nested_to_set(spec: DrafterSpec, release: Release, wanted: Wiring) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if rules.PRE_FC.holds(release) and wanted.pre_fc_norm == "whole" and not _nested_flag(spec, "norm_before_fc"):
        found["norm_before_fc"] = True
    if wanted.feedback == "post_norm" and _feedback(spec, release)[0] != "post_norm":
        found["return_hidden_post_norm"] = True
    return found


def _nulls(spec: DrafterSpec) -> list[str]:
    return [key for key in ("eagle_config", "target_hidden_size") if spec.config.raw.get(key, 0) is None]


def _width(spec: DrafterSpec) -> int | None:
    """How wide it takes one state to be."""
    declared = spec.sizes.declared
    return declared["target_hidden_size"] or spec.architecture.hidden_size


def _skips_fc(spec: DrafterSpec) -> bool:
    """States that together are as wide as the drafter go past fc, and past the norms before it."""
    return spec.kind.traits.fuses and (_width(spec) or 0) * _CAPTURED == spec.architecture.hidden_size


def _own_width(spec: DrafterSpec) -> bool:
    return _width(spec) != spec.architecture.hidden_size


def _scales(spec: DrafterSpec) -> bool:
    """Gemma multiplies its embedding's rows in the model: whether the drafter gets them so was not read."""
    return any(name.startswith("gemma") for name in spec.target.model_types)


def _names_a_head(spec: DrafterSpec) -> bool:
    """Any tensor with lm_head in its name, a trainer's leftover too; without weights, as the dialect has it."""
    if spec.clues.has_weights:
        return spec.clues.stored("lm_head")
    declared = declared_wiring(spec)
    return declared is not None and declared.head == "own"


def _two_model(name: str) -> bool:
    return name.replace("Eagle3", "") == "LlamaForCausalLM"


def _flag(spec: DrafterSpec, key: str) -> bool:
    return bool(spec.config.boolean(key))


def _nested_flag(spec: DrafterSpec, key: str) -> bool:
    return bool(spec.config.eagle.boolean(key))


TENSORRT_LLM = _Engine()
