"""TensorRT-LLM, PyTorch backend, in its default one-model mode, with nothing but the drafter's path in the user's
speculative_config.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from drafter_audit.drafter.boundaries import Ids
from drafter_audit.drafter.spec import DrafterSpec
from drafter_audit.drafter.wiring import Wiring, declared_wiring
from drafter_audit.engines.base import Effect, Engine, Release, Rule
from drafter_audit.engines.flat import to_lift
from drafter_audit.engines.tensorrt_llm import rules
from drafter_audit.engines.tensorrt_llm.edit import edit_config
from drafter_audit.engines.tensorrt_llm.reads import (
    CAPTURED,
    LEAST_LAYERS,
    feedback,
    flag,
    knobs,
    nulls,
    own_width,
    pre_fc_norm,
    skips_fc,
    width,
)

_READ = ("hidden_size", "target_hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
         "num_key_value_heads", "head_dim", "rms_norm_eps", "vocab_size", "draft_vocab_size", "attention_bias",
         "mlp_bias", "bias", "tie_word_embeddings", "rope_theta", "rope_scaling", "kv_lora_rank",
         "eagle_config.next_layer_regular",
         "eagle_config.eh_proj_before_attn", "eagle_config.eh_proj_bias",
         "eagle_config.return_hidden_post_norm")  # fmt: skip
_Said = Iterator[tuple[Rule, str]]


def _effect_on(spec: DrafterSpec, release: Release) -> Effect:
    if not spec.kind.traits.eagle:
        return Effect(None, None)
    if spec.kind.name == "eagle1":
        return Effect(False, None, refusals=((rules.KIND, "an EAGLE-1 drafter is not known to the PyTorch backend"),))
    decided, refusals = knobs(spec, release), tuple(_refusals(spec, release))
    wiring = Wiring(**{knob: value for knob, (value, _) in decided.items()})
    return Effect(
        loads=not refusals,
        wiring=wiring,
        because={knob: rule for knob, (_, rule) in decided.items()},
        refusals=refusals,
        read=_read(release),
        ignored=tuple(_ignored(spec, release, wiring)),
        notes=tuple(_notes(spec)),
        faults=tuple(_faults(spec)),
        launch=_launch(spec, wiring),
    )


def _edit_for(spec: DrafterSpec, release: Release, wanted: Wiring) -> Mapping[str, Any]:
    return edit_config(spec, release, wanted)


def _read(release: Release) -> tuple[str, ...]:
    extra = ("eagle_config.norm_before_fc",) if rules.PRE_FC.holds(release) else ()
    return (*_READ, *extra, *(("fc_norm", "norm_output") if rules.FC_NORM.holds(release) else ()))


def _refusals(spec: DrafterSpec, release: Release) -> _Said:
    if spec.dialect.name == "gguf" or to_lift(spec.config):
        what = (
            "a GGUF file" if spec.dialect.name == "gguf" else f"the layer's settings lie in {spec.config.layer_section}"
        )
        yield rules.FORMAT, f"{what}, TensorRT-LLM reads a flat config.json beside safetensors"
        return
    if spec.kind.name == "eagle3_mla" and rules.MLA_OLD.holds(release):
        yield rules.MLA_OLD, "the drafter has latent attention, which this release does not know"
    for key in nulls(spec):
        yield rules.NULLS, f"{key} is null, and is used nonetheless"
    if flag(spec, "tie_word_embeddings") and not own_width(spec):
        yield rules.TIED, "tie_word_embeddings is true, and the drafter has no embedding yet to tie its head to"
    layers = spec.target.num_layers
    if layers and layers < LEAST_LAYERS:
        yield rules.SHALLOW, f"the target has {layers} layers, too few for the default capture"
    yield from _wrong_fc(spec)
    yield from _missing(spec)


def _wrong_fc(spec: DrafterSpec) -> _Said:
    """What fc was made for, against the three states that are captured."""
    arch = spec.architecture
    slots = arch.num_aux_hidden_states if spec.kind.traits.fuses else 1
    if slots not in (None, CAPTURED):
        yield (
            rules.SLOTS,
            f"the drafter reads {slots} states, {CAPTURED} are captured: list them in eagle3_layers_to_capture",
        )
    elif spec.clues.has_weights and arch.target_hidden_size != width(spec):
        yield rules.WIDTH, f"fc reads states of width {arch.target_hidden_size}, config.json announces {width(spec)}"


def _missing(spec: DrafterSpec) -> _Said:
    stored = spec.clues.tensors
    lost = [tensor.name for tensor in spec.tensors if tensor.role == "missing"]
    deeper = range(1, spec.architecture.num_layers or 1) if spec.clues.has_weights else ()
    lost += [name for i in deeper if (name := f"layers.{i}.hidden_norm.weight") not in stored]
    if not spec.architecture.final_norm and "norm.weight" not in stored:
        lost.append("norm.weight")
    if own_width(spec) and spec.clues.has_weights and "embed_tokens.weight" not in stored:
        lost.append("embed_tokens.weight")
    if lost:
        yield rules.MISSING, f"the file lacks {', '.join(dict.fromkeys(lost))}"


def _ignored(spec: DrafterSpec, release: Release, wiring: Wiring) -> Iterator[tuple[str, Rule]]:
    aux = spec.aux_layers
    if aux.key is not None and aux.boundaries != wiring.boundaries:
        yield aux.key, rules.DEFAULT_IDS
    if spec.kind.name == "eagle3_noaux":
        yield "eagle_config.use_aux_hidden_state", rules.SLOTS
    if flag(spec, "norm_before_residual"):
        yield "norm_before_residual", rules.RESIDUAL
    if wiring.pre_fc_norm != "whole" and flag(spec, "norm_before_fc"):
        yield "norm_before_fc", pre_fc_norm(spec, release)[1]
    if wiring.pre_fc_norm != "per_state" and (flag(spec, "fc_norm") or flag(spec, "use_aux_norm")):
        yield ("fc_norm" if flag(spec, "fc_norm") else "use_aux_norm"), pre_fc_norm(spec, release)[1]
    if wiring.feedback == "pre_norm" and flag(spec, "norm_output"):
        yield "norm_output", feedback(spec, release)[1]


def _faults(spec: DrafterSpec) -> _Said:
    """What turns no knob of the wiring, and yet changes what is computed."""
    if spec.kind.name == "peagle":
        yield rules.PARALLEL, "the drafter drafts in parallel elsewhere; here it runs step by step"
    dropped = [name for name, key in (("fc.bias", "bias"), ("q_proj.bias", "attention_bias"))
               if spec.clues.stored(name) and not flag(spec, key)]  # fmt: skip
    if dropped:
        yield rules.BIAS, f"{' and '.join(dropped)} are stored, no key announces them: they are dropped"
    if skips_fc(spec):
        yield rules.FC_SKIP, f"3 states of {width(spec)} are as wide as the drafter: fc is skipped"


def _notes(spec: DrafterSpec) -> _Said:
    """What is good to know, and changes nothing by itself."""
    arch, config = spec.architecture, spec.config
    if config.architectures and not _two_model(config.architectures[0]):
        yield rules.CLASS, f"{config.architectures[0]} is accepted in one-model mode, the default, only"
    if not config.has("draft_vocab_size"):
        yield rules.DRAFT_VOCAB, f"draft_vocab_size is absent: vocab_size, {arch.vocab_size}, is taken"
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


def _two_model(name: str) -> bool:
    return name.replace("Eagle3", "") == "LlamaForCausalLM"


TENSORRT_LLM = Engine("tensorrt-llm", "1.0.0", "1.4.0rc1", rules.RULES, _effect_on, _edit_for)
