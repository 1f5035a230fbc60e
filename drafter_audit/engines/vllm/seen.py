"""The config of a drafter as vLLM's model code gets it: flat, translated from speculators' where it is theirs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from packaging.version import Version

from drafter_audit.drafter.spec import DrafterSpec
from drafter_audit.engines.base import Release

IDS = "eagle_aux_hidden_state_layer_ids"
LAYERS = "transformer_layer_config"

# Keys of speculators' top level that are taken over, and since when (None: in all that were read).
_ALWAYS = {"draft_vocab_size": None, "target_hidden_size": None, "norm_before_residual": None}
_COPIED: Mapping[str, Mapping[str, str | None]] = {
    "eagle3": {**_ALWAYS, IDS: "0.11.1", "norm_before_fc": "0.19.0", "fc_norm": "0.25.0", "norm_output": "0.25.0"},
    "peagle": {**_ALWAYS, IDS: None, "norm_before_fc": None},
}
_PEAGLE_SINCE = "0.22.0"
_QWEN3_SINCE = "0.24.0"
_ABSENT = {"norm_before_residual": {"eagle3": True, "peagle": False}}  # the other switches are off

# Class name -> (the code behind it, since when it is registered). Source: model_executor/models/registry.py. A name
# that EAGLEConfig prefixes is looked for with its prefix: PEagleDraftModel is registered, Eagle3PEagleDraftModel is not
# (0.33.0 configs/eagle.py:56, config/speculative.py:1527). Only the translation of speculators' brings Peagle names.
_REGISTERED = {
    "Eagle3LlamaForCausalLM": ("llama", "0.10.0"),
    "LlamaForCausalLMEagle3": ("llama", "0.10.1"),
    "Eagle3Qwen2_5vlForCausalLM": ("llama", "0.11.1"),
    "Eagle3Qwen3vlForCausalLM": ("llama", "0.12.0"),
    "Eagle3MiniMaxM2ForCausalLM": ("llama", "0.20.0"),
    "PeagleLlamaForCausalLM": ("llama", "0.22.0"),
    "Eagle3DeepseekV2ForCausalLM": ("latent", "0.18.0"),
    "Eagle3DeepseekV3ForCausalLM": ("latent", "0.18.0"),
    "Eagle3Qwen3ForCausalLM": ("qwen3", "0.24.0"),
    "PeagleQwen3ForCausalLM": ("qwen3", "0.24.0"),
}


@dataclass(frozen=True)
class Seen:
    """`keys` is the flat config. `translated` is speculators' type where it went through their translation. `names` are
    the class names after prefixing, `model_class` the code that runs them: llama, qwen3, latent, None where there is
    none. `bad_type` is a layer type that the translation refuses."""

    keys: Mapping[str, Any]
    translated: str | None
    names: tuple[str, ...]
    model_class: str | None
    bad_type: str | None = None

    @property
    def eagle(self) -> Mapping[str, Any]:
        """`eagle_config`, empty where there is none."""
        section = self.keys.get("eagle_config")
        return section if isinstance(section, Mapping) else {}


def seen_config(spec: DrafterSpec, release: Release) -> Seen:
    """What is left of the drafter's config in that release."""
    raw = spec.config.raw
    kind = spec.config.text("speculators_model_type") or "eagle3"
    if spec.dialect.name != "speculators" or raw.get("model_type") or kind not in _COPIED:
        names = tuple(_prefixed(name) for name in spec.config.architectures)
        return Seen(raw, None, names, _class_of(names, release))
    layer_type = str(spec.config.section(LAYERS).get("model_type", "llama"))
    refused = layer_type not in ("llama", "qwen3") and release.number >= Version(_QWEN3_SINCE)
    names = (_translated_name(kind, layer_type, release),)
    found = None if refused or too_new(kind, release) else _class_of(names, release)
    return Seen(_translated(spec, kind, release), kind, names, found, layer_type if refused else None)


def too_new(kind: str, release: Release) -> bool:
    """Whether speculators' drafters of that type are unknown to the release."""
    return kind == "peagle" and release.number < Version(_PEAGLE_SINCE)


def copied(kind: str, key: str, release: Release) -> bool:
    """Whether the translation takes that key over from the top level."""
    table = _COPIED[kind]
    since = table.get(key)
    return key in table and (since is None or release.number >= Version(since))


def placed(seen: Seen, key: str, value: object, release: Release) -> dict[str, Any]:
    """The edit that makes vLLM see `value` under `key`: at the top level, or where the translation starts from."""
    if seen.translated is None or copied(seen.translated, key, release):
        return {key: value}
    return {LAYERS: {key: value}}


def usual_name(*, latent: bool, qk_norm: bool) -> str:
    """The class name under which vLLM registers a drafter of that build."""
    return (
        "Eagle3DeepseekV2ForCausalLM" if latent else "Eagle3Qwen3ForCausalLM" if qk_norm else "LlamaForCausalLMEagle3"
    )


def _prefixed(name: str) -> str:
    return name if name.startswith("Eagle3") or name.endswith("Eagle3") else f"Eagle3{name}"


def _class_of(names: tuple[str, ...], release: Release) -> str | None:
    known = (_REGISTERED.get(name) for name in names)
    return next((code for entry in known if entry and release.number >= Version(entry[1]) for code in entry[:1]), None)


def _translated_name(kind: str, layer_type: str, release: Release) -> str:
    prefix = "Eagle3" if kind == "eagle3" else "Peagle"
    qwen3 = layer_type == "qwen3" and release.number >= Version(_QWEN3_SINCE)
    return f"{prefix}{'Qwen3' if qwen3 else 'Llama'}ForCausalLM"


def _translated(spec: DrafterSpec, kind: str, release: Release) -> dict[str, Any]:
    raw, keys = spec.config.raw, dict(spec.config.section(LAYERS))
    for key in _COPIED[kind]:
        value = raw.get(key, _ABSENT.get(key, {}).get(kind, False))
        wanted = key not in (IDS, "target_hidden_size") or bool(raw.get(key))
        if wanted and copied(kind, key, release):
            keys[key] = raw.get(key) if key == "draft_vocab_size" else value
    if kind == "peagle":
        keys["pard_token"] = raw.get("mask_token_id")
    return keys
