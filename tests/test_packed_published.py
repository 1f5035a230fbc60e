"""Packed checkpoints whose parameter counts are published: the Hub's own parser, before and after it was mended.

Published: huggingface.js packages/hub/src/lib/parse-safetensors-metadata.spec.ts at 00d37b2 (counts by dtype, read from
the real headers); hub-docs issue 2704 and pull requests 1770, 2003, 2415 there (what was shown before). Derived: the
headers here, from configs and modelling code. That every published count comes out to the last digit proves them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from drafter_audit.audit.rules import find
from drafter_audit.drafter.open import open_drafter
from drafter_audit.drafter.spec import DrafterSpec
from tests.checkpoints import Tensors, write_checkpoint
from tests.packed_checkpoints import (
    KIMI_K25_CONFIG,
    LLAMA_8B_CONFIG,
    gpt_oss_tensors,
    kimi_k25_tensors,
    llama_8b_bitsandbytes,
    llama_8b_gptq,
)


def by_dtype(spec: DrafterSpec) -> dict[str, int]:
    """Parameters by stored dtype, as the Hub's parser gives them."""
    counts: dict[str, int] = {}
    for tensor in spec.tensors:
        if tensor.role != "buffer":
            counts[tensor.dtype or ""] = counts.get(tensor.dtype or "", 0) + tensor.logical
    return counts


def formats(spec: DrafterSpec) -> set[str | None]:
    return {tensor.packed for tensor in spec.tensors} - {None}


def test_kimi_k25(tmp_path: Path) -> None:
    """Shown as 170B, then as 1.06T while scales still counted, now as 1.027T."""
    spec = open_drafter(write_checkpoint(tmp_path / "k25", KIMI_K25_CONFIG, kimi_k25_tensors()))
    p = spec.parameters
    assert by_dtype(spec) == {"F32": 23_040, "I32": 1_014_686_023_680, "BF16": 12_193_329_648}
    assert p.stored == p.unknown == 1_026_879_376_368
    scales = 1_014_686_023_680 // 32  # one for 32 weights, BF16
    shapes = 60 * 384 * 3 * 2
    assert p.buffers == scales + shapes
    assert p.elements == 1_014_686_023_680 // 8 + 12_193_329_648 + 23_040 + scales + shapes
    assert round(p.elements / 1e9) in (170, 171)
    assert round((p.stored + scales) / 1e12, 2) == 1.06
    assert p.nbytes == 1_014_686_023_680 // 2 + 2 * (12_193_329_648 + scales) + 4 * (23_040 + shapes)
    assert formats(spec) == {"compressed-tensors 4-bit"}
    assert spec.architecture.dtype == "compressed-tensors 4-bit"


def test_llama_8b_gptq(tmp_path: Path) -> None:
    """Shown as 2B. RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w4a16 stores a bias for each packed layer."""
    gptq = {"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True, "desc_act": False}
    config = {**LLAMA_8B_CONFIG, "quantization_config": gptq}
    spec = open_drafter(write_checkpoint(tmp_path / "gptq", config, llama_8b_gptq()))
    assert by_dtype(spec) == {"I32": 6_979_321_856, "F16": 1_052_315_648}
    assert spec.parameters.stored == 8_031_637_504
    assert spec.parameters.elements is not None
    assert round(spec.parameters.elements / 1e9) == 2
    finding = next(finding for finding in find(spec) if finding.code == "PACKED-WEIGHTS")
    assert (finding.evidence["format"], finding.evidence["bits"]) == ("GPTQ", 4)
    assert finding.evidence["elements"] == 6_979_321_856 // 8
    assert finding.evidence["bytes"] == 6_979_321_856 // 2


def test_llama_8b_bitsandbytes(tmp_path: Path) -> None:
    """unsloth/Meta-Llama-3.1-8B-Instruct-bnb-4bit: 3,489,660,928 bytes hold two weights each."""
    four = {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}
    config = {**LLAMA_8B_CONFIG, "quantization_config": four}
    spec = open_drafter(write_checkpoint(tmp_path / "bnb", config, llama_8b_bitsandbytes()))
    assert by_dtype(spec) == {"U8": 2 * 3_489_660_928, "BF16": 1_050_939_392}
    assert spec.parameters.stored == 8_030_261_248
    assert formats(spec) == {"bitsandbytes NF4"}


@pytest.mark.parametrize(
    ("layers", "experts", "plain", "packed", "scales"),
    [
        (24, 32, 1_804_459_584, 19_110_297_600, 597_196_800),
        (36, 128, 2_167_371_072, 114_661_785_600, 3_583_180_800),
    ],
)
def test_gpt_oss(tmp_path: Path, layers: int, experts: int, plain: int, packed: int, scales: int) -> None:
    """gpt-oss-20b was shown as 21.5B and gpt-oss-120b as 120.4B while the scales of their blocks counted."""
    config = {
        "architectures": ["GptOssForCausalLM"],
        "num_hidden_layers": layers,
        "quantization_config": {"quant_method": "mxfp4"},
    }
    spec = open_drafter(write_checkpoint(tmp_path / "oss", config, gpt_oss_tensors(layers, experts)))
    assert by_dtype(spec) == {"BF16": plain, "U8": packed}
    assert spec.parameters.buffers == scales
    assert formats(spec) == {"MXFP4"}


def test_mlx_8_bit_as_published(tmp_path: Path) -> None:
    """avlp12/Motif-3-Alis-MLX-8bit: 314.8B shown as 88.6B. Its shapes are not published; the ratio follows from 8 bits
    and groups of 64: a weight costs 1/4 of a U32, 1/64 of a scale and 1/64 of a bias, 0.28125 elements."""
    rows, wide = 1_537_000, 204_800
    weights = rows * wide
    tensors: Tensors = {
        "model.embed_tokens.weight": ("BF16", (2, wide)),
        "model.layers.0.mlp.up_proj.weight": ("U32", (rows, wide // 4)),
        "model.layers.0.mlp.up_proj.scales": ("BF16", (rows, wide // 64)),
        "model.layers.0.mlp.up_proj.biases": ("BF16", (rows, wide // 64)),
    }
    config = {"architectures": ["MotifForCausalLM"], "quantization": {"group_size": 64, "bits": 8}}
    spec = open_drafter(write_checkpoint(tmp_path / "mlx", config, tensors))
    assert spec.parameters.elements is not None
    assert spec.parameters.stored == weights + 2 * wide
    assert round(spec.parameters.stored / 1e9, 1) == 314.8
    assert spec.parameters.elements == weights * 9 // 32 + 2 * wide
    assert round(spec.parameters.elements / 1e9, 1) in (88.5, 88.6)
