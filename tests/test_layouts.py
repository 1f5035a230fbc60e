"""Drafters of less usual shapes: what is counted, implied and found. Sizes by hand: H 64, I 128, V 512, D 128, 4 and 2
heads of 32, target width 64, three states."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from drafter_audit.audit.finding import Finding
from drafter_audit.audit.rules import find
from drafter_audit.drafter.open import open_drafter
from drafter_audit.drafter.spec import DrafterSpec
from drafter_audit.errors import CheckpointError
from tests.checkpoints import Tensors, write_checkpoint, write_peer

BASE: dict[str, Any] = {
    "architectures": ["LlamaForCausalLMEagle3"],
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "num_hidden_layers": 1,
    "vocab_size": 512,
    "draft_vocab_size": 128,
    "rope_theta": 10000.0,
}


def layer(index: str, width: int, norms: tuple[str, ...]) -> Tensors:
    return {
        f"{index}.self_attn.q_proj.weight": ("F32", (128, width)),
        f"{index}.self_attn.k_proj.weight": ("F32", (64, width)),
        f"{index}.self_attn.v_proj.weight": ("F32", (64, width)),
        f"{index}.self_attn.o_proj.weight": ("F32", (64, 128)),
        f"{index}.mlp.gate_proj.weight": ("F32", (128, 64)),
        f"{index}.mlp.up_proj.weight": ("F32", (128, 64)),
        f"{index}.mlp.down_proj.weight": ("F32", (64, 128)),
        **{f"{index}.{norm}.weight": ("F32", (64,)) for norm in norms},
    }


FIRST = ("hidden_norm", "input_layernorm", "post_attention_layernorm")
DEEP = ("input_layernorm", "post_attention_layernorm")
ENDS: Tensors = {
    "d2t": ("I64", (128,)),
    "fc.weight": ("F32", (64, 192)),
    "lm_head.weight": ("F32", (128, 64)),
    "norm.weight": ("F32", (64,)),
}


def eagle3() -> Tensors:
    return {**ENDS, **layer("midlayer", 128, FIRST)}


def opened(folder: Path, tensors: Tensors, **config: Any) -> tuple[DrafterSpec, dict[str, Finding]]:
    target = write_peer(folder / "target", "tiny_llama")  # hidden 64, vocabulary 512, 8 layers
    spec = open_drafter(write_checkpoint(folder / "drafter", {**BASE, **config}, tensors), target=target)
    return spec, {finding.code: finding for finding in find(spec)}


def errors(findings: dict[str, Finding]) -> list[str]:
    return [code for code, finding in findings.items() if finding.severity == "error"]


@pytest.mark.parametrize("deep_norms", [DEEP, ("hidden_norm", "post_attention_layernorm")], ids=["vLLM", "SGLang"])
def test_deeper_layers_have_their_norm_under_either_name(tmp_path: Path, deep_norms: tuple[str, ...]) -> None:
    tensors = {**ENDS, **layer("layers.0", 128, FIRST), **layer("layers.1", 64, deep_norms)}
    spec, findings = opened(tmp_path, tensors, num_hidden_layers=2)
    assert errors(findings) == []
    assert spec.parameters.config_implied == spec.parameters.stored


def test_irregular_deeper_layers_read_both_inputs(tmp_path: Path) -> None:
    """TensorRT-LLM's next_layer_regular false: each has the norms of both (modeling_speculative.py)."""
    tensors = {**ENDS, **layer("layers.0", 128, FIRST), **layer("layers.1", 128, FIRST)}
    switch = {"next_layer_regular": False, "parallel_draft_step": 1}
    spec, findings = opened(tmp_path, tensors, num_hidden_layers=2, eagle_config=switch)
    assert errors(findings) == []
    assert spec.parameters.config_implied == spec.parameters.stored


def test_fused_projections_are_not_missing(tmp_path: Path) -> None:
    tensors = {name: shape for name, shape in eagle3().items() if "q_proj" not in name and "k_proj" not in name}
    del tensors["midlayer.self_attn.v_proj.weight"]
    tensors["midlayer.self_attn.qkv_proj.weight"] = ("F32", (256, 128))
    assert errors(opened(tmp_path, tensors)[1]) == []


def test_a_vocabulary_padded_beyond_the_targets_is_not_reduced(tmp_path: Path) -> None:
    """576 rows over a vocabulary of 512: ids map identically, and the target's head can serve."""
    tensors = {name: shape for name, shape in eagle3().items() if name not in ("d2t", "lm_head.weight")}
    spec, findings = opened(tmp_path, tensors, draft_vocab_size=576)
    assert errors(findings) == []
    assert {t.name: t.role for t in spec.tensors if t.nbytes == 0} == {
        "embed_tokens.weight": "borrowed",
        "lm_head.weight": "borrowed",
    }


@pytest.mark.parametrize(
    ("added", "config", "field"),
    [
        (
            {
                f"midlayer.self_attn.{name}_proj.bias": ("F32", (rows,))
                for name, rows in (("q", 128), ("k", 64), ("v", 64))
            },
            {"attention_bias": True},
            "attention_bias",
        ),
        ({"fc.bias": ("F32", (64,))}, {}, "fc_bias"),
        ({f"midlayer.self_attn.{name}_norm.weight": ("F32", (32,)) for name in "qk"}, {}, "qk_norm"),
    ],
    ids=["attention bias", "fc bias", "qk norm"],
)
def test_optional_parts_are_part_of_the_shape(
    tmp_path: Path, added: Tensors, config: dict[str, Any], field: str
) -> None:
    spec, findings = opened(tmp_path, {**eagle3(), **added}, **config)
    assert errors(findings) == []
    assert getattr(spec.architecture, field) is True
    assert spec.parameters.config_implied == spec.parameters.stored


@pytest.mark.parametrize(("declared", "stored"), [(True, False), (False, True)])
def test_a_bias_switch_against_the_tensors(tmp_path: Path, declared: bool, stored: bool) -> None:
    bias: Tensors = {"midlayer.self_attn.q_proj.bias": ("F32", (128,))} if stored else {}
    assert "BIAS-FLAG" in opened(tmp_path, {**eagle3(), **bias}, attention_bias=declared)[1]


def test_eagle1_borrows_the_targets_head(tmp_path: Path) -> None:
    """fc over [embedding ; last state], one plain layer, no head, no last norm."""
    tensors: Tensors = {
        "fc.weight": ("F32", (64, 128)),
        "fc.bias": ("F32", (64,)),
        "embed_tokens.weight": ("F32", (512, 64)),
        **layer("layers.0", 64, ("post_attention_layernorm",)),
    }
    config = {"architectures": ["LlamaForCausalLM"], "draft_vocab_size": None, "transformers_version": "4.28.1"}
    spec, findings = opened(tmp_path, tensors, **config)
    assert (spec.kind.name, spec.dialect.name, errors(findings)) == ("eagle1", "eagle", [])
    assert spec.parameters.borrowed == 512 * 64
    assert spec.parameters.config_implied == spec.parameters.stored


def test_published_eagle1_count() -> None:
    """yuhuili/EAGLE-LLaMA3-Instruct-8B is told as 0.25B: fc, one Llama-3-8B layer, one norm."""
    h, inner, kv = 4096, 14336, 1024
    assert h * 2 * h + 2 * h * h + 2 * kv * h + 3 * h * inner + h == pytest.approx(0.25e9, rel=0.01)


def peagle() -> Tensors:
    layers = {**layer("layers.0", 128, FIRST), **layer("layers.1", 64, DEEP)}
    return {**ENDS, **layers, "embed_tokens.weight": ("F32", (512, 64)), "mask_hidden": ("F32", (1, 1, 192))}


def test_a_peagle_drafter_is_trained_whole(tmp_path: Path) -> None:
    spec, findings = opened(tmp_path, peagle(), architectures=["PEagleDraftModel"], num_hidden_layers=2)
    assert (spec.kind.name, spec.dialect.name, errors(findings)) == ("peagle", "specforge", [])
    assert spec.parameters.trainable == spec.parameters.stored == spec.parameters.config_implied


@pytest.mark.parametrize(
    ("absent", "code"),
    [("d2t", "D2T-MISSING"), ("lm_head.weight", "HEAD-MISSING"), ("fc.weight", "TENSOR-MISSING")],
)
def test_a_peagle_drafter_can_lack_things_too(tmp_path: Path, absent: str, code: str) -> None:
    tensors = {name: shape for name, shape in peagle().items() if name != absent}
    assert code in opened(tmp_path, tensors, architectures=["PEagleDraftModel"], num_hidden_layers=2)[1]


@pytest.mark.parametrize(("name", "length", "code"), [("d2t", 100, "D2T-LENGTH"), ("t2d", 500, "T2D-LENGTH")])
def test_a_map_of_another_length_than_its_vocabulary(tmp_path: Path, name: str, length: int, code: str) -> None:
    tensors = {**eagle3(), "embed_tokens.weight": ("F32", (512, 64)), "t2d": ("BOOL", (512,))}
    assert code not in opened(tmp_path / "sound", tensors)[1]
    tensors[name] = (tensors[name][0], (length,))
    assert code in opened(tmp_path / "faulty", tensors)[1]


def test_a_plain_model_that_is_declared_a_drafter(tmp_path: Path) -> None:
    tensors: Tensors = {"embed_tokens.weight": ("F32", (512, 64)), "norm.weight": ("F32", (64,))}
    for index in range(4):
        tensors |= layer(f"layers.{index}", 64, DEEP)
    spec, findings = opened(tmp_path, tensors)
    assert (spec.kind.name, errors(findings)) == ("lm", ["NOT-A-DRAFTER"])


def test_one_tensor_under_two_prefixes(tmp_path: Path) -> None:
    twice: Tensors = {"model.fc.weight": ("F32", (64, 192)), "draft_model.lm_head.weight": ("F32", (128, 64))}
    spec, findings = opened(tmp_path, {**eagle3(), **twice})
    roles = {tensor.name: tensor.role for tensor in spec.tensors}
    assert (roles["fc.weight"], roles["model.fc.weight"]) == ("trainable", "unknown")
    assert (roles["lm_head.weight"], roles["draft_model.lm_head.weight"]) == ("trainable", "frozen")
    assert {"TENSOR-TWICE", "LEFTOVER"} <= set(findings)


def test_the_width_of_a_state_follows_from_the_ids_where_nothing_else_tells(tmp_path: Path) -> None:
    tensors = {**eagle3(), "fc.weight": ("F32", (64, 3 * 96))}
    config = {**BASE, "eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 3, 4]}}
    spec = open_drafter(write_checkpoint(tmp_path / "wide", config, tensors))
    assert (spec.architecture.target_hidden_size, spec.architecture.num_aux_hidden_states) == (96, 3)
    assert "FC-WIDTH" not in {finding.code for finding in find(spec)}


def test_a_file_without_tensors_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(BASE))
    (tmp_path / "model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
    with pytest.raises(CheckpointError, match="no tensors"):
        open_drafter(str(tmp_path))
