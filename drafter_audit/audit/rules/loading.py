"""What an engine trips over when it loads a drafter that is sound in itself: class name, prefix, depth, nulls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from drafter_audit.audit.code import Code
from drafter_audit.audit.finding import Finding, Findings
from drafter_audit.drafter.names import layer_index
from drafter_audit.drafter.spec import DrafterSpec

CODES: tuple[Code, ...] = (
    Code(
        "ARCH-NAME",
        ("warning",),
        what="An EAGLE-3 drafter is filed under a plain model's class name, or under none.",
        silent="A plain loader reports shapes that are right for EAGLE-3 as a size mismatch; an engine may not start.",
        evidence="The class name, and the width that the first layer's attention reads.",
        fix="Write the drafter's class name into config.json.",
        source="https://github.com/deepseek-ai/DeepSpec/issues/44",
    ),
    Code(
        "PREFIX",
        ("warning",),
        what="Tensors are stored under the prefix model, or that of a trainer's wrapper.",
        silent="vLLM, and SGLang's class for latent attention, add model themselves; none takes a wrapper's name off.",
        evidence="The names, as stored.",
        fix="Strip the prefix from the names.",
        source=(
            "https://github.com/sgl-project/sglang/issues/8229; vLLM 0.33.0 "
            "vllm/model_executor/models/llama_eagle3.py:444"
        ),
    ),
    Code(
        "MULTI-LAYER",
        ("warning",),
        what="The drafter has more than one layer.",
        silent=(
            "Engines look for the norm of the deeper layers under different names, and run weights of one where "
            "it is not."
        ),
        evidence="The number of layers, and the norms that the deeper ones store.",
        fix="Name the norm as the engine that serves it does.",
        source="https://github.com/vllm-project/vllm/issues/33330",
    ),
    Code(
        "CONFIG-NULL",
        ("warning",),
        what="A key of config.json is null that a reader cannot take as null.",
        silent="Most readers take null for absent; the one that does not stops.",
        evidence="The key.",
        fix="Write the value, or remove the key.",
        source="https://github.com/NVIDIA/Model-Optimizer/pull/1417",
    ),
)


_WRAPPED = "no engine takes that prefix off: the tensors are not found, or passed over"
_PREFIXES = {
    "model.": "vLLM and SGLang's latent-attention class add that prefix themselves and do not find model.model.*",
    "eagle_module.": _WRAPPED,
    "draft_model.": _WRAPPED,
}

# SGLang models/llama_eagle3.py:151 (0.5.23); its class for latent attention takes null for absent.
_SGLANG_LLAMA = ("eagle3", "eagle3_noaux", "peagle")


def class_name(spec: DrafterSpec) -> Findings:
    """An EAGLE-3 drafter under a plain model's class (deepseek-ai/DeepSpec#44, sgl-project/sglang#8229)."""
    names, clues = spec.config.architectures, spec.clues
    gguf = spec.table is not None and spec.table.gguf  # its config is made of keys of its own
    if not spec.kind.traits.eagle or spec.kind.name == "eagle1" or not clues.has_weights or gguf:
        return
    if spec.config.architecture_contains("eagle", "speculator"):
        return
    wanted = "Eagle3DeepseekV2ForCausalLM" if spec.kind.name == "eagle3_mla" else "LlamaForCausalLMEagle3"
    width, hidden = clues.first_layer_input, spec.architecture.hidden_size
    doubled = f": its attention reads {width} where hidden is {hidden}, which is expected for EAGLE-3"
    yield Finding(
        "ARCH-NAME",
        "warning",
        f"config.json names {names[0] if names else 'no class'}, the tensors are an EAGLE-3 drafter's"
        f"{doubled if width and hidden and width == 2 * hidden else ''}",
        "loaded by its class name it fails with a size mismatch; SGLang does not start",
        key="architectures",
        evidence={"architectures": list(names), "attention_input": width, "hidden_size": hidden},
        fix_set={"architectures": [wanted]},
    )


def prefix(spec: DrafterSpec) -> Findings:
    """vLLM and SGLang's MLA class put `model.` before every name themselves (NeMo writes it already). Of a trainer's
    wrapper none knows the name."""
    for wrapper, consequence in _PREFIXES.items():
        yield from _prefixed(spec, wrapper, consequence)


def _prefixed(spec: DrafterSpec, wrapper: str, consequence: str) -> Findings:
    stored = [tensor for tensor in spec.table or () if tensor.name.startswith(wrapper)]
    if stored and spec.kind.traits.eagle:
        yield Finding(
            "PREFIX",
            "warning",
            f"{len(stored)} tensors are stored under {wrapper}, such as {stored[0].name}",
            consequence,
            key=stored[0].name,
            file=stored[0].file,
            evidence={"tensors": len(stored)},
        )


def deeper_layers(spec: DrafterSpec) -> Findings:
    """Where deeper layers keep their norm decides which engine loads the drafter (vllm-project/vllm#33330)."""
    layers = spec.architecture.num_layers or 1
    if spec.kind.name not in ("eagle3", "eagle3_mla") or layers < 2:
        return
    deep = [name for name in spec.clues.tensors if (layer_index(name) or 0) > 0]
    norms = sorted({part for part in ("hidden_norm", "input_layernorm") for name in deep if f".{part}." in name})
    yield Finding(
        "MULTI-LAYER",
        "warning",
        f"{layers} layers; the deeper ones store {' and '.join(norms) or 'no norm before their attention'}",
        "vLLM loads input_layernorm there, SGLang and TensorRT-LLM hidden_norm: under the other name it runs with "
        "weights of one; llama.cpp and SGLang's latent-attention class take one layer only",
        key="num_hidden_layers",
        evidence={"num_layers": layers, "norms": norms},
    )


def null_keys(spec: DrafterSpec) -> Findings:
    """Keys that some reader cannot take as null. speculators' own format is converted before an engine reads it."""
    if not spec.is_drafter or spec.dialect.name == "speculators":
        return
    if _is_null(spec, "use_cache"):  # NVIDIA/Model-Optimizer#1417
        yield _null("use_cache", "strict validation of the config refuses it", {"use_cache": True})
    if _is_null(spec, "target_hidden_size") and spec.kind.name in _SGLANG_LLAMA:
        width = spec.target.hidden_size or spec.clues.dim("fc_norm.0.weight", 0, rank=1)
        consequence = "SGLang's Llama class multiplies it to size fc, and stops"
        yield _null("target_hidden_size", consequence, {"target_hidden_size": width} if width else None)


def _is_null(spec: DrafterSpec, key: str) -> bool:
    return key in spec.config.raw and spec.config.raw[key] is None


def _null(key: str, consequence: str, fix: Mapping[str, Any] | None) -> Finding:
    return Finding("CONFIG-NULL", "warning", f"{key} is null", consequence, key=key, fix_set=fix)
