"""How far a drafter reaches: the last position it knows, and the windows its layers attend within."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from drafter_audit.audit.code import Code
from drafter_audit.audit.finding import Finding, Findings
from drafter_audit.drafter.config_view import ConfigView
from drafter_audit.drafter.spec import DrafterSpec

CODES = (
    Code(
        "MAXPOS",
        ("warning",),
        what="max_position_embeddings is below the target's.",
        silent=(
            "Short prompts draft well. Beyond the limit the rotary table ends: acceptance falls, or it is read outside."
        ),
        evidence="config.json of both.",
        fix="Raise it to the target's, unless it says how far training went and prompts stay within.",
        source=(
            "https://github.com/sgl-project/SpecForge/issues/249, https://github.com/vllm-project/vllm/issues/48894, "
            "https://github.com/NVIDIA-NeMo/RL/pull/3960"
        ),
    ),
    Code(
        "WINDOW",
        ("info", "warning"),
        what=("Layers of the drafter attend within a sliding window, or a window is declared without its layers."),
        silent=(
            "An engine that does not read layer_types runs them with full attention: short prompts draft the same."
        ),
        evidence="config.json alone.",
        fix="Take an engine that windows these layers, or set its own option to the declared window.",
        source=(
            "https://github.com/ikawrakow/ik_llama.cpp/pull/2021, vLLM 0.32.0 models/llama.py:186, SGLang 0.5.23 "
            "models/llama_eagle3.py:299"
        ),
    ),
)

_WINDOWED = (
    "vLLM windows such layers; SGLang's EAGLE-3 class reads no window and attends to everything, unless "
    "--speculative-draft-window-size is given"
)


def attends(spec: DrafterSpec) -> bool:
    """Whether it is a drafter with attention of its own, at the target's positions."""
    traits = spec.kind.traits
    return spec.is_drafter and (traits.eagle or traits.reads_aux)


def max_positions(spec: DrafterSpec) -> Findings:
    ours, theirs = spec.architecture.max_position_embeddings, spec.target.max_position_embeddings
    if attends(spec) and ours and theirs and ours < theirs:
        yield Finding(
            "MAXPOS",
            "warning",
            f"max_position_embeddings is {ours}, the target's {theirs}",
            f"beyond {ours} tokens vLLM up to 0.26 reads outside the rotary table, from 0.28 on it raises the limit; "
            "SGLang raises it or stops, by SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN",
            key="max_position_embeddings",
            evidence={"drafter": ours, "target": theirs},
            fix_set=_placed(spec.config, "max_position_embeddings", theirs),
        )


def windows(spec: DrafterSpec) -> Findings:
    if not attends(spec):
        return
    window, windowed = spec.architecture.sliding_window, _windowed_layers(spec)
    if windowed:
        yield Finding(
            "WINDOW",
            "warning" if spec.kind.traits.eagle else "info",
            f"{windowed} of its layers attend within a window of {window or 'unstated size'}",
            _WINDOWED if spec.kind.traits.eagle else "an engine that reads no layer_types attends to everything",
            key="layer_types",
            evidence=_window_evidence(window, windowed),
        )
    elif window and "layer_types" not in spec.config.raw:
        yield Finding(
            "WINDOW",
            "info",
            f"sliding_window is {window}, and no layer_types says which layers it is for",
            "the Llama classes of vLLM and SGLang then attend to everything",
            key="sliding_window",
            evidence=_window_evidence(window, 0),
        )


def _windowed_layers(spec: DrafterSpec) -> int:
    types = spec.config.get("layer_types")
    if types is None:
        return 0
    if not isinstance(types, list):
        raise spec.config.wrong("layer_types", types, "a list of layer types")
    return types[: spec.architecture.num_layers or 1].count("sliding_attention")


def _window_evidence(window: int | None, windowed: int) -> Mapping[str, Any]:
    return {"sliding_window": window, "windowed_layers": windowed}


def _placed(config: ConfigView, key: str, value: int) -> Mapping[str, Any]:
    """The edit that sets `key` where readers look for it: in the section of the layers, if there is one."""
    return {config.layer_section: {key: value}} if config.layer_section else {key: value}
