"""What a target's config tells before any weight is fetched or read: enough to refuse what does not fit it."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from drafter_audit.checkpoint.config import read_config
from drafter_audit.drafter.config_view import ConfigView
from drafter_audit.drafter.target import quantization_label
from drafter_audit.errors import CannotRunError, ConfigError
from drafter_audit.model.target.explain import explained
from drafter_audit.model.target.parts import Untyped
from drafter_audit.model.target.stated import max_positions
from drafter_audit.ranks import Rank
from drafter_audit.sources.base import Source
from drafter_audit.sources.hub import HubSource
from drafter_audit.sources.open import open_source

READ_AS = {"kimi_k2": "deepseek_v3"}
"""Model types that are another's under a new name, and whose own code is on the Hub only. Kimi-K2's config.json names
DeepseekV3ForCausalLM; transformers 5.24 maps it so inside Kimi-K2.5 (models/kimi_k25/configuration_kimi_k25.py:85)."""


@dataclass(frozen=True)
class TargetSizes:
    """As `TargetModel` has them, of the target `ref`."""

    ref: str
    num_layers: int
    hidden_size: int
    vocab_size: int
    max_positions: int | None


def target_sizes(ref: str, *, trust_remote_code: bool = False) -> TargetSizes:
    """Of the target that `load_target` would load. Raises as that does, as far as its config goes."""
    source = open_source(ref)
    raw = raw_config(source)
    with explained(ref, quantization_label(ConfigView(raw, ref))):
        return sizes_of(parsed_config(raw, folder_of(source, ref), trust_remote_code), ref)


def sizes_of(config: Untyped, ref: str) -> TargetSizes:
    """By transformers' config, of the language model in a wrapper."""
    text = config.get_text_config(decoder=True)
    return TargetSizes(ref, text.num_hidden_layers, text.hidden_size, text.vocab_size, max_positions(config))


def raw_config(source: Source) -> dict[str, Any]:
    """config.json. Raises ConfigError where its `architectures` is no list."""
    raw = read_config(source)
    if not isinstance(raw.get("architectures") or [], list):
        raise ConfigError(f"architectures is {raw['architectures']!r}", source.name, "write a list of class names")
    return raw


def parsed_config(raw: Mapping[str, Any], folder: str, trust_remote_code: bool) -> Untyped:
    """transformers' config, of the type that stands behind the name where the name is unknown to it."""
    from transformers import CONFIG_MAPPING, AutoConfig

    known = READ_AS.get(str(raw.get("model_type")))
    if known is None:
        return AutoConfig.from_pretrained(folder, trust_remote_code=trust_remote_code)
    own = {key: value for key, value in raw.items() if key not in ("model_type", "auto_map")}
    return CONFIG_MAPPING[known].from_dict(own)


def folder_of(source: Source, ref: str, weights: Sequence[str] = ()) -> str:
    """The folder that transformers reads: from the Hub its small files and those of `weights` are fetched first, so
    that what it then fails at is no network. Raises CannotRunError for what is no folder of a target."""
    if source.kind == "bundled":
        raise CannotRunError("a bundled record holds no weights", ref, "name the target's repository or folder")
    if source.weights_file:
        raise CannotRunError("one weight file is no target", ref, "name the folder that holds it and config.json")
    if not isinstance(source, HubSource):
        return source.name
    beside = [name for name in source.files() if name.endswith((".json", ".py")) and "/" not in name]
    return str(source.fetched([*beside, *weights], bars=Rank.here().first and sys.stderr.isatty()))
