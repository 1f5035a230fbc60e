"""Switches, positions and dtypes that readers take differently."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from drafter_audit.audit.code import Code
from drafter_audit.audit.finding import Finding, Findings
from drafter_audit.drafter.architecture import DTYPE_NAMES, declared_dtype
from drafter_audit.drafter.spec import DrafterSpec

CODES: tuple[Code, ...] = (
    Code(
        "NORM-FLAG",
        ("error",),
        what="A norm before fc is stored and its switch is off, or on and none is stored; or both such norms are on.",
        silent="Engines go by the switch: they drop the norm, or run it with weights of one.",
        evidence="The switch, and the tensors input_norm.* or fc_norm.*.",
        fix="Set the switch where the norm is stored; where it is not, export again. Of both keep the trained one.",
        source="https://github.com/vllm-project/vllm/pull/38111",
    ),
    Code(
        "RES-DEFAULT",
        ("warning",),
        what="A speculators drafter does not declare norm_before_residual.",
        silent="vLLM then takes true, speculators' own class false; no tensor tells which was trained.",
        evidence="The key is absent.",
        fix="Write what training used.",
        source=(
            "https://github.com/vllm-project/speculators/pull/53; vLLM 0.33.0 "
            "vllm/transformers_utils/configs/speculators/algos.py:33"
        ),
    ),
    Code(
        "BIAS-FLAG",
        ("error", "warning"),
        what=(
            "A bias is stored and its switch is off, or on and none is stored. A warning where the switch is "
            "absent: engines then go by defaults of their own."
        ),
        silent="Engines drop what they did not build, and run what they built and never loaded.",
        evidence="The switch, and the tensors *.bias.",
        fix="Set the switch to what is stored.",
        source="https://github.com/vllm-project/vllm/issues/11126",
    ),
    Code(
        "DTYPE",
        ("info",),
        what="config.json names another dtype than the weights have.",
        silent="The weights are cast while loading.",
        evidence="The declared dtype, and that of most stored parameters.",
        fix="Declare the dtype that is stored.",
        source="https://github.com/SafeAILab/EAGLE/issues/259",
    ),
    Code(
        "ROPE-CONFLICT",
        ("warning",),
        what="rope_theta or the rope type is given twice, differently.",
        silent="transformers 4 and 5 read different keys; both run.",
        evidence="Both values.",
        fix="Give the one that training used in both places.",
        source="https://github.com/pytorch/executorch/pull/20149",
    ),
    Code(
        "ROPE-DEFAULT",
        ("info",),
        what="No rope_theta is declared.",
        silent="Readers fall back to 10000 without a word.",
        evidence="The key is absent from every place that readers look at.",
        fix="Write the base that training used.",
        source="https://github.com/NVIDIA-NeMo/Automodel/pull/2920",
    ),
)

_EAGLE3 = ("eagle3", "eagle3_mla", "eagle3_noaux")


def norms(spec: DrafterSpec) -> Findings:
    """A norm tensor without its switch is silently left out; a switch without its tensor is silently all ones."""
    if not spec.clues.has_weights or not spec.is_drafter:
        return
    arch = spec.architecture
    pairs = (("norm_before_fc", arch.norm_before_fc, "input_norm."), ("fc_norm", arch.fc_norm, "fc_norm."))
    for key, switch, prefix in pairs:
        stored = any(name.startswith(prefix) for name in spec.clues.tensors)
        if switch != stored:
            what = f"{prefix}* is stored but {key} is off" if stored else f"{key} is on but no {prefix}* is stored"
            yield Finding(
                "NORM-FLAG",
                "error",
                what,
                "engines drop the norm, or run it with weights of one, silently",
                key=key,
                evidence={"switch": switch, "stored": stored},
                fix_set=_switched_on(spec, key) if stored else None,  # one that was lost is not mended by the switch
            )


def both_norms(spec: DrafterSpec) -> Findings:
    """speculators refuses both; vLLM and SGLang run one after the other, TensorRT-LLM fc_norm alone."""
    arch = spec.architecture
    if spec.is_drafter and arch.norm_before_fc and arch.fc_norm:
        yield Finding(
            "NORM-FLAG",
            "error",
            "norm_before_fc and fc_norm are both on",
            "vLLM and SGLang run input_norm and then fc_norm, TensorRT-LLM fc_norm alone; speculators trains with one",
            key="fc_norm",
            evidence={"norm_before_fc": True, "fc_norm": True},
        )


def _switched_on(spec: DrafterSpec, key: str) -> Mapping[str, Any]:
    """SGLang and vLLM let the one in eagle_config win."""
    if spec.config.eagle.raw.get(key) is None:
        return spec.config.edit(key, True)
    inner = {"eagle_config": {key: True}}
    return inner if spec.config.section("eagle_config") else {str(spec.config.layer_section): inner}


def residual(spec: DrafterSpec) -> Findings:
    """Undeclared in speculators' format for EAGLE-3; for P-EAGLE both readers take false, other kinds have no such
    switch (speculators models/eagle3/config.py, vLLM configs/speculators/algos.py)."""
    if spec.clues.has_weights and spec.kind.name in _EAGLE3 and spec.architecture.norm_before_residual is None:
        yield Finding(
            "RES-DEFAULT",
            "warning",
            "norm_before_residual is not declared",
            "vLLM's loader takes true, speculators' config class false",
            key="norm_before_residual",
        )


def biases(spec: DrafterSpec) -> Findings:
    """config.json against the tensors: SGLang drops stored biases, vLLM builds declared ones."""
    if not spec.clues.has_weights or not spec.kind.traits.eagle:
        return
    for key in ("attention_bias", "mlp_bias"):
        declared, stored = spec.config.boolean(key), getattr(spec.architecture, key)
        if bool(declared) != stored:
            said = "off" if declared is False else "not declared"
            what = f"{key} is on, no such bias is stored" if declared else f"{key} is {said}, biases are stored"
            yield Finding(
                "BIAS-FLAG",
                "warning" if declared is None else "error",
                what,
                "engines leave biases out, or add ones that were never loaded, silently",
                key=key,
                evidence={"declared": declared, "stored": stored},
                fix_set=spec.config.edit(key, stored),
            )


def fc_bias(spec: DrafterSpec) -> Findings:
    """EAGLE, SGLang and TensorRT-LLM go by `bias`, vLLM by `eagle_fc_bias` (vllm-project/vllm#11126)."""
    clues, stored = spec.clues, spec.architecture.fc_bias
    if not clues.has_weights or "fc.weight" not in clues.tensors or not spec.kind.traits.eagle:
        return
    for key in ("bias", "eagle_fc_bias"):
        declared = spec.config.boolean(key)
        read = "eagle_fc_bias" if spec.kind.name == "eagle1" else "bias"
        undeclared = key == read and declared is None and stored
        if undeclared or (declared is not None and declared != stored):
            what = "fc.bias is stored" if stored else "no fc.bias is stored"
            yield Finding(
                "BIAS-FLAG",
                "warning" if undeclared else "error",
                f"{what}, {key} is {'not declared' if declared is None else 'on' if declared else 'off'}",
                "engines leave the bias out, or demand one that is not there",
                key=key,
                evidence={"declared": declared, "stored": stored},
                fix_set=spec.config.edit(key, stored),
            )


def dtype(spec: DrafterSpec) -> Findings:
    said, stored = declared_dtype(spec.config), spec.architecture.dtype
    if spec.clues.packing.companions:  # weights are quantised: the dtype is that of the arithmetic
        return
    keys = [key for key in ("dtype", "torch_dtype") if spec.config.raw.get(key) is not None]  # of transformers 5 and 4
    if spec.clues.has_weights and spec.is_drafter and said and stored in DTYPE_NAMES.values() and said != stored:
        yield Finding(
            "DTYPE",
            "info",
            f"config.json says {said}, the weights are {stored}",
            "a reader that follows the config rounds the weights",
            key=keys[0] if keys else "dtype",
            evidence={"declared": said, "stored": stored},
            fix_set=dict.fromkeys(keys, stored) or spec.config.edit("dtype", stored),
        )


def rope(spec: DrafterSpec) -> Findings:
    rope = spec.architecture.rope
    if rope.conflict:
        yield Finding(
            "ROPE-CONFLICT",
            "warning",
            rope.conflict,
            "readers of the two layouts run different positions",
            key="rope_parameters",
            evidence=rope.to_dict(),
        )
    elif not rope.theta_declared and spec.kind.traits.eagle:
        yield Finding(
            "ROPE-DEFAULT",
            "info",
            "no rope_theta is declared, readers take 10000",
            "right only if training did the same",
            key="rope_theta",
            evidence=rope.to_dict(),
        )
