"""Rotary positions: the settings become frequencies, and positions become what queries and keys are turned by.

Scaled frequencies are transformers' own (modeling_rope_utils.py), which its models, SpecForge and speculators follow.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from drafter_audit.drafter.architecture import Architecture
from drafter_audit.drafter.wiring import Wiring
from drafter_audit.errors import CannotRunError

SCALED = ("linear", "llama3", "yarn")
"""The types besides plain rope. Of others (dynamic, longrope) the frequencies change with the length of the text."""

_WHOLE_NUMBERS = ("original_max_position_embeddings",)


@dataclass(frozen=True)
class Turn:
    """Cosines and sines [T, turned / 2] for T positions; `interleaved`: pairs lie side by side, else half a head apart.

    Turned parts come out with the first of all pairs before the second of all; both orders give the same products of
    queries and keys.
    """

    cos: Tensor
    sin: Tensor
    interleaved: bool

    def __call__(self, x: Tensor) -> Tensor:
        """`x` [heads, T, d], its first 2 x cos.shape[-1] elements turned."""
        half = self.cos.shape[-1]
        turned, rest = x[..., : 2 * half], x[..., 2 * half :]
        pairs = (turned[..., 0::2], turned[..., 1::2]) if self.interleaved else (turned[..., :half], turned[..., half:])
        first = pairs[0] * self.cos - pairs[1] * self.sin
        second = pairs[1] * self.cos + pairs[0] * self.sin
        return torch.cat((first, second, rest), dim=-1)


@dataclass(frozen=True)
class Rotary:
    """`frequencies` [turned / 2] in float32, and the factor on cosines and sines that yarn asks for."""

    frequencies: Tensor
    factor: float
    interleaved: bool

    def at(self, positions: Tensor, dtype: torch.dtype) -> Turn:
        angles = positions.to(torch.float32)[:, None] * self.frequencies
        cos, sin = angles.cos() * self.factor, angles.sin() * self.factor
        return Turn(cos.to(dtype), sin.to(dtype), self.interleaved)


def rotary(arch: Architecture, wiring: Wiring, *, latent: bool, device: torch.device) -> Rotary:
    """The rope that a wiring asks for. Latent attention turns its own `qk_rope_head_dim`, in pairs side by side
    (DeepSeek-V3 modeling_deepseek.py). Raises CannotRunError for a type or settings that are not run."""
    size = (arch.qk_rope_head_dim if latent else arch.head_dim) or 0
    scaling = dict(wiring.rope_scaling or {"type": "default"})
    turned = int(size * (1.0 if latent else scaling.get("partial_rotary_factor", 1.0)))
    if scaling["type"] == "default":
        frequencies, factor = _plain(wiring.rope_theta, turned), 1.0
    else:
        frequencies, factor = _scaled(wiring.rope_theta, scaling, turned, arch.max_position_embeddings)
    if not 0 < 2 * len(frequencies) <= size or not bool((frequencies.isfinite() & (frequencies >= 0)).all()):
        what = f"rope of theta {wiring.rope_theta:g} over {turned} of {size} elements with {wiring.rope_scaling}"
        mend = "correct rope_theta, rope_scaling, head_dim or partial_rotary_factor"
        raise CannotRunError(f"{what} gives no frequencies", "config.json", mend)
    return Rotary(frequencies.to(device), factor, latent)


def _plain(theta: float, turned: int) -> Tensor:
    steps = torch.arange(0, max(turned, 0), 2, dtype=torch.int64).to(torch.float32)
    frequencies: Tensor = 1.0 / theta ** (steps / turned)
    return frequencies


def score_factor(wiring: Wiring) -> float:
    """What latent attention's scores are multiplied by besides 1 / sqrt(d): yarn's `mscale_all_dim`, squared
    (DeepSeek-V3 modeling_deepseek.py, transformers modeling_deepseek_v3.py:268). Raises CannotRunError."""
    scaling = dict(wiring.rope_scaling or ())
    share, factor = scaling.get("mscale_all_dim", 0.0), scaling.get("factor", 1.0)
    if not isinstance(share or 0.0, (int, float)):
        raise _unusable(str(scaling["type"]), scaling, TypeError(f"mscale_all_dim is {share!r}"))
    return (0.1 * share * math.log(factor) + 1.0) ** 2 if share and factor > 1 else 1.0


def _scaled(theta: float, scaling: Mapping[str, Any], turned: int, longest: int | None) -> tuple[Tensor, float]:
    values = dict(scaling)
    kind = values.pop("type")
    if kind not in SCALED:
        types = ", ".join(("default", *SCALED))
        raise CannotRunError(f"rope of type {kind!r}", "rope_scaling", f"drafters with these are run: {types}")
    from transformers import PreTrainedConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    numbers = {key: int(value) if key in _WHOLE_NUMBERS else value for key, value in values.items()}
    parameters = {"rope_type": kind, "rope_theta": theta, "factor": 1.0, **numbers, "partial_rotary_factor": 1.0}
    shape = {"head_dim": turned, "hidden_size": turned, "num_attention_heads": 1, "max_position_embeddings": longest}
    config = PreTrainedConfig()
    for name, value in (shape | {"rope_parameters": parameters}).items():
        setattr(config, name, value)  # one at a time: a whole model's config is checked, and this is none
    try:
        frequencies, factor = ROPE_INIT_FUNCTIONS[kind](config, torch.device("cpu"))
    except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        raise _unusable(kind, values, error) from error
    return frequencies, float(factor)


def _unusable(kind: str, values: Mapping[str, Any], error: Exception) -> CannotRunError:
    missing = isinstance(error, KeyError)
    what = (
        f"{kind} rope without {error}" if missing else f"{kind} rope with settings that give no frequencies ({error})"
    )
    return CannotRunError(what, f"rope_scaling {dict(values)}", "complete rope_scaling, as the trainer had it")
