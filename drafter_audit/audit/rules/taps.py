"""Aux states at either end of the target: the embedding output, and the last layer's."""

from __future__ import annotations

from drafter_audit.audit.code import Code
from drafter_audit.audit.finding import Finding, Findings
from drafter_audit.drafter.spec import DrafterSpec

CODES = (
    Code(
        "IDS-EMBEDDING",
        ("info",),
        what=(
            "A slot reads the target's embedding output, boundary 0: id 0 where ids are boundaries, -1 where they are"
            " outputs of layers."
        ),
        silent=("Read by the other meaning, id 0 is the output of the first layer: a state of the same width."),
        evidence="The declared ids and the meaning they are read by.",
        fix="None is called for; see to it that the engine taps the embedding output.",
        source=(
            "Run: vLLM's hidden-state extraction takes id 0 as the embedding output. Read: vLLM 0.32.0 "
            "models/llama.py:429, SGLang 0.5.23 models/llama.py:941 (id + 1, before the layer of that number)"
        ),
    ),
    Code(
        "IDS-LAST",
        ("info",),
        what="A slot reads boundary L, the output of the target's last layer before its final norm.",
        silent=("A hook that runs before each layer never meets it: one state is missing, or another takes its place."),
        evidence="The declared ids, the meaning they are read by, and the target's layer count.",
        fix="Take an engine that captures it for this target.",
        source=(
            "https://github.com/vllm-project/vllm/pull/46788, SGLang 0.5.23 models/llama.py:492, qwen2.py:462, "
            "qwen3.py:530, deepseek_v2.py:3194, https://github.com/sgl-project/sglang/pull/32334"
        ),
    ),
)


def embedding_tap(spec: DrafterSpec) -> Findings:
    aux = spec.aux_layers
    if aux.boundaries is None or 0 not in aux.boundaries:
        return
    tapped = min(aux.declared or (0,))
    yield Finding(
        "IDS-EMBEDDING",
        "info",
        f"layer id {tapped} is the embedding output, boundary 0: ids are read as {_MEANING[aux.reading]}",
        "it is -1 where ids are outputs of layers (SGLang, TensorRT-LLM, most trainers) and 0 where they are "
        "boundaries (vLLM, speculators, llama.cpp); under the first meaning 0 is the output of the first layer",
        key=aux.key,
        evidence={"id": tapped, "reading": aux.reading, "boundaries": list(aux.boundaries)},
    )


def last_layer(spec: DrafterSpec) -> Findings:
    aux, layers = spec.aux_layers, spec.target.num_layers
    if aux.boundaries is None or layers is None or layers not in aux.boundaries:
        return
    yield Finding(
        "IDS-LAST",
        "info",
        f"the output of the target's last layer is read, boundary {layers}, before the final norm",
        "SGLang's Llama, Qwen2, Qwen3 and DeepSeek classes never capture it, vLLM's DeepSeek class only since PR "
        "46788; fc then gets a state too few",
        key=aux.key,
        evidence={"ids": list(aux.declared or ()), "num_layers": layers, "boundaries": list(aux.boundaries)},
    )


_MEANING = {"output_of_layer": "outputs of layers", "boundary": "boundaries", "default": "what they were noted to mean"}
