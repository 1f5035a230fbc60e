"""What differs between drafters in meaning, and why it matters.

Layout, renamed keys and default values are no differences.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from drafter_audit.drafter.spec import DrafterSpec


@dataclass(frozen=True)
class Difference:
    """A field by its path in the JSON of a drafter, its values in drafter order, and why it matters."""

    field: str
    values: tuple[Any, ...]
    why: str

    def to_dict(self) -> dict[str, Any]:
        return {"field": self.field, "values": [_plain(value) for value in self.values], "why": self.why}


@dataclass(frozen=True)
class Field:
    """One thing that is compared. `shape` marks what makes two networks the same architecture.

    `same` brings two spellings of one value together before they are compared. `known` marks what may be unknown or
    unstated (None): that is no difference from a value. `apart` decides for a pair where values alone do not.
    """

    path: str
    read: Callable[[DrafterSpec], Any]
    why: str
    shape: bool = False
    same: Callable[[Any], object] = lambda value: value
    known: bool = False
    apart: Callable[[DrafterSpec, DrafterSpec], bool] | None = None

    def differs(self, specs: Sequence[DrafterSpec]) -> bool:
        if self.apart is not None:
            return any(self.apart(one, other) for one, other in combinations(specs, 2))
        values = [self.read(spec) for spec in specs]
        compared = [value for value in values if value is not None] if self.known else values
        return len({repr(self.same(value)) for value in compared}) > 1


def differences(specs: Sequence[DrafterSpec]) -> tuple[Difference, ...]:
    """Every field whose values are not all equal."""
    found = (field for field in FIELDS if field.differs(specs))
    return tuple(Difference(field.path, tuple(field.read(spec) for spec in specs), field.why) for field in found)


def same_architecture(specs: Sequence[DrafterSpec]) -> bool:
    """Whether the networks are of one kind and shape; settings that change no weight's shape or use are not asked."""
    return not any(field.differs(specs) for field in FIELDS if field.shape)


def _plain(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


def _arch(name: str) -> Callable[[DrafterSpec], Any]:
    return lambda spec: getattr(spec.architecture, name)


def _arch_field(name: str, why: str, *, shape: bool = True) -> Field:
    return Field(f"architecture.{name}", _arch(name), why, shape)


def _count(name: str) -> Callable[[DrafterSpec], Any]:
    """A count; None where nothing was counted, and where tensors of unknown role leave it open."""

    def read(spec: DrafterSpec) -> int | None:
        parameters = spec.parameters
        known = parameters.counted and (name == "stored" or not parameters.unknown)
        return getattr(parameters, name) if known else None

    return read


def _other_states(one: DrafterSpec, other: DrafterSpec) -> bool:
    """Whether two drafters read other target states; where a target is unknown, only if no two readings agree."""
    if one.aux_layers.boundaries is None or other.aux_layers.boundaries is None:
        return False
    if one.target.num_layers and other.target.num_layers:
        return one.aux_layers.boundaries != other.aux_layers.boundaries
    return not _readings(one) & _readings(other)


def _readings(spec: DrafterSpec) -> set[object]:
    aux = spec.aux_layers
    return {aux.boundaries, *(alternative.boundaries for alternative in aux.alternatives)}


def _rope(spec: DrafterSpec) -> object:
    return spec.architecture.rope.to_dict()


def _lower(text: str | None) -> str | None:
    return text.lower() if text else text


_SIZE = "changes the size and the shape of the weights"
FIELDS: tuple[Field, ...] = (
    Field("kind", lambda s: s.kind.name, "another kind of drafter reads other inputs and runs in other code", True),
    _arch_field("hidden_size", _SIZE),
    _arch_field("target_hidden_size", "the width of the target states that fc reads"),
    _arch_field("intermediate_size", _SIZE),
    _arch_field("num_layers", "more layers draft better and slower"),
    _arch_field("num_attention_heads", _SIZE),
    _arch_field("num_key_value_heads", "changes the drafter's KV cache and its attention"),
    _arch_field("head_dim", "an engine that derives it from hidden_size / heads builds another shape"),
    _arch_field("q_lora_rank", _SIZE),
    _arch_field("kv_lora_rank", "latent attention: changes the drafter's KV cache"),
    _arch_field("vocab_size", "the drafters embed different vocabularies, so their targets' tokenizers differ"),
    _arch_field("draft_vocab_size", "tokens outside the draft vocabulary can never be accepted"),
    _arch_field("num_aux_hidden_states", "the number of target states that fc fuses"),
    _arch_field("norm_before_residual", "changes which tensor becomes the residual; no weight's shape shows it"),
    _arch_field("norm_before_fc", "a norm over the concatenated target states that some engines leave out"),
    _arch_field("fc_norm", "a norm on each target state that older engines leave out"),
    _arch_field("norm_output", "changes the state fed back at each step: position 0 stays fine, later ones do not"),
    _arch_field("attention_bias", "some engines drop the biases silently"),
    _arch_field("mlp_bias", "some engines drop the biases silently"),
    _arch_field("fc_bias", "some engines build fc without a bias"),
    _arch_field("qk_norm", "norms on queries and keys that only some engines build"),
    _arch_field("hidden_act", "the MLP computes another function"),
    _arch_field("tie_word_embeddings", "SGLang then takes the embedding for the head", shape=False),
    _arch_field("rms_norm_eps", "norms round differently", shape=False),
    _arch_field("sliding_window", "attention sees another span, where an engine honours it", shape=False),
    _arch_field("max_position_embeddings", "some engines stop or go wrong beyond it", shape=False),
    Field("architecture.rope", _rope, "positions must be those of training"),
    Field(
        "aux_layers.boundaries",
        lambda s: s.aux_layers.boundaries,
        "the drafters read other target states",
        apart=_other_states,
    ),
    _arch_field("dtype", "rounding, and the size of the file", shape=False),
    Field("parameters.stored", _count("stored"), "the size of the file, frozen copies included", known=True),
    Field("parameters.trainable", _count("trainable"), "trained capacity, by each trainer's rule", known=True),
    Field("parameters.frozen", _count("frozen"), "copies of the target's weights: size, no capacity", known=True),
    Field(
        "target.ref", lambda s: s.target.ref, "acceptance depends on the target that verifies", same=_lower, known=True
    ),
    Field("target.num_layers", lambda s: s.target.num_layers, "layer ids count the target's layers", known=True),
    Field("target.quantization", lambda s: s.target.quantization, "its states and tokens differ", known=True),
    Field(
        "training.dataset", lambda s: s.training and s.training.dataset, "it drafts well what it has seen", known=True
    ),
    Field("training.samples", lambda s: s.training and s.training.samples, "more samples raise acceptance", known=True),
)
