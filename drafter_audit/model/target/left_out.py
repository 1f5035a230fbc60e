"""Nothing that transformers leaves out of a checkpoint passes in silence: it is refused, or told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from drafter_audit.drafter.config_view import ConfigView
from drafter_audit.drafter.target import UNQUANTISED, quantization_label
from drafter_audit.errors import CannotRunError, CheckpointError
from drafter_audit.model.target.explain import PACKAGES
from drafter_audit.model.target.parts import Untyped

_FACTORS = (".weight_scale", ".weight_scale_inv", ".weight_scale_2", ".weight_global_scale")
"""Last parts of the names under which ModelOpt, fp8 blocks and compressed-tensors store what a weight is times."""


def check_packing(config: ConfigView, ref: str) -> None:
    """transformers only warns of a `quant_method` that it does not know, and takes packed numbers for the weights."""
    from transformers.quantizers.auto import AUTO_QUANTIZATION_CONFIG_MAPPING

    label = quantization_label(config)
    known = {*AUTO_QUANTIZATION_CONFIG_MAPPING, "bitsandbytes"}
    if label != UNQUANTISED and label.split()[0] not in known:
        what = f"transformers does not read {label} weights"
        raise CannotRunError(what, ref, f"name a checkpoint that is not packed, or of {', '.join(sorted(PACKAGES))}")


def renamed(raw: Mapping[str, Any], model: Untyped) -> tuple[str, ...]:
    """A word where config.json names another class than the one that runs."""
    named, ours = raw.get("architectures"), type(model).__name__
    other = named and named != [ours]
    return (f"config.json names {named}, and what runs is transformers' {ours}",) if other else ()


def left_out(info: Mapping[str, Any], ref: str) -> tuple[str, ...]:
    """What of the files was not read, in words. Raises CheckpointError for weights that the model has at random."""
    missing = [str(name) for name in info["missing_keys"]]
    misshapen = [f"{name} ({list(theirs)}, not {list(ours)})" for name, theirs, ours in info["mismatched_keys"]]
    for names, what in ((sorted(missing), "are missing"), (sorted(misshapen), "have another shape")):
        if names:
            told = f"{len(names)} weights {what}: {', '.join(names[:3])}"
            raise CheckpointError(told, ref, "transformers would draw them at random: complete the checkpoint")
    extra = sorted(str(name) for name in info["unexpected_keys"])
    scaled = ((name, f"{name.rpartition('.')[0]}.weight") for name in extra if name.endswith(_FACTORS))
    factors = [name for name, weight in scaled if weight not in extra]  # else the weight is left out with its factor
    if factors:
        told = f"{len(factors)} factors of packed weights are not read: {', '.join(factors[:3])}"
        raise CannotRunError(
            told, ref, "without them the weights are other numbers: take a checkpoint that is not packed"
        )
    return (f"{len(extra)} tensors are no part of the model: {', '.join(extra[:3])}",) if extra else ()
