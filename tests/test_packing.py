"""What packed containers hold, format by format. Numbers are worked out by hand beside each case."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from drafter_audit.audit.finding import Finding
from drafter_audit.audit.params import By, count_params
from drafter_audit.audit.rules import find
from drafter_audit.drafter.open import open_drafter
from drafter_audit.drafter.packing import module_of
from drafter_audit.drafter.spec import DrafterSpec
from drafter_audit.errors import ConfigError
from drafter_audit.report.document import Lines, Table
from drafter_audit.report.params_view import params_document
from tests.checkpoints import EMBEDDING, KIMI_CONFIG, Tensors, kimi_tensors, read_peer, write_checkpoint

X = "model.layers.0.mlp.up_proj"
PLAIN: Tensors = {"model.embed_tokens.weight": ("BF16", (10, 4))}  # makes a language model of it
OUT, IN = 96, 256  # of the weight in every case below: 96 x 256 = 24,576 parameters


def groups(bits: int, group_size: int | None = None, form: str = "pack-quantized", **weights: Any) -> dict[str, Any]:
    scheme = {"targets": ["Linear"], "weights": {"num_bits": bits, "group_size": group_size, **weights}}
    return {"quant_method": "compressed-tensors", "format": form, "config_groups": {"group_0": scheme}}


def spec_of(folder: Path, tensors: Tensors, **config: Any) -> DrafterSpec:
    base = {"architectures": ["LlamaForCausalLM"], **config}
    return open_drafter(write_checkpoint(folder / "checkpoint", base, {**PLAIN, **tensors}))


def codes(spec: DrafterSpec) -> dict[str, Finding]:
    return {finding.code: finding for finding in find(spec)}


def weight(dtype: str, *shape: int, **companions: tuple[str, tuple[int, ...]]) -> Tensors:
    return {f"{X}.weight": (dtype, shape), **{f"{X}.{name}": entry for name, entry in companions.items()}}


CASES: dict[str, tuple[Tensors, dict[str, Any], str, int]] = {
    # I32 holds 32/4 = 8: 256/8 = 32 columns, 256/32 = 8 groups
    "compressed-tensors int4, groups": (
        {
            f"{X}.weight_packed": ("I32", (96, 32)),
            f"{X}.weight_scale": ("BF16", (96, 8)),
            f"{X}.weight_shape": ("I64", (2,)),
            f"{X}.weight_g_idx": ("I32", (256,)),
        },
        groups(4, 32),
        "compressed-tensors 4-bit",
        96 * 32,
    ),
    # int8 in I32: 4 to a container, one scale a row
    "compressed-tensors int8, channels": (
        {f"{X}.weight_packed": ("I32", (96, 64)), f"{X}.weight_scale": ("BF16", (96, 1))},
        groups(8),
        "compressed-tensors 8-bit",
        96 * 64,
    ),
    # asymmetric: zero points packed along rows, 96*4/32 = 12
    "compressed-tensors int4, zero points": (
        {
            f"{X}.weight_packed": ("I32", (96, 32)),
            f"{X}.weight_scale": ("BF16", (96, 2)),
            f"{X}.weight_zero_point": ("I32", (12, 2)),
        },
        groups(4, 128, symmetric=False),
        "compressed-tensors 4-bit",
        96 * 32,
    ),
    # 3 bits without gaps: 256*3/32 = 24 columns
    "compressed-tensors int3, dense": (
        {f"{X}.weight_packed": ("I32", (96, 24)), f"{X}.weight_scale": ("BF16", (96, 2))},
        groups(3, 128),
        "compressed-tensors 3-bit",
        96 * 24,
    ),
    # 3 bits, 10 to a container as older exports had it: ceil(256/10) = 26 columns
    "compressed-tensors int3, with gaps": (
        {f"{X}.weight_packed": ("I32", (96, 26)), f"{X}.weight_scale": ("BF16", (96, 2))},
        groups(3, 128),
        "compressed-tensors 3-bit",
        96 * 26,
    ),
    # FP4, two to a byte: 128 columns, 256/16 = 16 scales
    "compressed-tensors NVFP4": (
        {
            f"{X}.weight_packed": ("U8", (96, 128)),
            f"{X}.weight_scale": ("F8_E4M3", (96, 16)),
            f"{X}.weight_global_scale": ("F32", (1,)),
            f"{X}.input_global_scale": ("F32", (1,)),
        },
        groups(4, 16, "nvfp4-pack-quantized", type="float"),
        "NVFP4",
        96 * 128,
    ),
    # MXFP4, scales U8 for 32: 256/32 = 8
    "compressed-tensors MXFP4": (
        {f"{X}.weight_packed": ("U8", (96, 128)), f"{X}.weight_scale": ("U8", (96, 8))},
        groups(4, 32, "mxfp4-pack-quantized", type="float"),
        "MXFP4",
        96 * 128,
    ),
    # MXFP6, four to three bytes: 256*6/8 = 192 columns
    "compressed-tensors MXFP6": (
        {f"{X}.weight_packed": ("U8", (96, 192)), f"{X}.weight_scale": ("U8", (96, 8))},
        groups(6, 32, "mxfp6-pack-quantized", type="float"),
        "MXFP6",
        96 * 192,
    ),
    # rows packed: 256*4/32 = 32; zero points 96*4/32 = 12
    "GPTQ int4": (
        {
            f"{X}.qweight": ("I32", (32, 96)),
            f"{X}.qzeros": ("I32", (2, 12)),
            f"{X}.scales": ("F16", (2, 96)),
            f"{X}.g_idx": ("I32", (256,)),
        },
        {"quant_method": "gptq", "bits": 4, "group_size": 128},
        "GPTQ 4-bit",
        32 * 96,
    ),
    # 3 bits: 256*3/32 = 24 rows, zero points 96*3/32 = 9
    "GPTQ int3": (
        {f"{X}.qweight": ("I32", (24, 96)), f"{X}.qzeros": ("I32", (2, 9)), f"{X}.scales": ("F16", (2, 96))},
        {"quant_method": "gptq", "bits": 3, "group_size": 128},
        "GPTQ 3-bit",
        24 * 96,
    ),
    # GPTQModel's `dynamic`: config says 4, this layer is 8-bit: 256*8/32 = 64 rows, zero points 96*8/32 = 24 prove it
    "GPTQ int8 in a 4-bit model": (
        {f"{X}.qweight": ("I32", (64, 96)), f"{X}.qzeros": ("I32", (2, 24)), f"{X}.scales": ("F16", (2, 96))},
        {"quant_method": "gptq", "bits": 4, "group_size": 128},
        "GPTQ 8-bit",
        64 * 96,
    ),
    # columns packed: 96*4/32 = 12
    "AWQ int4": (
        {f"{X}.qweight": ("I32", (256, 12)), f"{X}.qzeros": ("I32", (2, 12)), f"{X}.scales": ("F16", (2, 96))},
        {"quant_method": "awq", "bits": 4, "group_size": 128, "version": "gemm"},
        "AWQ 4-bit",
        256 * 12,
    ),
    # w_bit is AutoAWQ's older key; gemv packs a row: 256*4/32 = 32, scales padded to 8
    "AWQ int4, gemv": (
        {f"{X}.qweight": ("I32", (96, 32)), f"{X}.qzeros": ("I32", (96, 1)), f"{X}.scales": ("F16", (96, 8))},
        {"quant_method": "awq", "w_bit": 4, "q_group_size": 128, "version": "GEMV"},
        "AWQ 4-bit",
        96 * 32,
    ),
    "ModelOpt NVFP4": (
        weight("U8", 96, 128, weight_scale=("F8_E4M3", (96, 16)), weight_scale_2=("F32", ()), input_scale=("F32", ())),
        {"quant_method": "modelopt", "quant_algo": "NVFP4"},
        "NVFP4",
        96 * 128,
    ),
    # two rows to a byte: 96/2 = 48, and scales [96, 256/128]
    "ModelOpt W4A16_AWQ": (
        weight("U8", 48, 256, weight_scale=("BF16", (96, 2)), pre_quant_scale=("BF16", (256,))),
        {"quant_method": "modelopt", "quant_algo": "W4A16_AWQ"},
        "ModelOpt 4-bit",
        48 * 256,
    ),
    # DeepSeek-V4: FP4 in I8, scales for 32
    "FP4 in I8": (weight("I8", 96, 128, scale=("F8_E8M0", (96, 8))), {"quant_method": "fp8"}, "MXFP4", 96 * 128),
    "bitsandbytes NF4": (
        {
            f"{X}.weight": ("U8", (12288, 1)),
            f"{X}.weight.absmax": ("F32", (384,)),
            f"{X}.weight.quant_map": ("F32", (16,)),
            f"{X}.weight.quant_state.bitsandbytes__nf4": ("U8", (80,)),
        },
        {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"},
        "bitsandbytes NF4",
        12288,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_each_format(tmp_path: Path, case: str) -> None:
    tensors, declared, label, elements = CASES[case]
    spec = spec_of(tmp_path, tensors, quantization_config=declared)
    (packed,) = (tensor for tensor in spec.tensors if tensor.packed)
    assert (packed.packed, packed.elements, packed.logical) == (label, elements, OUT * IN)
    assert spec.parameters.stored == OUT * IN + 40
    assert {tensor.role for tensor in spec.tensors if tensor.name not in (packed.name, *PLAIN)} <= {"buffer"}
    finding = codes(spec)["PACKED-WEIGHTS"]
    assert finding.severity == "info"
    assert (finding.evidence["elements"], finding.evidence["logical"]) == (elements, OUT * IN)
    assert "PACKED-UNKNOWN" not in codes(spec)
    if not label.startswith("bitsandbytes"):  # its headers keep no shape
        assert spec.clues.shape("layers.0.mlp.up_proj.weight") == (OUT, IN)


@pytest.mark.parametrize(("bits", "columns"), [(2, 16), (3, 24), (4, 32), (5, 40), (6, 48), (8, 64)])  # 256 * bits / 32
def test_mlx_widths(tmp_path: Path, bits: int, columns: int) -> None:
    tensors = weight("U32", 96, columns, scales=("BF16", (96, 4)), biases=("BF16", (96, 4)), bias=("BF16", (96,)))
    spec = spec_of(tmp_path, tensors, quantization={"group_size": 64, "bits": bits})
    assert spec.parameters.stored == OUT * IN + 96 + 40  # `bias` is a parameter, `biases` are not
    assert spec.parameters.buffers == 2 * 96 * 4
    assert {tensor.packed for tensor in spec.tensors} == {None, f"MLX {bits}-bit"}


def test_mlx_settings_of_one_module(tmp_path: Path) -> None:
    """The head has 8 bits: 256*8/32 = 64 columns; the layer 4: 32. Both have 256/64 = 4 groups."""
    tensors = {
        **weight("U32", 96, 32, scales=("BF16", (96, 4)), biases=("BF16", (96, 4))),
        "lm_head.weight": ("U32", (10, 64)),
        "lm_head.scales": ("BF16", (10, 4)),
        "lm_head.biases": ("BF16", (10, 4)),
    }
    settings = {"group_size": 64, "bits": 4, "lm_head": {"group_size": 64, "bits": 8}}
    spec = spec_of(tmp_path, tensors, quantization=settings)
    assert spec.parameters.stored == OUT * IN + 10 * 256 + 40


def test_fp8_holds_one_a_byte(tmp_path: Path) -> None:
    """Block scales, an input scale and cache scales are no parameters, a real bias is one."""
    tensors = {
        **weight("F8_E4M3", 96, 256, weight_scale_inv=("F32", (1, 2)), input_scale=("F32", ()), bias=("BF16", (96,))),
        "model.layers.0.self_attn.k_scale": ("F32", (1,)),
        "model.layers.0.self_attn.v_scale": ("F32", (1,)),
    }
    spec = spec_of(tmp_path, tensors, quantization_config={"quant_method": "fp8", "weight_block_size": [128, 128]})
    p = spec.parameters
    assert (p.stored, p.buffers) == (OUT * IN + 96 + 40, 2 + 1 + 1 + 1)
    assert p.elements == p.stored + p.buffers
    assert p.nbytes == OUT * IN + 2 * (96 + 40) + 4 * 5
    assert not {"PACKED-WEIGHTS", "PACKED-UNKNOWN"} & set(codes(spec))


def test_int8_holds_one_a_byte(tmp_path: Path) -> None:
    """compressed-tensors int-quantized and bitsandbytes LLM.int8() (SCB)."""
    tensors = {
        **weight("I8", 96, 256, weight_scale=("BF16", (96, 1))),
        "model.layers.1.mlp.up_proj.weight": ("I8", (96, 256)),
        "model.layers.1.mlp.up_proj.SCB": ("F32", (96,)),
        "model.layers.1.mlp.up_proj.weight_format": ("U8", ()),
    }
    assert spec_of(tmp_path, tensors).parameters.stored == 2 * OUT * IN + 40


def test_parameters_named_like_scales_stay_parameters(tmp_path: Path) -> None:
    tensors: Tensors = {
        "model.logit_scale": ("BF16", (1,)),
        "model.layers.0.norm.scale": ("BF16", (7,)),
        "model.layers.0.mixer.scales": ("BF16", (5,)),
        "model.layers.0.moe.biases": ("BF16", (3,)),
    }
    spec = spec_of(tmp_path, tensors)
    assert (spec.parameters.stored, spec.parameters.buffers) == (40 + 1 + 7 + 5 + 3, 0)


@pytest.mark.parametrize(
    ("declared", "known"),
    [
        ({"quant_method": "compressed-tensors"}, False),  # 32 columns, 8 groups: 4 bits by 32, 2 bits by 64
        ({"quant_method": "compressed-tensors", "group_size": 32}, True),  # 8*32 = 256 weights, so 4 bits
        (groups(4, 128), False),  # 2 groups of 128, and 8 scales are stored
        ({}, False),
    ],
)
def test_a_width_that_nothing_tells(tmp_path: Path, declared: dict[str, Any], known: bool) -> None:
    tensors: Tensors = {f"{X}.weight_packed": ("I32", (96, 32)), f"{X}.weight_scale": ("BF16", (96, 8))}
    spec = spec_of(tmp_path, tensors, quantization_config=declared)
    assert spec.parameters.stored == (OUT * IN if known else 96 * 32) + 40
    assert ("PACKED-UNKNOWN" in codes(spec)) is not known
    if not known:
        finding = codes(spec)["PACKED-UNKNOWN"]
        assert finding.severity == "warning"
        assert f"{X}.weight_packed" in finding.what


@pytest.mark.parametrize("name", [f"{X}.W_q", f"{X}.weight", f"{X}.B", f"{X}.qweight"])
def test_a_container_of_no_known_format_is_named(tmp_path: Path, name: str) -> None:
    spec = spec_of(tmp_path, {name: ("I32", (96, 32))})
    assert name in codes(spec)["PACKED-UNKNOWN"].what
    assert spec.parameters.stored == 96 * 32 + 40


def test_two_widths_in_one_checkpoint(tmp_path: Path) -> None:
    """Embedding in 2 bits, layers in 4, told apart by the groups' targets: 256*2/32 = 16 columns against 32."""
    tensors: Tensors = {
        "model.embed_tokens.weight_packed": ("I32", (10, 16)),
        "model.embed_tokens.weight_scale": ("BF16", (10, 1)),
        f"{X}.weight_packed": ("I32", (96, 32)),
        f"{X}.weight_scale": ("BF16", (96, 1)),
    }
    two = {"targets": ["re:.*embed_tokens$"], "weights": {"num_bits": 2, "strategy": "channel"}}
    four = {"targets": ["Linear"], "weights": {"num_bits": 4, "strategy": "channel"}}
    declared = {"quant_method": "compressed-tensors", "config_groups": {"group_0": two, "group_1": four}}
    base = {"architectures": ["LlamaForCausalLM"], "quantization_config": declared}
    spec = open_drafter(write_checkpoint(tmp_path / "two", base, tensors))
    assert spec.parameters.stored == 10 * 256 + OUT * IN
    found = [finding.evidence["bits"] for finding in find(spec) if finding.code == "PACKED-WEIGHTS"]
    assert sorted(found) == [2, 4]


def test_an_evil_pattern_is_not_run(tmp_path: Path) -> None:
    tensors: Tensors = {f"{X}.weight_packed": ("I32", (96, 32)), f"{X}.weight_scale": ("BF16", (96, 1))}
    declared = groups(4)
    declared["config_groups"]["group_1"] = {"targets": ["re:(.+)+(.+)+\\1$"], "weights": {"num_bits": 8}}
    assert spec_of(tmp_path, tensors, quantization_config=declared).parameters.stored == OUT * IN + 40


def test_modelopts_own_file_is_read(tmp_path: Path) -> None:
    """hf_quant_config.json tells the width where config.json is silent."""
    folder = Path(
        write_checkpoint(
            tmp_path / "m",
            {"architectures": ["LlamaForCausalLM"]},
            {**PLAIN, f"{X}.weight_packed": ("I32", (96, 32)), f"{X}.weight_scale": ("BF16", (96, 2))},
        )
    )
    assert "PACKED-UNKNOWN" in codes(open_drafter(str(folder)))
    quantization = {"quant_algo": "W4A16_AWQ", "group_size": 128, "exclude_modules": ["lm_head"]}
    (folder / "hf_quant_config.json").write_text(json.dumps({"quantization": quantization}))
    assert open_drafter(str(folder)).parameters.stored == OUT * IN + 40


@pytest.mark.parametrize(
    "declared",
    [
        {"quant_method": "gptq", "bits": "four"},
        {"quant_method": "gptq", "bits": 4.0},
        {"quant_method": "gptq", "bits": 10**9},
        {"quant_method": 4},
        {"quant_method": "gptq", "bits": 4, "group_size": 10**12},
        {"quant_method": "compressed-tensors", "config_groups": []},
        {"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": {"num_bits": True}}}},
        {"quant_method": "compressed-tensors", "config_groups": {"group_0": {"targets": "L", "weights": {"bits": 4}}}},
    ],
)
def test_a_wrong_declaration_is_one_clear_line(tmp_path: Path, declared: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        spec_of(tmp_path, {}, quantization_config=declared)
    assert "quantization_config" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("shape", [(), (0,), (0, 0), (3, 0), (0, 3), (2, 2, 2)])
@pytest.mark.parametrize("leaf", ["weight_packed", "qweight", "weight", "up_blocks"])
@pytest.mark.parametrize("dtype", ["I32", "U8", "U32"])
def test_odd_shapes_are_no_crash(tmp_path: Path, shape: tuple[int, ...], leaf: str, dtype: str) -> None:
    for companion in ((), (0, 0), (1, 1), (1,)):
        tensors: Tensors = {
            f"{X}.{leaf}": (dtype, shape),
            f"{X}.{leaf.removesuffix('blocks')}scales": ("F16", companion),
            **{f"{X}.{name}": ("F16", companion) for name in ("scales", "qzeros", "weight_scale")},
        }
        spec = spec_of(tmp_path, tensors, quantization_config={"quant_method": "gptq", "bits": 4, "group_size": 128})
        assert spec.parameters.stored >= 40


# --- packed drafters


def pack_kimi(*names: str) -> Tensors:
    """Kimi's drafter with those weights in int4 by groups of 128."""
    tensors = kimi_tensors()
    for name in names:
        out, wide = tensors.pop(f"{name}.weight")[1]
        tensors[f"{name}.weight_packed"] = ("I32", (out, wide // 8))
        tensors[f"{name}.weight_scale"] = ("BF16", (out, wide // 128))
        tensors[f"{name}.weight_shape"] = ("I64", (2,))
    return tensors


LINEARS = (
    "fc", "lm_head", "midlayer.mlp.down_proj", "midlayer.mlp.gate_proj", "midlayer.mlp.up_proj",
    "midlayer.self_attn.k_proj", "midlayer.self_attn.o_proj", "midlayer.self_attn.q_proj", "midlayer.self_attn.v_proj",
)  # fmt: skip


def test_a_packed_drafter_is_the_drafter_it_was(tmp_path: Path) -> None:
    """Kind, dialect, shape, roles and counts do not change with the packing, and nothing is called wrong."""
    plain = open_drafter(write_checkpoint(tmp_path / "plain", KIMI_CONFIG, kimi_tensors()))
    config = {**KIMI_CONFIG, "quantization_config": groups(4, 128)}
    packed = open_drafter(write_checkpoint(tmp_path / "packed", config, pack_kimi(*LINEARS)))
    assert (packed.kind, packed.dialect) == (plain.kind, plain.dialect)
    before, after = plain.architecture.to_dict(), packed.architecture.to_dict()
    assert before.pop("dtype") == "bfloat16"
    assert after.pop("dtype") == "compressed-tensors 4-bit"
    assert before == after
    p = packed.parameters
    assert (p.stored, p.trainable, p.borrowed) == (1_190_948_864, 1_190_948_864, 1_174_405_120)
    assert p.config_implied == p.stored
    assert {finding.code for finding in find(packed)} - {finding.code for finding in find(plain)} == {"PACKED-WEIGHTS"}


def test_a_drafter_quantised_to_gptq_keeps_its_shape(tmp_path: Path) -> None:
    tensors = kimi_tensors()
    for name in LINEARS:
        out, wide = tensors.pop(f"{name}.weight")[1]
        tensors[f"{name}.qweight"] = ("I32", (wide // 8, out))
        tensors[f"{name}.qzeros"] = ("I32", (wide // 128, out // 8))
        tensors[f"{name}.scales"] = ("F16", (wide // 128, out))
    config = {**KIMI_CONFIG, "quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 128}}
    spec = open_drafter(write_checkpoint(tmp_path / "gptq", config, tensors))
    assert spec.parameters.trainable == 1_190_948_864
    assert not [finding for finding in find(spec) if finding.severity == "error"]


def test_a_packed_head_of_vllms_report(tmp_path: Path) -> None:
    """vllm 37280: lm_head.weight_packed in INT8 with weight_scale and no lm_head.weight, scales on fc, cache scales.

    The head is there, and the trainer's rule for heads holds for it: 32000 x 7168 in I32, 4 to a container."""
    tensors = kimi_tensors()
    del tensors["lm_head.weight"]
    tensors |= {
        "lm_head.weight_packed": ("I32", (32000, 7168 // 4)),
        "lm_head.weight_scale": ("BF16", (32000, 1)),
        "fc.weight_scale": ("BF16", (7168, 1)),
        "midlayer.self_attn.k_scale": ("F32", (1,)),
        "midlayer.self_attn.v_scale": ("F32", (1,)),
    }
    spec = open_drafter(write_checkpoint(tmp_path / "g", {**KIMI_CONFIG, "quantization_config": groups(8)}, tensors))
    head = next(tensor for tensor in spec.tensors if tensor.name == "lm_head.weight_packed")
    assert (head.role, head.logical, head.elements) == ("trainable", 229_376_000, 57_344_000)
    assert spec.parameters.stored == 1_190_948_864
    assert not {"HEAD-MISSING", "TENSOR-UNKNOWN", "SHAPE-MISMATCH", "TENSOR-SHAPE"} & set(codes(spec))


def test_a_packed_head_is_frozen_where_the_trainer_freezes_it(tmp_path: Path) -> None:
    config, tensors, metadata = read_peer("speculators_eagle3")
    rows, wide = tensors.pop("lm_head.weight")[1]
    tensors["lm_head.weight_packed"] = ("I32", (rows, wide // 4))
    tensors["lm_head.weight_scale"] = ("BF16", (rows, 1))
    config["quantization_config"] = groups(8)
    spec = open_drafter(write_checkpoint(tmp_path / "s", config, tensors, metadata))
    head = next(tensor for tensor in spec.tensors if tensor.name == "lm_head.weight_packed")
    assert (head.role, head.logical) == ("frozen", rows * wide)


def test_a_packed_weight_of_the_wrong_shape_is_still_found(tmp_path: Path) -> None:
    tensors = pack_kimi(*LINEARS)
    tensors["midlayer.mlp.up_proj.weight_packed"] = ("I32", (18000, 7168 // 8))
    tensors["midlayer.mlp.up_proj.weight_scale"] = ("BF16", (18000, 7168 // 128))
    config = {**KIMI_CONFIG, "quantization_config": groups(4, 128)}
    finding = codes(open_drafter(write_checkpoint(tmp_path / "w", config, tensors)))["TENSOR-SHAPE"]
    assert finding.evidence == {"stored": [18000, 7168], "expected": [18432, 7168], "others": []}


def test_modules_gather_their_companions(tmp_path: Path) -> None:
    config = {**KIMI_CONFIG, "quantization_config": groups(4, 128)}
    spec = open_drafter(write_checkpoint(tmp_path / "m", config, {**pack_kimi(*LINEARS), **EMBEDDING}))
    rows = {group.name: group for group in count_params([spec]).drafters[0].groups("module")}
    mlp = rows["midlayer.mlp"]
    assert mlp.elements == 3 * 18432 * 7168 // 8 + 3 * 18432 * 7168 // 128 + 3 * 2
    assert set(mlp.roles) == {"buffer", "trainable"}
    assert module_of("midlayer.self_attn.k_scale") == "midlayer.self_attn.k_scale"


@pytest.mark.parametrize("by", ["tensor", "module", "role"])
def test_the_table_shows_elements_where_weights_are_packed(tmp_path: Path, by: By) -> None:
    """lm_head: 32000 x 7168 = 229,376,000 parameters in 28,672,000 elements of 4 bytes."""
    config = {**KIMI_CONFIG, "quantization_config": groups(4, 128)}
    packed = open_drafter(write_checkpoint(tmp_path / "packed", config, pack_kimi("lm_head")))
    plain = open_drafter(write_checkpoint(tmp_path / "plain", KIMI_CONFIG, kimi_tensors()))
    (table, totals, *_), (other, *_) = (params_document(count_params([spec]), by).blocks for spec in (packed, plain))
    assert isinstance(table, Table)
    assert isinstance(other, Table)
    assert "elements" not in other.headers
    assert [header for header in table.headers if header not in other.headers] == ["elements"]
    if by == "tensor":
        row = dict(zip(table.headers, next(r for r in table.rows if r[0] == "lm_head.weight_packed"), strict=True))
        assert row["dtype"] == "I32: compressed-tensors 4-bit"
        assert (row["elements"], row["parameters"], row["bytes"]) == ("28,672,000", "229,376,000", "114.69 MB")
    assert isinstance(totals, Lines)
    assert any("weights are packed" in line for line in totals.lines)


def test_json_has_the_three_numbers(tmp_path: Path) -> None:
    tensors, declared, label, elements = CASES["GPTQ int4"]
    entry = count_params([spec_of(tmp_path, tensors, quantization_config=declared)]).to_dict()["drafters"][0]
    (row,) = (row for row in entry["tensors"] if row["packed"])
    assert (row["packed"], row["elements"], row["logical"], row["bytes"]) == (label, elements, OUT * IN, elements * 4)
    # 2 x 12 zero points and 256 indices in I32, 2 x 96 scales in F16, 40 plain parameters in BF16
    assert entry["parameters"]["elements"] == elements + 24 + 256 + 192 + 40
    assert entry["parameters"]["bytes"] == 4 * (elements + 24 + 256) + 2 * (192 + 40)
    assert entry["parameters"]["stored"] == OUT * IN + 40
    bundled = open_drafter("aq-medai-kimi-k2-instruct-eagle3").parameters.to_dict()
    assert (bundled["elements"], bundled["bytes"]) == (None, None)
