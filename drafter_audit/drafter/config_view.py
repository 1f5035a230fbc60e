"""config.json, read with types. Never through AutoConfig: a new model type must not fail."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from drafter_audit.errors import ConfigError

# Where a wrapper keeps the settings of the decoder layers: speculators' drafters, then the multimodal
# wrappers of targets, in the spellings that transformers and remote code use.
LAYER_SECTIONS = ("transformer_layer_config", "text_config", "language_config", "llm_config", "thinker_config")

# Far above any model, far below what would exhaust memory: a config decides how many tensors are expected.
_MOST_OF_ANY = 2**40
_MOST = {"num_hidden_layers": 10_000, "num_aux_hidden_states": 10_000}


@dataclass(frozen=True)
class ConfigView:
    """A checkpoint's config. Layer settings are looked for in the nested section first, then at the top.

    Each getter returns None where the key is absent or null and raises ConfigError on a wrong type.
    """

    raw: Mapping[str, Any]
    where: str

    @cached_property
    def layer_section(self) -> str | None:
        """The name of the section that holds the decoder layers' settings; None where the config is flat."""
        return next((name for name in LAYER_SECTIONS if self.section(name)), None)

    @cached_property
    def layer(self) -> Mapping[str, Any]:
        """That section, one nested in it merged over it; empty where the config is flat."""
        if self.layer_section is None:
            return {}
        section = self.section(self.layer_section)
        return {**section, **ConfigView(section, self.where).layer}

    @cached_property
    def eagle(self) -> ConfigView:
        """`eagle_config`, wherever it lies; empty where there is none."""
        nested = self.layer.get("eagle_config")
        section = self.section("eagle_config") or (nested if isinstance(nested, Mapping) else {})
        return ConfigView(section, f"{self.where}: eagle_config")

    def get(self, key: str) -> Any:  # noqa: ANN401 - it is JSON
        """The raw value of `key`, the layer section first."""
        value = self.layer.get(key)
        return self.raw.get(key) if value is None else value

    def edit(self, key: str, value: Any, *, beside: str | None = None) -> dict[str, Any]:  # noqa: ANN401 - it is JSON
        """The edit that sets `key` where it, or `beside`, is declared: in the layer section, else at the top."""
        if self.layer_section is None or self.layer.get(beside or key) is None:
            return {key: value}
        section = ConfigView(self.section(self.layer_section), self.where)
        return {self.layer_section: section.edit(key, value, beside=beside)}

    def has(self, *keys: str) -> bool:
        return any(self.get(key) is not None for key in keys)

    def integer(self, key: str, *, minimum: int = 1) -> int | None:
        value = self.get(key)
        if value is None:
            return None
        most = _MOST.get(key, _MOST_OF_ANY)
        if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value <= most:
            raise self.wrong(key, value, f"a whole number from {minimum} to {most}")
        return value

    def number(self, key: str) -> float | None:
        value = self.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= sys.float_info.max:
            raise self.wrong(key, value, "a number")
        return float(value)

    def boolean(self, key: str) -> bool | None:
        value = self.get(key)
        if value is not None and not isinstance(value, bool):
            raise self.wrong(key, value, "true or false")
        return value

    def text(self, key: str) -> str | None:
        value = self.get(key)
        if value is not None and not isinstance(value, str):
            raise self.wrong(key, value, "text")
        return value

    def section(self, key: str) -> Mapping[str, Any]:
        """A nested object, empty where absent or null."""
        value = self.raw.get(key)
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            raise self.wrong(key, value, "an object")
        return value

    def layer_ids(self, key: str) -> tuple[int, ...] | None:
        """A list of layer ids, verbatim. -1 is legal: the embedding output, counted as output-of-layer. An empty list
        is an error: engines differ on it."""
        value = self.raw.get(key)
        if value is None:
            return None
        if value == []:
            raise self.wrong(
                key, value, "left out or name a layer: for an empty list vLLM takes its default, SGLang no state"
            )
        whole = isinstance(value, list) and all(isinstance(i, int) and not isinstance(i, bool) for i in value)
        if not whole or len(value) > _MOST["num_aux_hidden_states"]:
            raise self.wrong(key, value, "a list of layer ids, whole numbers such as [2, 30, 58]")
        return tuple(value)

    @cached_property
    def architectures(self) -> tuple[str, ...]:
        names = self.raw.get("architectures")
        if names is None:
            return ()
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise self.wrong("architectures", names, "a list of class names")
        return tuple(names)

    def architecture_contains(self, *parts: str) -> bool:
        """Whether a declared class name contains one of `parts`, compared without case."""
        return any(part.lower() in name.lower() for name in self.architectures for part in parts)

    def wrong(self, key: str, value: object, wanted: str) -> ConfigError:
        shown = repr(value)
        shown = shown if len(shown) <= 60 else shown[:57] + "..."
        return ConfigError(f"{key} is {shown}", self.where, f"it must be {wanted}")

    def __iter__(self) -> Iterator[str]:
        return iter(self.raw)
