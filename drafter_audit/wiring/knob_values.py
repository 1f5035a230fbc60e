"""The values to try for each knob but the states, by name: those that a trainer, an exporter or an engine is known to
take."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from drafter_audit.drafter.rope import Rope
from drafter_audit.drafter.spec import DrafterSpec
from drafter_audit.drafter.wiring import (
    Concat,
    Embedding,
    Head,
    HiddenNorm,
    PreFcNorm,
    Scaling,
    Side,
    VocabMap,
    scaling_of,
)

SHIFTS = (-2, -1, 1, 2)
"""Of all boundaries at once: ids taken for outputs of layers or for boundaries, and that twice."""

_THETAS = (10_000.0, 50_000.0, 150_000.0, 500_000.0, 1_000_000.0, 5_000_000.0, 10_000_000.0)
"""Llama 2 and what readers take where none is declared; Kimi K2; gpt-oss; Llama 3; Qwen 2 and 3; Qwen 3 of 2507; the
long ones."""

_LLAMA3: Scaling = tuple(
    sorted(
        {"type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}.items()
        | {"original_max_position_embeddings": 8192}.items(),
    )
)
_YARN: Scaling = (("factor", 32.0), ("original_max_position_embeddings", 4096), ("type", "yarn"))
"""Llama 3.1's own, and what ModelOpt 0.47.0 writes when it exports, trained with or not."""

_CHOICES: Mapping[str, Any] = {
    "pre_fc_norm": PreFcNorm,
    "residual": Side,
    "feedback": Side,
    "hidden_norm": HiddenNorm,
    "concat": Concat,
    "vocab_map": VocabMap,
    "embedding": Embedding,
    "head": Head,
}


def values_of(spec: DrafterSpec) -> dict[str, dict[str, Any]]:
    """Knob -> name of a value -> the value, for that drafter and what is known of its target."""
    width = spec.architecture.hidden_size or 1
    found: dict[str, dict[str, Any]] = {
        knob: {value: value for value in get_args(choices)} for knob, choices in _CHOICES.items()
    }
    return found | {
        "final_norm": {"true": True, "false": False},
        "token_shift": {str(shift): shift for shift in (0, 1, 2)},
        "position_offset": {"0": 0, "1": 1},
        "rope_theta": _thetas(spec.target.rope),
        "rope_scaling": _scalings(spec.target.rope),
        "embedding_scale": {"1": 1.0, "sqrt(hidden)": float(width) ** 0.5},
    }


def _thetas(target: Rope | None) -> dict[str, Any]:
    found = {} if target is None else {f"{target.theta:g}, the target's": target.theta}
    known = set(found.values())
    return found | {f"{theta:g}": theta for theta in _THETAS if theta not in known}


def _scalings(target: Rope | None) -> dict[str, Any]:
    found: dict[str, Any] = {"none": None}
    if target is not None and (scaling := scaling_of(target)) is not None:
        found["of the target"] = scaling
    return found | {"of Llama 3.1": _LLAMA3, "yarn, as exported by default": _YARN}
