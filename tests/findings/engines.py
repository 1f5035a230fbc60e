"""Cases of audit/rules/engines.py: what the named engines do with drafters that they read otherwise than they say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from drafter_audit.audit.lint import Lint, lint
from tests.checkpoints import EMBEDDING, KIMI_CONFIG, Tensors, kimi_tensors, read_peer, write_checkpoint
from tests.findings.case import Build, Case

NESTED = "eagle_aux_hidden_state_layer_ids"
INPUT_NORM: Tensors = {"input_norm.weight": ("BF16", (21504,))}
# deepseek-ai/DeepSeek-V3's config.json, as far as engines and lint look at it; Kimi-K2 has the same layers and width.
KIMI_TARGET: dict[str, Any] = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "hidden_size": 7168,
    "kv_lora_rank": 512,
    "max_position_embeddings": 131072,
    "model_type": "deepseek_v3",
    "num_attention_heads": 64,
    "num_hidden_layers": 61,
    "rope_theta": 50000.0,
    "vocab_size": 163840,
}


def write_target(folder: Path, config: dict[str, Any] = KIMI_TARGET) -> str:
    """A target of which only config.json is there."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    return str(folder)


def kimi(engine: str, *, ids: list[int] | None = None, tensors: Tensors | None = None, **config: Any) -> Build:
    """The published drafter of Kimi-K2 with some keys changed, on its target, linted for one engine."""
    eagle = {**KIMI_CONFIG["eagle_config"], **({} if ids is None else {NESTED: ids}), **config.pop("eagle_config", {})}

    def build(folder: Path) -> Lint:
        whole = {**KIMI_CONFIG, **config, "eagle_config": eagle}
        ref = write_checkpoint(folder / "drafter", whole, {**kimi_tensors(), **(tensors or {})})
        return lint(ref, target=write_target(folder / "target"), engines=[engine], level="target_config")

    return build


def peer(name: str, engine: str, without: str = "", **config: Any) -> Build:
    """A peer's checkpoint with some keys changed, and one tensor left out."""
    published, tensors, metadata = read_peer(name)
    kept = {tensor: shape for tensor, shape in tensors.items() if tensor != without}

    def build(folder: Path) -> Lint:
        return lint(write_checkpoint(folder / name, {**published, **config}, kept, metadata), engines=[engine])

    return build


TRT, TRT_OLD, LLAMA_CPP = "tensorrt-llm@1.4.0rc1", "tensorrt-llm@1.2.0", "llama.cpp"
ROPE_5 = {"rope_theta": None, "rope_parameters": {"rope_theta": 1000000.0, "rope_type": "default"}}

CASES = (
    Case("ENGINE-LOAD", fires=peer("speculators_eagle3", TRT), silent=peer("specforge_eagle3", TRT)),
    Case("ENGINE-IDS", fires=kimi(TRT, ids=[1, 9, 57]), silent=kimi(TRT, ids=[1, 29, 57])),
    Case(
        "IDS-KEYPLACE",
        fires=kimi(LLAMA_CPP, ids=[1, 29, 57]),
        silent=kimi(LLAMA_CPP, eagle_config={NESTED: None}, **{NESTED: [2, 30, 58]}),
    ),
    Case(
        "ENGINE-NORM",
        fires=kimi(TRT, norm_before_fc=True, tensors=INPUT_NORM),
        silent=kimi(TRT, eagle_config={"norm_before_fc": True}, tensors=INPUT_NORM),
    ),
    Case(
        "NORM-PLACE",
        fires=kimi(TRT, norm_before_fc=True, tensors=INPUT_NORM),
        silent=kimi(TRT, eagle_config={"norm_before_fc": True}, tensors=INPUT_NORM),
    ),
    Case("RES-UNSUPPORTED", fires=kimi(TRT, norm_before_residual=True), silent=kimi(TRT, norm_before_residual=False)),
    Case("ENGINE-FEEDBACK", fires=kimi(LLAMA_CPP, norm_output=True), silent=kimi(LLAMA_CPP, norm_output=False)),
    Case(
        "EMB-REPLACED",
        fires=kimi("sglang", tensors=EMBEDDING, embed_requires_grad=True),
        silent=kimi("sglang", tensors=EMBEDDING),  # a frozen copy is the target's own
    ),
    Case("HEAD-REPLACED", fires=kimi("sglang", tie_word_embeddings=True), silent=kimi("sglang")),
    Case("ENGINE-MAP", fires=peer("specforge_eagle3", "vllm", without="d2t"), silent=peer("specforge_eagle3", "vllm")),
    Case(
        "ENGINE-WIRING",
        fires=peer("specforge_eagle3", "vllm", without="lm_head.weight", tie_word_embeddings=True),
        silent=peer("specforge_eagle3", "vllm", without="lm_head.weight"),
    ),
    Case("ENGINE-ROPE", fires=kimi(TRT_OLD, **ROPE_5), silent=kimi(TRT, **ROPE_5)),
    Case("ENGINE-FAULT", fires=kimi("sglang@0.5.10", ids=[3, 30, 58]), silent=kimi("sglang@0.5.11", ids=[3, 30, 58])),
    Case("ENGINE-NOTE", fires=kimi(TRT, ids=[-1, 29, 57]), silent=kimi(TRT, ids=[1, 29, 57])),
    Case("ENGINE-UNREAD", fires=kimi("sglang@99.0"), silent=kimi("sglang")),
)
