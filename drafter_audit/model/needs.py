"""Which tensors a network of a given shape and wiring needs, and why others of a checkpoint are left out."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import get_args

from drafter_audit.drafter.expected import Shapes, expected_tensors
from drafter_audit.drafter.spec import DrafterSpec
from drafter_audit.drafter.wiring import (
    KNOBS,
    Concat,
    Embedding,
    Head,
    HiddenNorm,
    PreFcNorm,
    Side,
    VocabMap,
    Wiring,
)
from drafter_audit.errors import CannotRunError, CheckpointError, UsageError

EMBEDDING, HEAD, MAP = "embed_tokens.weight", "lm_head.weight", "d2t"
STATE_NORM = "layers.0.hidden_norm.weight"

_RUN = ("eagle3", "eagle3_mla", "eagle3_noaux", "eagle1")
_OPEN = {"residual": "pre_norm or post_norm", "hidden_norm": "none or hidden_norm", "embedding_scale": "a number"}

_CHOICES = MappingProxyType(
    {"pre_fc_norm": PreFcNorm, "residual": Side, "feedback": Side, "hidden_norm": HiddenNorm, "concat": Concat}
    | {"vocab_map": VocabMap, "embedding": Embedding, "head": Head, "last_state": Side}
)
_NUMBERS: Mapping[str, tuple[type, ...]] = MappingProxyType(
    {"token_shift": (int,), "position_offset": (int,), "rope_theta": (int, float)}
    | {"embedding_scale": (int, float, type(None))}
)

# Which knob leaves a tensor out, by the beginning of its canonical name.
_KNOBS = {
    "input_norm.": "pre_fc_norm",
    "fc_norm.": "pre_fc_norm",
    "layers.0.hidden_norm.": "hidden_norm",
    "norm.": "final_norm",
    "embed_tokens.": "embedding",
    "lm_head.": "head",
    MAP: "vocab_map",
}


def check_runnable(spec: DrafterSpec) -> None:
    """Raises CannotRunError for a kind, a format or a setting that this network does not compute."""
    kind, where = spec.kind.name, spec.name
    if kind not in _RUN:
        what = f"a drafter of kind {kind} cannot be run yet" if spec.is_drafter else f"kind {kind} is no EAGLE drafter"
        raise CannotRunError(what, where, f"kinds that are run: {', '.join(_RUN)}")
    if spec.table is None:
        raise CannotRunError("no weights, only a config", where, "name the folder or repository that holds them")
    declared = spec.clues.config.integer("num_aux_hidden_states") or len(spec.aux_layers.declared or ())
    if kind == "eagle3_noaux" and declared > 1 and spec.clues.config.eagle.boolean("use_aux_hidden_state") is not False:
        what = f"fc.weight is not stored, and config.json declares {declared} states to fuse"
        raise CheckpointError(what, where, "save fc too, or declare use_aux_hidden_state false")
    if spec.table.gguf:
        raise CannotRunError("a GGUF file cannot be run", where, "name the checkpoint it was converted from")
    packing = spec.clues.packing
    if packing.weights or packing.companions:
        labels = sorted({weight.label for weight in packing.weights.values()})
        what = f"quantised weights ({', '.join(labels) or min(packing.companions)})"
        mend = "name the checkpoint before quantisation, or save it dequantised by the library that wrote it"
        raise CannotRunError(what, where, mend)


def check_told(wiring: Wiring, where: str) -> None:
    """Raises CannotRunError where a knob that decides numbers is None: nothing is assumed in silence."""
    told = wiring.to_dict()
    unknown = [knob for knob in KNOBS if knob in (*_OPEN, "head") and told[knob] is None]
    if unknown:
        choices = "; ".join(f"{knob}: {_OPEN.get(knob, 'own or target')}" for knob in unknown)
        mend = f"pass a wiring that says it ({choices})"
        raise CannotRunError(f"nothing tells {' and '.join(unknown)}", where, mend)


def check_states(spec: DrafterSpec, wiring: Wiring) -> None:
    """Raises CannotRunError for a wiring that reads more or fewer states than fc fuses: by the ids that config.json
    declares, or as an engine that takes one for none of its boundaries, and drops it."""
    (slots, _), read = states_shape(spec), wiring.boundaries
    if read is not None and slots and len(read) != slots:
        what = f"{len(read)} boundaries, {list(read)}, for a drafter that reads {slots} states"
        raise CannotRunError(what, spec.name, f"name {slots} layer ids in config.json, or pass a wiring with {slots}")


def states_shape(spec: DrafterSpec) -> tuple[int, int]:
    """How many states the drafter reads at a position, and their width, 0 where it is not known."""
    arch = spec.architecture
    if not spec.kind.traits.fuses:
        return 1, arch.hidden_size or 0
    return arch.num_aux_hidden_states or 0, arch.target_hidden_size or 0


def check_values(wiring: Wiring) -> None:
    """Raises UsageError for a knob with a value that is none of its own: it would be run as another one."""
    told = wiring.to_dict()
    for knob, choices in _CHOICES.items():
        if told[knob] is not None and told[knob] not in get_args(choices):
            names = ", ".join(get_args(choices))
            raise UsageError(f"the wiring's {knob} is {told[knob]!r}", "load_drafter", f"name one of {names}")
    for knob, kinds in _NUMBERS.items():
        value = told[knob]
        if not isinstance(value, kinds) or (isinstance(value, float) and not math.isfinite(value)):
            raise UsageError(f"the wiring's {knob} is {value!r}", "load_drafter", "pass a finite number")


def tensors_needed(spec: DrafterSpec, wiring: Wiring) -> Shapes:
    """Canonical name -> shape of what the network reads, d2t where ids are mapped through it.

    Raises CannotRunError where a size is not known.
    """
    kind, arch = spec.kind.name, spec.architecture
    norm = wiring.final_norm or wiring.feedback == "post_norm"
    wired = replace(
        arch,
        norm_before_fc=wiring.pre_fc_norm.startswith("whole"),
        fc_norm=wiring.pre_fc_norm.endswith("per_state"),
        final_norm=norm,
    )
    shapes = expected_tensors(wired, kind)
    if not shapes:
        what = "a size that neither config.json nor the tensors tell (heads, widths, vocabulary)"
        raise CannotRunError(what, spec.name, "complete config.json")
    _check_heads(spec)
    if wiring.pre_fc_norm != "none" and not spec.kind.traits.fuses:
        what = f"pre_fc_norm {wiring.pre_fc_norm} in a drafter of kind {kind}, which fuses no states"
        raise CannotRunError(what, spec.name, "pass a wiring with pre_fc_norm none")
    hidden = (arch.hidden_size or 0,)
    if reads_no_token(spec):
        shapes |= _of_a_plain_layer(shapes, hidden)
    shapes |= {"norm.weight": hidden} if norm else {}
    shapes |= dict.fromkeys(_state_norms(spec, wiring), hidden)
    if wiring.hidden_norm == "none":
        shapes.pop(STATE_NORM, None)
    if wiring.head == "target":
        shapes[HEAD] = (arch.vocab_size or 0, *hidden)
    if wiring.vocab_map != "identity" or wiring.head == "target_rows":
        shapes[MAP] = (arch.draft_vocab_size or 0,)
    return shapes


def reads_no_token(spec: DrafterSpec) -> bool:
    """Whether the first attention is as wide as the state, so that no embedding is beside it (`_of_a_plain_layer`)."""
    return spec.kind.name == "eagle3_noaux" and spec.clues.first_layer_input == spec.architecture.hidden_size


def _check_heads(spec: DrafterSpec) -> None:
    heads, keys = spec.architecture.num_attention_heads or 1, spec.architecture.num_key_value_heads or 1
    if spec.architecture.kv_lora_rank is None and heads % keys:
        what = f"{heads} heads of queries over {keys} of keys"
        raise CheckpointError(what, spec.name, "correct num_attention_heads and num_key_value_heads in config.json")


def _of_a_plain_layer(shapes: Shapes, hidden: tuple[int, ...]) -> Shapes:
    """The first attention of a drafter that reads the state alone, no embedding (ModelOpt 0.47.0 modeling_eagle.py,
    where use_aux_hidden_state is false)."""
    inputs = [f"layers.0.self_attn.{name}_proj.weight" for name in "qkv"]
    return {name: (*shapes[name][:1], *hidden) for name in inputs if name in shapes}


def _state_norms(spec: DrafterSpec, wiring: Wiring) -> Iterator[str]:
    """Norms of hidden states besides those that the kind implies."""
    if wiring.hidden_norm != "none":
        yield STATE_NORM
    plain = spec.kind.name == "eagle1" and "layers.0.input_layernorm.weight" in spec.clues.tensors
    if plain or wiring.hidden_norm == "input_layernorm_then_hidden_norm":
        yield "layers.0.input_layernorm.weight"


def biases(spec: DrafterSpec, needed: Shapes) -> Shapes:
    """The stored biases of projections that are needed: read where there are any, not missed where there are none."""
    beside = {name.removesuffix("weight") + "bias": shape[:1] for name, shape in needed.items() if "_proj." in name}
    return {name: rows for name, rows in beside.items() if name in spec.clues.tensors}


def why_left_out(name: str, role: str, reason: str) -> str | None:
    """Why a stored tensor that is not needed may be left out; None where its absence would change the numbers."""
    knob = next((knob for start, knob in _KNOBS.items() if name.startswith(start)), None)
    if role in ("buffer", "frozen", "unknown") and knob is None:
        return reason
    return None if knob is None else f"the wiring's {knob} does without it"
