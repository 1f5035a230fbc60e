"""Wiring: everything that decides which numbers reach a drafter, as plain data.

What a checkpoint declares, what an engine does with it, and what might be true instead are all a `Wiring`: they compare
with `==`, and a hypothesis is one of them with one knob turned. Two wirings that compute the same numbers are written
the same way, so that a difference always means something.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal

from drafter_audit.drafter.boundaries import Ids
from drafter_audit.drafter.rope import Rope

if TYPE_CHECKING:
    from drafter_audit.drafter.spec import DrafterSpec

Scaling = tuple[tuple[str, Any], ...]
SlotOrder = Literal["ascending", "listed"]
PreFcNorm = Literal["none", "whole", "per_state", "whole_then_per_state"]
Side = Literal["pre_norm", "post_norm"]
HiddenNorm = Literal["none", "hidden_norm", "input_layernorm_then_hidden_norm"]
Concat = Literal["embedding_first", "hidden_first"]
VocabMap = Literal["identity", "offset", "absolute"]
Embedding = Literal["own", "target"]
Head = Literal["own", "target", "target_rows", "embedding"]


@dataclass(frozen=True)
class Wiring:
    """One knob a field; None where it is not known.

    - `boundaries`: the target's states, in the order in which fc reads them; boundary b is the residual stream after b
      layers. `slot_order`: that order is by layer, or the list's own; "ascending" wherever both are the same.
    - `pre_fc_norm`: `input_norm` over all states at once, `fc_norm.i` over each, or both.
    - `residual`: what the first layer adds its attention to, the fused state before or after `hidden_norm`.
    - `feedback`: what the next step reads, the layer's output before or after the final norm.
    - `hidden_norm`: the norms between fused state and attention. `concat`: the order of the attention's input.
    - `token_shift`: by how many tokens the embedded one is ahead of the state; 1 in every trainer and engine known.
    - `position_offset`: of the pair against its state's position; under rope a constant offset computes the same, so 0
      stands for all of them.
    - `rope_theta`, and `rope_scaling` as sorted pairs with its `type`, None for plain rope.
    - `vocab_map`: how a draft id becomes a target id.
    - `embedding`: "target" also where the file stores a copy; `embedding_scale`: the factor on its rows.
    - `head`: "target_rows" are the target's rows of the draft vocabulary, "embedding" a tied one. `final_norm`: whether
      one stands before the head.
    - `last_state`: boundary L, if it is read, before or after the target's final norm.
    """

    boundaries: Ids | None
    slot_order: SlotOrder = "ascending"
    pre_fc_norm: PreFcNorm = "none"
    residual: Side | None = "pre_norm"
    feedback: Side = "pre_norm"
    hidden_norm: HiddenNorm | None = "hidden_norm"
    concat: Concat = "embedding_first"
    token_shift: int = 1
    position_offset: int = 0
    rope_theta: float = 10000.0
    rope_scaling: Scaling | None = None
    vocab_map: VocabMap = "identity"
    embedding: Embedding = "target"
    head: Head | None = "own"
    embedding_scale: float | None = 1.0
    final_norm: bool = True
    last_state: Side = "pre_norm"

    def differs(self, other: Wiring) -> tuple[str, ...]:
        """The knobs on which two wirings differ, in the order of KNOBS; one that is None in either tells nothing."""
        return tuple(knob for knob in KNOBS if _apart(getattr(self, knob), getattr(other, knob), knob))

    def to_dict(self) -> dict[str, Any]:
        values = {knob: getattr(self, knob) for knob in KNOBS}
        boundaries, scaling = self.boundaries, self.rope_scaling
        return values | {
            "boundaries": None if boundaries is None else list(boundaries),
            "rope_scaling": None if scaling is None else dict(scaling),
        }


KNOBS = tuple(field.name for field in fields(Wiring))

_MAY_BE_NONE = frozenset({"rope_scaling"})  # there None says plain rope, not unknown


def _apart(one: object, other: object, knob: str) -> bool:
    return one != other and (knob in _MAY_BE_NONE or (one is not None and other is not None))


def declared_wiring(spec: DrafterSpec) -> Wiring | None:
    """The wiring that config, tensors and the dialect that wrote them declare; None for kinds without an EAGLE layer.

    Sources: SafeAILab/EAGLE cnets.py and cnets1.py, and the trainers named in `boundaries.py` and `roles.py`.
    """
    if not spec.kind.traits.eagle:
        return None
    arch, fuses = spec.architecture, spec.kind.traits.fuses
    return Wiring(
        boundaries=spec.aux_layers.boundaries if fuses else _last(spec),
        slot_order=_slot_order(spec),
        pre_fc_norm=_pre_fc_norm(norm_before_fc=arch.norm_before_fc, fc_norm=arch.fc_norm) if fuses else "none",
        residual=_residual(spec) if fuses else "pre_norm",
        feedback="post_norm" if arch.norm_output else "pre_norm",
        hidden_norm=_hidden_norm(spec),
        rope_theta=arch.rope.theta,
        rope_scaling=scaling_of(arch.rope),
        vocab_map=_vocab_map(spec),
        embedding=_embedding(spec),
        head=_head(spec),
        embedding_scale=_embedding_scale(spec),
        final_norm=spec.kind.name != "eagle1" and arch.final_norm,
        last_state="pre_norm" if fuses else "post_norm",
    )


def scaling_of(rope: Rope) -> Scaling | None:
    """The knob `rope_scaling` for those settings: sorted pairs with the type among them, None for plain rope. Of plain
    rope too a `partial_rotary_factor` below one decides which elements of a head are turned; the split among the axes
    of an image decides nothing for text."""
    kept = [pair for pair in rope.scaling if rope.type != "default" or pair[0] == "partial_rotary_factor"]
    return tuple(sorted((("type", rope.type), *kept))) if kept or rope.type != "default" else None


def _last(spec: DrafterSpec) -> Ids | None:
    """An EAGLE-1 drafter, and an EAGLE-3 one without aux states, reads the last state alone, after the final norm."""
    layers = spec.target.num_layers
    return None if layers is None else (layers,)


def _slot_order(spec: DrafterSpec) -> SlotOrder:
    boundaries = spec.aux_layers.boundaries or ()
    return "ascending" if list(boundaries) == sorted(boundaries) else "listed"


def _pre_fc_norm(*, norm_before_fc: bool, fc_norm: bool) -> PreFcNorm:
    if norm_before_fc and fc_norm:
        return "whole_then_per_state"
    return "whole" if norm_before_fc else "per_state" if fc_norm else "none"


def _residual(spec: DrafterSpec) -> Side | None:
    """None where speculators' switch is not declared: its config class says one thing, vLLM's loader another."""
    switch = spec.architecture.norm_before_residual
    return None if switch is None else "post_norm" if switch else "pre_norm"


def _hidden_norm(spec: DrafterSpec) -> HiddenNorm | None:
    """EAGLE-1 has none. An EAGLE-3 drafter without aux states may store none and be served with one of weights one."""
    if spec.kind.name == "eagle1":
        return "none"
    stored = spec.kind.traits.fuses or spec.clues.stored("layers.0.hidden_norm.")
    return "hidden_norm" if stored else None


def _vocab_map(spec: DrafterSpec) -> VocabMap:
    """Every trainer stores offsets (target id = draft id + d2t); a GGUF file stores target ids."""
    if not spec.architecture.reduced_vocabulary:
        return "identity"
    return "absolute" if spec.dialect.name == "gguf" else "offset"


def _embedding(spec: DrafterSpec) -> Embedding:
    """One that is stored and has not the width of the target's cannot be its copy, whatever the trainer's rule."""
    role, arch = _role(spec, "embed_tokens.weight"), spec.architecture
    stored = role not in (None, "borrowed", "missing")
    wide = arch.target_hidden_size not in (None, arch.hidden_size)
    return "own" if role in ("trainable", "unknown") or (stored and wide) else "target"


def _head(spec: DrafterSpec) -> Head | None:
    if not spec.tensors:
        return None
    if spec.architecture.tie_word_embeddings and _role(spec, "lm_head.weight") in (None, "missing", "borrowed"):
        return "embedding"
    return "target" if _role(spec, "lm_head.weight") in (None, "missing", "borrowed") else "own"


def _embedding_scale(spec: DrafterSpec) -> float | None:
    """Gemma multiplies its embedding by sqrt(hidden) in the model, not in the file. SpecForge and speculators train on
    the rows as stored (llama3_eagle.py, eagle3/core.py: a plain embedding); ModelOpt on the target's own module, with
    the scale (hf_eagle.py). Of the others it is not known."""
    if not any(name.startswith("gemma") for name in spec.target.model_types) or _embedding(spec) == "own":
        return 1.0
    if spec.dialect.name == "modelopt":
        width = spec.target.hidden_size
        return None if width is None else float(width) ** 0.5
    return 1.0 if spec.dialect.name in ("specforge", "speculators") else None


def _role(spec: DrafterSpec, name: str) -> str | None:
    """The role of the tensor of that canonical name, however the file spells it; None where there is none."""
    stored = spec.clues.tensors.get(name)
    spelled = name if stored is None else stored.name
    return next((tensor.role for tensor in spec.tensors if tensor.name == spelled), None)
