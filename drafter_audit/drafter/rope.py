"""RoPE settings in one layout, whichever transformers version wrote them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from drafter_audit.drafter.config_view import ConfigView

DEFAULT_THETA = 10000.0  # what every reader takes when the key is absent

# Of any type, the default one too: the share of a head that is turned, and the split among the axes of an image.
_OF_ANY_TYPE = frozenset({"partial_rotary_factor", "mrope_section", "mrope_interleaved"})
_OLD_NAMES = {"su": "longrope", "mrope": "default"}  # vLLM 0.32.0 transformers_utils/config.py:593-597
# Values that change nothing: a factor of one, YaRN's own defaults (transformers modeling_rope_utils).
_NEUTRAL = {"factor": 1.0, "partial_rotary_factor": 1.0, "attention_factor": None, "beta_fast": 32.0, "beta_slow": 1.0}


@dataclass(frozen=True)
class Rope:
    """`theta` (base), `type` (default, linear, llama3, yarn, ...) and the scaling's own numbers; those that may stand
    beside any type are the share of a head that is turned and its split among the axes of an image.

    `theta_declared` is False where config.json names no base and readers take 10000. `conflict` tells of two
    layouts in one file that disagree.
    """

    theta: float
    type: str
    scaling: tuple[tuple[str, Any], ...] = ()
    theta_declared: bool = True
    conflict: str | None = None

    def to_dict(self) -> dict[str, Any]:
        return {"theta": self.theta, "type": self.type, **dict(self.scaling)}


def read_rope(config: ConfigView) -> Rope:
    """RoPE of transformers 4 (`rope_theta` + `rope_scaling`) or 5 (`rope_parameters`), one meaning.

    Where both layouts are present and differ, the newer one is taken and `conflict` says so: readers differ.
    """
    old = _mapping(config, "rope_scaling")
    new = _mapping(config, "rope_parameters")
    thetas = _thetas(config, old, new)
    types = {kind for kind in (_type(new), _type(old)) if kind}
    conflict = _conflict(thetas, types if new and old else set())
    share = config.number("partial_rotary_factor")
    merged = {**({} if share is None else {"partial_rotary_factor": share}), **old, **new}
    kind = _type(merged) or "default"
    scaling = _scaling(merged)
    return Rope(
        theta=thetas[0] if thetas else DEFAULT_THETA,
        type=kind,
        scaling=tuple(pair for pair in scaling if kind != "default" or pair[0] in _OF_ANY_TYPE),
        theta_declared=bool(thetas),
        conflict=conflict,
    )


def _mapping(config: ConfigView, key: str) -> Mapping[str, Any]:
    value = config.get(key)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise config.wrong(key, value, "an object")
    # Targets with two kinds of attention keep one set of parameters each; the full-attention one is comparable.
    nested = value.get("full_attention")
    return nested if isinstance(nested, Mapping) else value


def _thetas(config: ConfigView, old: Mapping[str, Any], new: Mapping[str, Any]) -> list[float]:
    declared = [
        ConfigView(section, config.where).number("rope_theta") for section in (new, config.raw, config.layer, old)
    ]
    return [theta for theta in declared if theta is not None]


def _type(section: Mapping[str, Any]) -> str | None:
    kind = section.get("rope_type") or section.get("type")
    return _OLD_NAMES.get(str(kind), str(kind)) if kind else None


def _scaling(section: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    meta = {"rope_theta", "rope_type", "type"}
    kept = {k: float(v) if isinstance(v, int) and not isinstance(v, bool) else v for k, v in section.items()}
    neutral = object()
    return tuple(sorted((k, v) for k, v in kept.items() if k not in meta and v != _NEUTRAL.get(k, neutral)))


def _conflict(thetas: list[float], types: set[str]) -> str | None:
    if len(set(thetas)) > 1:
        return f"rope_theta is given as {' and '.join(f'{theta:g}' for theta in dict.fromkeys(thetas))}"
    return f"the rope type is given as {' and '.join(sorted(types))}" if len(types) > 1 else None
