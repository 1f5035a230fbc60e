"""Which of vLLM's classes runs a target, since when it hands hidden states to an EAGLE-3 drafter, and which of them.

Read in model_executor/models/registry.py and the classes it names, release by release from 0.10.2 to 0.33.0.
"""

from __future__ import annotations

from dataclasses import dataclass

from packaging.version import Version

from drafter_audit.drafter.target import Target
from drafter_audit.engines.base import Release

# Release -> classes that derive from SupportsEagle3 since then.
_SINCE = {
    "0.10.1": "LlamaForCausalLM Llama4ForCausalLM MistralForCausalLM Qwen3ForCausalLM Phi3ForCausalLM GlmForCausalLM "
    "Ernie4_5ForCausalLM InternLM3ForCausalLM TeleChat2ForCausalLM TeleFLMForCausalLM",
    "0.10.2": "MiMoForCausalLM Qwen2ForCausalLM",
    "0.11.0": "GptOssForCausalLM MiniCPMForCausalLM MiniCPM3ForCausalLM CwmForCausalLM",
    "0.11.1": "Llama4ForConditionalGeneration Qwen2_5_VLForConditionalGeneration Qwen3MoeForCausalLM",
    "0.12.0": "OpenCUAForConditionalGeneration Qwen3VLForConditionalGeneration Qwen3VLMoeForConditionalGeneration",
    "0.13.0": "Emu3ForConditionalGeneration SmolLM3ForCausalLM",
    "0.14.0": "IQuestCoderForCausalLM",
    "0.15.0": "LlavaForConditionalGeneration",
    "0.16.0": "AfmoeForCausalLM HunYuanDenseV1ForCausalLM HunYuanMoEV1ForCausalLM HunYuanVLForConditionalGeneration "
    "Mistral3ForConditionalGeneration InternS1ProForConditionalGeneration LightOnOCRForConditionalGeneration",
    "0.17.0": "Qwen3_5ForConditionalGeneration Qwen3_5MoeForConditionalGeneration",
    "0.18.0": "ApertusForCausalLM ArceeForCausalLM DeepseekForCausalLM DeepseekV2ForCausalLM DeepseekV3ForCausalLM "
    "DeepseekV32ForCausalLM GlmMoeDsaForCausalLM KimiK25ForConditionalGeneration MistralLarge3ForCausalLM "
    "Step1ForCausalLM",
    "0.19.0": "PixtralForConditionalGeneration",
    "0.20.0": "Exaone4_5_ForConditionalGeneration Gemma4ForCausalLM Gemma4ForConditionalGeneration "
    "MiniMaxM2ForCausalLM Ministral3ForCausalLM TeleChat3ForCausalLM",
    "0.21.0": "LagunaForCausalLM",
    "0.22.0": "NemotronHForCausalLM NemotronHPuzzleForCausalLM InternS2PreviewForConditionalGeneration",
    "0.22.1": "MellumForCausalLM",
    "0.23.0": "Cosmos3ForConditionalGeneration Gemma4UnifiedForConditionalGeneration",
    "0.24.0": "Qwen3NextForCausalLM MiniMaxM3SparseForCausalLM MiniMaxM3SparseForConditionalGeneration",
    "0.25.0": "GPTBigCodeForCausalLM MiMoV2FlashForCausalLM MiMoV2ForCausalLM Starcoder2ForCausalLM "
    "DeepseekV4ForCausalLM",
    "0.26.0": "Olmo2ForCausalLM OlmoForCausalLM",
    "0.27.0": "Qwen3_5ForCausalLM Qwen3_5MoeForCausalLM KimiK3ForConditionalGeneration KimiLinearForCausalLM",
    "0.28.0": "InternS2MobiusForConditionalGeneration MuseGlimmerForCausalLM MuseGlimmerForConditionalGeneration",
    "0.29.0": "FlexOlmoForCausalLM Olmo3ForCausalLM Plamo3ForCausalLM Qwen3OmniMoeForConditionalGeneration",
    "0.30.0": "K2HorizonForCausalLM NanbeigeForCausalLM SarvamMLAForCausalLM",
    "0.31.0": "Cohere2MoeForCausalLM MiMoV2OmniForCausalLM NemotronH_Nano_VL_V2 NemotronH_Nano_Omni_Reasoning_V3",
    "0.32.0": "GPTNeoXForCausalLM GraniteForCausalLM PhiForCausalLM SeedOssForCausalLM Jais2ForCausalLM "
    "Glm5NextForCausalLM Glm5NextForConditionalGeneration",
    "0.33.0": "GraniteMoeForCausalLM GraniteMoeSharedForCausalLM",
}
_SUPPORT = {name: since for since, names in _SINCE.items() for name in names.split()}

# Classes that 0.33.0 has without SupportsEagle3: of common targets only, the registry has many more.
_WITHOUT = frozenset(
    {
        "DeciLMForCausalLM",
        "Glm4MoeForCausalLM",
        "Glm4MoeLiteForCausalLM",
        "MixtralForCausalLM",
        "Qwen2MoeForCausalLM",
        "Gemma3ForCausalLM",
        "Gemma3ForConditionalGeneration",
        "Qwen2VLForConditionalGeneration",
    }
)

# Where a config names no class: transformers' own names.
_BY_MODEL_TYPE = {
    "deepseek_v2": "DeepseekV2ForCausalLM",
    "deepseek_v3": "DeepseekV3ForCausalLM",
    "deepseek_v32": "DeepseekV32ForCausalLM",
    "gpt_oss": "GptOssForCausalLM",
    "kimi_k2": "DeepseekV3ForCausalLM",
    "kimi_k25": "KimiK25ForConditionalGeneration",
    "llama": "LlamaForCausalLM",
    "llama4": "Llama4ForConditionalGeneration",
    "minimax_m2": "MiniMaxM2ForCausalLM",
    "minimax_m3_vl": "MiniMaxM3SparseForConditionalGeneration",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
    "qwen3_next": "Qwen3NextForCausalLM",
}

# Before 0.22 the language model's model_type had to contain one of these too (config/speculative.py).
_GATE: tuple[tuple[str, str], ...] = (
    ("0.10.1", "llama qwen"),
    ("0.11.1", "minicpm gpt_oss"),
    ("0.16.0", "hunyuan_vl hunyuan_v1_dense afmoe"),
    ("0.17.0", "nemotron_h"),
    ("0.18.0", "deepseek_v2 deepseek_v3 kimi_k2 kimi_k25"),
    ("0.20.0", "minimax_m2 gemma4"),
    ("0.21.0", "laguna"),
)
_GATE_UNTIL = "0.22.0"

_DEEPSEEK = frozenset(
    {
        "DeepseekForCausalLM",
        "DeepseekV2ForCausalLM",
        "DeepseekV3ForCausalLM",
        "DeepseekV32ForCausalLM",
        "GlmMoeDsaForCausalLM",
        "KimiK25ForConditionalGeneration",
        "MistralLarge3ForCausalLM",
    }
)


@dataclass(frozen=True)
class Reach:
    """Which of the boundaries 0 and L a class hands out; those between it always does.

    `embedding`: "yes", "fails" (the first forward raises: there is no residual to add yet) or "never" (no state comes).
    `last`: whether boundary L comes; without it no state does.
    """

    embedding: str = "yes"
    last: bool = True


def target_class(target: Target) -> str | None:
    """The class that the target's config names, else the usual one of its model_type; None where neither is known."""
    named = [name for name in target.architectures if name in _SUPPORT or name in _WITHOUT]
    usual = [_BY_MODEL_TYPE[kind] for kind in target.model_types if kind in _BY_MODEL_TYPE]
    return next(iter([*named, *target.architectures[:1], *usual]), None)


def support(name: str | None, release: Release) -> bool | None:
    """Whether that class supports EAGLE-3 in that release; None for one that is not listed here."""
    if name is None or name not in {**_SUPPORT, **dict.fromkeys(_WITHOUT)}:
        return None
    since = _SUPPORT.get(name)
    return since is not None and release.number >= Version(since)


def gated(target: Target, release: Release) -> str | None:
    """The model_type by which a release before 0.22 turns a target away; None where it does not."""
    kind = target.model_types[-1] if target.model_types else None
    if kind is None or release.number >= Version(_GATE_UNTIL):
        return None
    passed = [part for since, parts in _GATE if release.number >= Version(since) for part in parts.split()]
    return None if any(part in kind for part in passed) else kind


def reach(name: str | None, release: Release) -> Reach:
    """Which states a class hands out in that release; that of an unlisted one as most classes do.

    Sources: 0.17.0 llama.py:424, 0.18.0 interfaces.py (EagleModelMixin), 0.33.0 deepseek_v2.py:1561, 0.25.0
    deepseek_v2.py:1489, 0.33.0 models/deepseek_v32/nvidia/model.py:289, models/deepseek_v4/nvidia/model.py:1006.
    """
    number = release.number
    if number < Version("0.18.0"):
        return Reach("fails", last=False)
    if name == "DeepseekV32ForCausalLM" and number >= Version("0.29.0"):
        return Reach(last=False)
    if name in _DEEPSEEK:
        return Reach("fails", last=number >= Version("0.25.0"))
    return Reach("never") if name == "DeepseekV4ForCausalLM" else Reach()
