"""What an engine trips over when it loads a drafter that is sound in itself: class name, prefix, depth, nulls."""

from __future__ import annotations

from drafter_audit.audit.finding import Finding, Findings
from drafter_audit.drafter.names import layer_index
from drafter_audit.drafter.spec import DrafterSpec

# Keys that may not be null, with who refuses it: NVIDIA/Model-Optimizer#1417; SGLang models/llama_eagle3.py.
_NOT_NULL = {
    "use_cache": "strict validation of the config refuses it",
    "target_hidden_size": "SGLang's Llama class multiplies it to size fc, and stops",
}


def class_name(spec: DrafterSpec) -> Findings:
    """An EAGLE-3 drafter under a plain model's class (deepseek-ai/DeepSpec#44, sgl-project/sglang#8229)."""
    names, clues = spec.config.architectures, spec.clues
    if not spec.kind.traits.eagle or spec.kind.name == "eagle1" or not clues.has_weights or not names:
        return
    if spec.config.architecture_contains("eagle", "speculator"):
        return
    wanted = "Eagle3DeepseekV2ForCausalLM" if spec.kind.name == "eagle3_mla" else "LlamaForCausalLMEagle3"
    width, hidden = clues.first_layer_input, spec.architecture.hidden_size
    yield Finding(
        "ARCH-NAME",
        "warning",
        f"config.json names {names[0]}, the tensors are an EAGLE-3 drafter's: its attention reads {width} where hidden "
        f"is {hidden}, which is expected for EAGLE-3",
        "loaded by its class name it fails with a size mismatch; SGLang does not start",
        key="architectures",
        evidence={"architectures": list(names), "attention_input": width, "hidden_size": hidden},
        fix_set={"architectures": [wanted]},
    )


def prefix(spec: DrafterSpec) -> Findings:
    """vLLM and SGLang's MLA class put `model.` before every name themselves (NeMo writes it already)."""
    stored = [tensor for tensor in spec.table or () if tensor.name.startswith("model.")]
    if stored and spec.kind.traits.eagle:
        yield Finding(
            "PREFIX",
            "warning",
            f"{len(stored)} tensors are stored under model., such as {stored[0].name}",
            "vLLM and SGLang's latent-attention class add that prefix themselves and do not find model.model.*",
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
    if not spec.is_drafter:
        return
    for key, consequence in _NOT_NULL.items():
        if key in spec.config.raw and spec.config.raw[key] is None and spec.dialect.name != "speculators":
            yield Finding("CONFIG-NULL", "warning", f"{key} is null", consequence, key=key)
