"""What is known of a target from its config alone: layers, widths, quantisation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from drafter_audit.checkpoint.config import read_config
from drafter_audit.drafter.config_view import ConfigView
from drafter_audit.drafter.quantization import QUANT_FILE
from drafter_audit.drafter.rope import Rope, read_rope
from drafter_audit.errors import AuditError
from drafter_audit.facts import registry
from drafter_audit.sources.base import Source
from drafter_audit.sources.open import open_source
from drafter_audit.sources.reference import at_hand

Level = Literal["drafter", "target_config", "target_headers", "target_rows"]
"""How much of a target is read: nothing, its config, the shapes of its embedding and head too, rows of them too."""

LEVELS: tuple[Level, ...] = ("drafter", "target_config", "target_headers", "target_rows")

UNQUANTISED = "none"


@dataclass(frozen=True)
class Target:
    """The model a drafter drafts for. `said_by` tells who named it, `read_from` where its config was read.

    `quantization` is "none" for a target known to store plain weights, None where nothing is known. `unread` is the
    reason why its config could not be read. `architectures` and `model_types` (the wrapper's and the language model's)
    say which of an engine's model classes runs it.
    """

    ref: str | None = None
    said_by: str | None = None
    num_layers: int | None = None
    hidden_size: int | None = None
    vocab_size: int | None = None
    quantization: str | None = None
    read_from: str | None = None
    unread: str | None = None
    head_dim: int | None = None
    architectures: tuple[str, ...] = ()
    model_types: tuple[str, ...] = ()
    max_position_embeddings: int | None = None
    rope: Rope | None = None

    def to_dict(self) -> dict[str, Any]:
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        lists = {"architectures": list(self.architectures), "model_types": list(self.model_types)}
        return values | lists | {"rope": None if self.rope is None else self.rope.to_dict()}


def named_target(ref: str) -> Target:
    """The target that the user named: it must be readable. Raises AuditError."""
    return describe_target(_open(ref), ref=ref, said_by="--target")


def implied_target(ref: str | None, said_by: str | None, *, ask_hub: bool) -> Target:
    """The target that a card, config or record names: `unread` says why where its config cannot be had.

    A local drafter asks nothing of the network (`ask_hub` false): what is bundled and local paths only.
    """
    if ref is None:
        return Target()
    if not ask_hub and _bundled_name(ref) is None and not at_hand(ref):
        return Target(
            ref=ref,
            said_by=said_by,
            unread="it is not bundled, and for a local or bundled drafter the Hub is not asked",
        )
    try:
        return describe_target(_open(ref), ref=ref, said_by=said_by)
    except AuditError as error:
        return Target(ref=ref, said_by=said_by, unread=str(error))


def _open(ref: str) -> Source:
    """The bundled record of that repository where there is one: nothing is fetched then."""
    return open_source(_bundled_name(ref) or ref)


def _bundled_name(ref: str) -> str | None:
    record = registry.find(ref)
    if record is not None:
        return record.name if record.config_origin else None
    return ref if ref in registry.names() else None


def describe_target(source: Source, *, ref: str, said_by: str | None) -> Target:
    """The target's facts. Raises ConfigError where its config.json is unusable."""
    where = f"{source.name}: config.json"
    config = ConfigView(read_config(source), where)
    return Target(
        ref=ref,
        said_by=said_by,
        num_layers=config.integer("num_hidden_layers") or config.integer("n_layer"),
        hidden_size=config.integer("hidden_size") or config.integer("n_embd"),
        vocab_size=config.integer("vocab_size"),
        quantization=_quantization(source, config),
        head_dim=_head_dim(config),
        architectures=config.architectures,
        model_types=_model_types(config),
        max_position_embeddings=config.integer("max_position_embeddings") or config.integer("n_positions"),
        rope=read_rope(config),
        read_from=f"{source.kind}: {source.name}" + (f"@{source.revision}" if source.revision else ""),
    )


def _model_types(config: ConfigView) -> tuple[str, ...]:
    """The wrapper's first, then the language model's where it is another."""
    named = (config.raw.get("model_type"), config.layer.get("model_type"))
    return tuple(dict.fromkeys(name for name in named if isinstance(name, str)))


def _head_dim(config: ConfigView) -> int | None:
    """Declared or derived; None for latent attention, whose heads have several sizes."""
    hidden, heads = config.integer("hidden_size"), config.integer("num_attention_heads")
    derived = hidden // heads if hidden and heads else None
    return None if config.has("kv_lora_rank") else config.integer("head_dim") or derived


def _quantization(source: Source, config: ConfigView) -> str | None:
    """The label, from hf_quant_config.json where config.json has none; None where neither was seen whole."""
    if config.has("quantization_config"):
        return quantization_label(config)
    if QUANT_FILE in source.files():
        return _modelopt_label(ConfigView(read_config(source, QUANT_FILE), f"{source.name}: {QUANT_FILE}"))
    if source.kind == "bundled" and not _was_looked_for(source.ref):
        return None
    return UNQUANTISED


def _was_looked_for(name: str) -> bool:
    """Whether the record of a target without `quantization_config` vouches that there is none."""
    record = registry.load(name)
    return record.config_complete or "quantization_config" in record.config


def _modelopt_label(config: ConfigView) -> str:
    algorithm = config.section("quantization").get("quant_algo")
    return UNQUANTISED if algorithm is None else f"modelopt {algorithm}"


def quantization_label(config: ConfigView) -> str:
    """One short name for a `quantization_config`, such as "fp8", "compressed-tensors int4", "modelopt NVFP4".

    Wrappers keep it at the top or in the language model's section (Kimi-K2.5: `text_config`).
    """
    section = config.get("quantization_config")
    if section is None:
        return UNQUANTISED
    if not isinstance(section, Mapping):
        raise config.wrong("quantization_config", section, "an object")
    method = str(section.get("quant_method") or section.get("quant_algo") or "unnamed method")
    return f"{method} {_format(section)}".strip()


def _format(section: Mapping[str, Any]) -> str:
    if section.get("quant_method") and section.get("quant_algo"):
        return str(section["quant_algo"])
    bits = section.get("bits", section.get("w_bit"))
    if isinstance(bits, int):
        return f"int{bits}"
    weights = _first_group(section).get("weights")
    if isinstance(weights, Mapping) and "num_bits" in weights:
        return f"{weights.get('type', 'int')}{weights['num_bits']}"
    return ""


def _first_group(section: Mapping[str, Any]) -> Mapping[str, Any]:
    groups = section.get("config_groups")
    first = next(iter(groups.values()), None) if isinstance(groups, Mapping) else None
    return first if isinstance(first, Mapping) else {}
