"""Shapes from tensors and config, RoPE in one layout, and wrong types."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from drafter_audit.audit.rules import find
from drafter_audit.drafter.architecture import Architecture
from drafter_audit.drafter.config_view import ConfigView
from drafter_audit.drafter.open import open_drafter
from drafter_audit.drafter.rope import read_rope
from drafter_audit.errors import ConfigError
from tests.checkpoints import KIMI_CONFIG, Tensors, kimi_tensors, read_peer, write_checkpoint, write_peer


def shape_of(folder: Path, config: dict[str, Any], tensors: Tensors) -> Architecture:
    return open_drafter(write_checkpoint(folder, config, tensors)).architecture


def test_tensors_alone_give_kimis_shape(tmp_path: Path) -> None:
    """Without one size in config.json, the headers still tell all but how heads divide."""
    config = {"architectures": ["LlamaForCausalLMEagle3"], "num_attention_heads": 64}
    arch = shape_of(tmp_path / "aq", config, kimi_tensors())
    assert (arch.hidden_size, arch.intermediate_size, arch.num_layers) == (7168, 18432, 1)
    assert (arch.num_attention_heads, arch.num_key_value_heads, arch.head_dim) == (64, 64, 128)
    assert (arch.vocab_size, arch.draft_vocab_size, arch.num_aux_hidden_states) == (163840, 32000, 3)
    assert arch.dtype == "bfloat16"


def test_head_dim_is_not_hidden_over_heads(tmp_path: Path) -> None:
    """64 x 128 is not 7168: a reader that derives head_dim takes 112. The file says 128, and the audit says so."""
    config = {name: value for name, value in KIMI_CONFIG.items() if name != "head_dim"}
    spec = open_drafter(write_checkpoint(tmp_path / "aq", config, kimi_tensors()))
    assert spec.architecture.head_dim == 128
    mismatch = next(finding for finding in find(spec) if finding.code == "SHAPE-MISMATCH")
    assert (mismatch.key, mismatch.evidence) == ("head_dim", {"declared": None, "derived": 112, "stored": 128})
    assert mismatch.fix_set == {"head_dim": 128}


def test_layers_are_counted_from_keys(tmp_path: Path) -> None:
    second = {
        name.replace("midlayer.", "layers.1."): shape
        for name, shape in kimi_tensors().items()
        if name.startswith("midlayer.")
    }
    first = {name.replace("midlayer.", "layers.0."): shape for name, shape in kimi_tensors().items()}
    spec = open_drafter(write_checkpoint(tmp_path / "two", KIMI_CONFIG, {**first, **second}))
    assert spec.architecture.num_layers == 2
    assert [f.key for f in find(spec) if f.code == "SHAPE-MISMATCH"] == ["num_hidden_layers"]


@pytest.mark.parametrize(("states", "ids"), [(2, [2, 58]), (5, [2, 16, 30, 44, 58])])
def test_aux_states_are_counted_from_fc(tmp_path: Path, states: int, ids: list[int]) -> None:
    tensors = {**kimi_tensors(), "fc.weight": ("BF16", (7168, states * 7168))}
    config = {**KIMI_CONFIG, "eagle_config": {"eagle_aux_hidden_state_layer_ids": ids}}
    spec = open_drafter(write_checkpoint(tmp_path / "fc", config, tensors), target="moonshotai-kimi-k2-instruct")
    assert spec.architecture.num_aux_hidden_states == states
    assert not [finding for finding in find(spec) if finding.severity == "error"]


def test_a_narrow_drafter_on_a_wide_target(tmp_path: Path) -> None:
    """fc maps the target's width to the drafter's own: yuhuili's 70B drafter does so."""
    tensors = {
        **kimi_tensors(),
        "fc.weight": ("BF16", (7168, 3 * 8192)),
        "embed_tokens.weight": ("BF16", (163840, 7168)),
    }
    arch = shape_of(tmp_path / "wide", {**KIMI_CONFIG, "target_hidden_size": 8192}, tensors)
    assert (arch.hidden_size, arch.target_hidden_size, arch.num_aux_hidden_states) == (7168, 8192, 3)


def test_latent_attention_shape(tmp_path: Path) -> None:
    config, _, _ = read_peer("modelopt_eagle3_kimik2")
    arch = open_drafter(write_peer(tmp_path / "mla", "modelopt_eagle3_kimik2")).architecture
    assert (arch.q_lora_rank, arch.kv_lora_rank) == (config["q_lora_rank"], config["kv_lora_rank"])
    assert arch.head_dim == config["qk_nope_head_dim"] + config["qk_rope_head_dim"]


def test_speculators_residual_switch_has_no_default(tmp_path: Path) -> None:
    config, tensors, metadata = read_peer("speculators_eagle3")
    assert shape_of(tmp_path / "a", config, tensors).norm_before_residual is False
    del config["norm_before_residual"]
    spec = open_drafter(write_checkpoint(tmp_path / "b", config, tensors, metadata))
    assert spec.architecture.norm_before_residual is None
    assert "RES-DEFAULT" in {finding.code for finding in find(spec)}


LLAMA3 = {"factor": 8.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0, "original_max_position_embeddings": 8192}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"rope_theta": 1e6, "rope_scaling": None}, {"rope_parameters": {"rope_theta": 1e6, "rope_type": "default"}}),
        (
            {"rope_theta": 500000, "rope_scaling": {**LLAMA3, "rope_type": "llama3"}},
            {"rope_parameters": {**LLAMA3, "rope_type": "llama3", "rope_theta": 500000.0}},
        ),
        (
            {"rope_theta": 5e4, "rope_scaling": {"type": "yarn", "factor": 32, "beta_fast": 32, "beta_slow": 1}},
            {"rope_parameters": {"rope_type": "yarn", "factor": 32.0, "rope_theta": 50000.0}},
        ),
        ({}, {"rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"}}),
        ({"rope_theta": 1e4}, {"transformer_layer_config": {"rope_theta": 10000.0, "rope_scaling": None}}),
        ({"rope_theta": 1e4}, {"rope_theta": 1e4, "rope_scaling": {"rope_type": "default", "rope_theta": 10000}}),
        (
            {"rope_theta": 1e6, "partial_rotary_factor": 0.25},
            {"rope_parameters": {"rope_theta": 1e6, "rope_type": "default", "partial_rotary_factor": 0.25}},
        ),
        (
            {"rope_theta": 1e6, "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]}},
            {"rope_parameters": {"rope_theta": 1e6, "rope_type": "default", "mrope_section": [16, 24, 24]}},
        ),
        ({"rope_scaling": {"type": "su", "factor": 4}}, {"rope_scaling": {"type": "longrope", "factor": 4.0}}),
    ],
)
def test_both_layouts_of_rope_are_one(old: dict[str, Any], new: dict[str, Any]) -> None:
    before, after = (read_rope(ConfigView(config, "config.json")) for config in (old, new))
    assert before.to_dict() == after.to_dict()
    assert (before.conflict, after.conflict) == (None, None)


def test_rope_layouts_that_disagree_are_told() -> None:
    rope = read_rope(
        ConfigView({"rope_theta": 10000, "rope_parameters": {"rope_theta": 5e6, "rope_type": "default"}}, "")
    )
    assert rope.theta == 5e6
    assert rope.conflict == "rope_theta is given as 5e+06 and 10000"


def test_a_theta_nobody_declared_is_told_apart() -> None:
    assert read_rope(ConfigView({}, "")).theta_declared is False
    assert read_rope(ConfigView({"rope_theta": 10000}, "")).theta_declared is True


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hidden_size", "7168"), ("hidden_size", -1), ("hidden_size", 7168.0), ("hidden_size", True),
        ("draft_vocab_size", 0), ("draft_vocab_size", -1), ("draft_vocab_size", 4.0), ("vocab_size", [163840]),
        ("num_hidden_layers", "one"), ("num_hidden_layers", 10**9), ("num_aux_hidden_states", 10**30),
        ("vocab_size", 10**15),
        ("norm_output", "yes"), ("norm_before_fc", 1), ("eagle_config", [2, 30, 58]),
        ("rope_scaling", "yarn"), ("rope_theta", "1e6"), ("rope_parameters", 3),
        ("architectures", "LlamaForCausalLMEagle3"), ("torch_dtype", 16),
        ("speculators_config", "x"), ("dflash_config", 1), ("transformer_layer_config", []),
        ("transformers_version", 4.57), ("model_type", ["llama"]),
    ],
)  # fmt: skip
def test_a_wrong_type_is_one_clear_line(tmp_path: Path, key: str, value: object) -> None:
    config = {name: kept for name, kept in KIMI_CONFIG.items() if name != "dtype"}
    if key == "rope_parameters":
        del config["rope_theta"]
    folder = write_checkpoint(tmp_path / "wrong", {**config, key: value}, kimi_tensors())
    with pytest.raises(ConfigError) as caught:
        open_drafter(folder)
    message = str(caught.value)
    assert key in message
    assert "config.json" in message
    assert "\n" not in message
    assert caught.value.exit_code == 3


def test_a_config_without_weights_cannot_ask_for_a_million_layers(tmp_path: Path) -> None:
    """Nothing but the config says how many tensors are expected then: it must not exhaust memory."""
    (tmp_path / "config.json").write_text(json.dumps({**KIMI_CONFIG, "num_hidden_layers": 10**7}))
    with pytest.raises(ConfigError, match="num_hidden_layers"):
        open_drafter(str(tmp_path))
