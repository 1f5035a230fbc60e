"""Kinds and dialects, on checkpoints that peers wrote and on the signatures that published drafters show."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from drafter_audit.drafter.clues import Clues
from drafter_audit.drafter.config_view import ConfigView
from drafter_audit.drafter.dialects import DIALECTS, detect_dialect
from drafter_audit.drafter.kinds import KINDS, detect_kind
from drafter_audit.drafter.open import open_drafter
from tests.checkpoints import (
    KIMI_CONFIG,
    LLAMA_1_LAYER,
    eagle1_tensors,
    kimi_tensors,
    write_checkpoint,
    write_peer,
)


@pytest.mark.parametrize(
    ("peer", "kind", "dialect"),
    [
        ("specforge_eagle3", "eagle3", "specforge"),
        ("specforge_trained", "eagle3", "specforge"),
        ("speculators_eagle3", "eagle3", "speculators"),
        ("speculators_converted", "eagle3", "speculators"),
        ("modelopt_eagle3", "eagle3", "modelopt"),
        ("modelopt_eagle3_kimik2", "eagle3_mla", "modelopt"),
        ("tiny_llama", "lm", "unknown"),
        ("tiny_dsv3", "lm", "unknown"),
    ],
)
def test_what_peers_wrote(tmp_path: Path, peer: str, kind: str, dialect: str) -> None:
    spec = open_drafter(write_peer(tmp_path / "checkpoint", peer))
    assert (spec.kind.name, spec.dialect.name) == (kind, dialect)


@pytest.mark.parametrize(
    ("config", "kind", "dialect"),
    [
        pytest.param(KIMI_CONFIG, "eagle3", "specforge", id="AQ-MedAI Kimi-K2"),
        pytest.param(
            {"speculators_model_type": "eagle3", "architectures": ["Eagle3Speculator"]},
            "eagle3",
            "speculators",
            id="speculators",
        ),
        pytest.param({"speculators_model_type": "peagle"}, "peagle", "speculators", id="P-EAGLE speculator"),
        pytest.param({"architectures": ["PEagleDraftModel"]}, "peagle", "specforge", id="P-EAGLE SpecForge"),
        pytest.param(
            {"architectures": ["LlamaForCausalLMEagle3"], "parallel_drafting": True, "num_depths": 4},
            "peagle",
            "nemo",
            id="P-EAGLE NeMo",
        ),
        pytest.param(
            {"architectures": ["DFlashDraftModel"], "block_size": 16, "dflash_config": {"target_layer_ids": [1, 16]}},
            "dflash",
            "unknown",
            id="DFlash",
        ),
        pytest.param({"speculators_model_type": "dflash"}, "dflash", "speculators", id="DFlash speculator"),
        pytest.param(
            {"architectures": ["Qwen3DSparkModel"], "markov_rank": 8, "block_size": 8, "target_layer_ids": [1]},
            "dspark",
            "unknown",
            id="DSpark",
        ),
        pytest.param(
            {"architectures": ["Eagle3DeepseekV2ForCausalLM"], "kv_lora_rank": 512, "draft_vocab_size": 163840},
            "eagle3_mla",
            "unknown",
            id="k-l-lambda Kimi-K2.5 MLA",
        ),
        pytest.param(
            {
                "architectures": ["LlamaForCausalLMEagle3"],
                "eagle_config": {"use_aux_hidden_state": False, "next_layer_regular": True},
            },
            "eagle3_noaux",
            "modelopt",
            id="gpt-oss v2",
        ),
        pytest.param(
            {"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 1, "transformers_version": "4.28.1"},
            "eagle1",
            "eagle",
            id="EAGLE Vicuna",
        ),
        pytest.param(
            {
                "architectures": ["LlamaForCausalLM"],
                "num_hidden_layers": 1,
                "draft_vocab_size": 32000,
                "transformers_version": "4.28.1",
            },
            "eagle3",
            "eagle",
            id="EAGLE3 LLaMA3.1",
        ),
        pytest.param(
            {"architectures": ["Eagle3LlamaForCausalLM"], "draft_vocab_size": 32000},
            "eagle3",
            "angelslim",
            id="AngelSlim",
        ),
        pytest.param(
            {**KIMI_CONFIG, "target_model_type": "qwen2_5_vl"}, "eagle3", "specforge", id="SpecForge template for a VLM"
        ),
        pytest.param({"medusa_num_heads": 5, "model_type": "llama"}, "medusa", "unknown", id="Medusa"),
        pytest.param(
            {"architectures": ["MTPDraftModel"], "speculators_model_type": "mtp"},
            "mtp",
            "speculators",
            id="MTP speculator",
        ),
        pytest.param(
            {"architectures": ["DeepseekV3ForCausalLM"], "num_hidden_layers": 61, "num_nextn_predict_layers": 1},
            "lm",
            "unknown",
            id="target with MTP",
        ),
        pytest.param(
            {"architectures": ["KimiK25ForConditionalGeneration"], "text_config": {"num_hidden_layers": 61}},
            "lm",
            "unknown",
            id="multimodal target",
        ),
        pytest.param(
            {"_torchspec_version": "0.1", "architectures": ["LlamaForCausalLMEagle3"]},
            "eagle3",
            "torchspec",
            id="TorchSpec",
        ),
        pytest.param({"model_type": "something_of_2027"}, "unknown", "unknown", id="a type nobody knows"),
    ],
)
def test_by_config_alone(config: dict[str, Any], kind: str, dialect: str) -> None:
    clues = Clues(ConfigView(config, "config.json"), None, {})
    assert (detect_kind(clues).name, detect_dialect(clues).name) == (kind, dialect)
    assert kind in KINDS
    assert dialect in DIALECTS


def test_eagle1_by_its_tensors(tmp_path: Path) -> None:
    assert open_drafter(write_checkpoint(tmp_path / "e1", LLAMA_1_LAYER, eagle1_tensors())).kind.name == "eagle1"


def test_tensors_outrank_a_class_name(tmp_path: Path) -> None:
    """A repository that declares a plain Llama and holds an EAGLE-3 layer is an EAGLE-3 drafter."""
    config = {**KIMI_CONFIG, "architectures": ["LlamaForCausalLM"]}
    assert open_drafter(write_checkpoint(tmp_path / "e3", config, kimi_tensors())).kind.name == "eagle3"


def test_mask_hidden_makes_peagle(tmp_path: Path) -> None:
    tensors = {**kimi_tensors(), "mask_hidden": ("BF16", (1, 1, 21504))}
    assert open_drafter(write_checkpoint(tmp_path / "p", KIMI_CONFIG, tensors)).kind.name == "peagle"


def test_a_layer_without_fc_is_noaux(tmp_path: Path) -> None:
    config = {**KIMI_CONFIG, "eagle_config": {"use_aux_hidden_state": False}}
    tensors = {
        name: shape
        for name, shape in kimi_tensors().items()
        if name not in ("fc.weight", "midlayer.hidden_norm.weight")
    }
    assert open_drafter(write_checkpoint(tmp_path / "n", config, tensors)).kind.name == "eagle3_noaux"


def test_prefixed_tensors_are_the_same_drafter(tmp_path: Path) -> None:
    """NeMo writes `model.` before every name but the head's."""
    renamed = {
        name if name.startswith(("lm_head", "d2t", "t2d")) else "model." + name.replace("midlayer.", "layers.0."): shape
        for name, shape in kimi_tensors().items()
    }
    spec = open_drafter(write_checkpoint(tmp_path / "nemo", KIMI_CONFIG, renamed))
    assert (spec.kind.name, spec.dialect.name) == ("eagle3", "nemo")


def test_a_plain_model_given_as_drafter_is_a_language_model(tmp_path: Path) -> None:
    spec = open_drafter(write_peer(tmp_path / "lm", "tiny_llama"))
    assert not spec.is_drafter
    assert "not a drafter" in spec.kind.reason
