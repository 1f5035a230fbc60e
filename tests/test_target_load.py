"""From a reference to a target: what is read as what, and what is refused, in one line each."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from drafter_audit.checkpoint.config import read_config
from drafter_audit.drafter.config_view import ConfigView
from drafter_audit.errors import (
    AccessError,
    CannotRunError,
    CheckpointError,
    ConfigError,
    NetworkError,
    NotFoundError,
    UsageError,
)
from drafter_audit.model.target.load import load_target
from drafter_audit.model.target.parts import find_parts
from drafter_audit.model.target.stated import end_ids
from drafter_audit.sources.open import open_source
from tests.hub import Hub
from tests.tiny_targets import HIDDEN, LAYERS, VOCABULARY, edit_config, write_family

TEXT = list(range(9, 26))

REMOTE = """
from pathlib import Path
Path(__file__).with_name("ran").touch()
raise RuntimeError("code of the repository ran")
"""


def states(ref: str, **settings: Any) -> torch.Tensor:
    return load_target(ref, **settings).forward_with_taps(TEXT, range(LAYERS + 1))[1]


def weights_of(ref: str) -> Path:
    return Path(ref, "model.safetensors")


def test_what_a_target_says_of_itself(tmp_path: Path) -> None:
    target = load_target(write_family("gemma3_wrapped", tmp_path))
    assert (target.ref, target.revision, target.dtype) == (str(tmp_path), None, "float32")
    assert (target.num_layers, target.hidden_size, target.vocab_size) == (LAYERS, HIDDEN, VOCABULARY)
    assert target.parts.path == "model.language_model.layers"
    assert target.notes == ()


@pytest.mark.parametrize(
    ("generation", "config", "expected"),
    [
        ({"eos_token_id": [5, 7]}, {"eos_token_id": 2}, (5, 7)),
        ({"eos_token_id": 0}, {"eos_token_id": 2}, (0,)),
        ({"eos_token_id": None}, {"eos_token_id": [2, 3]}, (2, 3)),
        ({}, {"eos_token_id": 4}, (4,)),
        (None, {"eos_token_id": 4}, (4,)),
        (None, {"text_config": {"eos_token_id": 6}}, (6,)),
        (None, {}, ()),
        ({}, {"eos_token_id": None}, ()),
    ],
)
def test_end_tokens_are_those_that_a_file_states(
    generation: dict[str, Any] | None, config: dict[str, Any], expected: tuple[int, ...], tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    if generation is not None:
        (tmp_path / "generation_config.json").write_text(json.dumps(generation))
    assert end_ids(open_source(str(tmp_path)), ConfigView(config, "here")) == expected


@pytest.mark.parametrize("stated", [True, "2", -1, 2.0, [2, "3"], {}])
def test_an_end_token_is_a_number(stated: Any, tmp_path: Path) -> None:
    ref = write_family("llama", tmp_path)
    Path(ref, "generation_config.json").write_text(json.dumps({"eos_token_id": stated}))
    with pytest.raises(ConfigError, match="eos_token_id is "):
        load_target(ref)


def test_a_target_without_an_end_token_says_so(tmp_path: Path) -> None:
    """transformers would take its class's own, 2 for a Llama."""
    ref = write_family("llama", tmp_path)
    assert load_target(ref).end_ids == (2,)
    Path(ref, "generation_config.json").unlink()
    edit_config(ref, eos_token_id=None)
    target = load_target(ref)
    assert target.end_ids == ()
    assert target.notes == ("no file states an end token: its texts end at the cap alone",)


def test_a_dtype_is_what_one_asks_for_and_float32_on_a_cpu(tmp_path: Path) -> None:
    ref = write_family("llama", tmp_path, dtype="bfloat16")
    whole = states(ref)
    assert whole.dtype == torch.float32
    half = states(ref, dtype="bfloat16")
    assert half.dtype == torch.bfloat16
    assert float((half.float() - whole).abs().max()) <= 0.05 * float(whole.abs().max())
    for wrong in ("int5", "", 5):
        with pytest.raises(UsageError, match=f"no dtype {wrong!r}"):
            load_target(ref, dtype=wrong)  # type: ignore[arg-type]


def test_kimi_k2_is_read_as_deepseek_v3_and_none_of_its_code_runs(tmp_path: Path) -> None:
    """Its config.json names a type and files of code that only its repository has."""
    ref = write_family("deepseek_v3", tmp_path)
    expected = states(ref)
    code = {"AutoConfig": "configuration_deepseek.DeepseekV3Config", "AutoModelForCausalLM": "modeling_deepseek.Model"}
    edit_config(ref, model_type="kimi_k2", auto_map=code)
    for name in ("configuration_deepseek.py", "modeling_deepseek.py"):
        Path(ref, name).write_text(REMOTE)
    assert torch.equal(states(ref), expected)
    assert torch.equal(states(ref, trust_remote_code=True), expected)
    assert not Path(ref, "ran").exists()


def test_code_of_a_repository_does_not_run_unless_asked(tmp_path: Path) -> None:
    ref = write_family("llama", tmp_path)
    edit_config(ref, model_type="of_its_own", auto_map={"AutoConfig": "configuration_own.OwnConfig"})
    Path(ref, "configuration_own.py").write_text(REMOTE)
    with pytest.raises(CannotRunError, match="or pass trust_remote_code"):
        load_target(ref)
    assert not Path(ref, "ran").exists()
    with pytest.raises(CannotRunError, match="code of the repository ran"):
        load_target(ref, trust_remote_code=True)


def test_a_type_that_transformers_does_not_know(tmp_path: Path) -> None:
    ref = write_family("llama", tmp_path)
    edit_config(ref, model_type="of_tomorrow")
    with pytest.raises(CannotRunError, match=r"transformers does not load it: .*of_tomorrow") as caught:
        load_target(ref)
    assert "\n" not in str(caught.value)


def test_weights_that_are_missing_are_not_drawn_at_random(tmp_path: Path) -> None:
    ref = write_family("llama", tmp_path)
    tensors = load_file(weights_of(ref))
    left = {name: tensor for name, tensor in tensors.items() if "layers.2.mlp" not in name}
    save_file(left, weights_of(ref), metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match=r"3 weights are missing: model\.layers\.2\.mlp\.down_proj\.weight, "):
        load_target(ref)


def test_tensors_that_are_no_part_of_the_model_are_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    ref = write_family("llama", tmp_path)
    extra = {"model.mtp.weight": torch.zeros(2)}
    save_file(load_file(weights_of(ref)) | extra, weights_of(ref), metadata={"format": "pt"})
    assert load_target(ref).notes == ("1 tensors are no part of the model: model.mtp.weight",)
    assert caplog.records == []


def test_another_class_than_config_json_names_is_told(tmp_path: Path) -> None:
    ref = write_family("llama", tmp_path)
    for named in (["NoSuchForCausalLM"], [5]):
        edit_config(ref, architectures=named)
        note = f"config.json names {named}, and what runs is transformers' LlamaForCausalLM"
        assert load_target(ref).notes == (note,)


@pytest.mark.parametrize("written", [b"", b"\xff" * 200, b"version https://git-lfs.github.com/spec/v1\n", None])
def test_a_weight_file_that_is_not_whole(written: bytes | None, tmp_path: Path) -> None:
    ref = write_family("llama", tmp_path)
    weights_of(ref).write_bytes(weights_of(ref).read_bytes()[:-500] if written is None else written)
    with pytest.raises(CheckpointError, match="see that every weight file is there and whole"):
        load_target(ref)


def test_weight_files_that_are_not_there(tmp_path: Path) -> None:
    ref = write_family("llama", tmp_path / "whole")
    model = transformers.LlamaForCausalLM.from_pretrained(ref)
    model.save_pretrained(tmp_path / "shards", max_shard_size="20KB")
    weights_of(ref).unlink()
    with pytest.raises(CheckpointError, match="every weight file is there"):
        load_target(ref)
    shards = sorted((tmp_path / "shards").glob("*.safetensors"))
    shards[1].unlink()
    with pytest.raises(CheckpointError, match=shards[1].name):
        load_target(str(tmp_path / "shards"))


@torch.no_grad()
def test_a_pickle_runs_nothing(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> Any:
            return Path.touch, (tmp_path / "ran",)

    ref = write_family("llama", tmp_path / "target")
    weights_of(ref).unlink()
    torch.save({"model.embed_tokens.weight": Evil()}, Path(ref, "pytorch_model.bin"))
    with pytest.raises(CheckpointError, match="Weights only load failed"):
        load_target(ref)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "changes",
    [{"num_hidden_layers": 0}, {"num_hidden_layers": "4"}, {"num_attention_heads": 0}, {"return_dict": False}],
)
def test_a_config_that_no_model_follows_is_one_line(changes: dict[str, Any], tmp_path: Path) -> None:
    ref = write_family("llama", tmp_path)
    edit_config(ref, **changes)
    with pytest.raises(CannotRunError, match=r"does not (load it|run): ") as caught:
        load_target(ref)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "settings", [{"quant_method": "modelopt", "quant_algo": "FP8"}, {"quant_method": "of_tomorrow"}]
)
def test_a_packing_that_transformers_does_not_know(settings: dict[str, Any], tmp_path: Path) -> None:
    """It warns, and takes the packed numbers for weights (transformers 5.24 quantizers/auto.py)."""
    ref = write_family("llama", tmp_path)
    edit_config(ref, quantization_config=settings)
    with pytest.raises(CannotRunError, match=f"does not read {settings['quant_method']}"):
        load_target(ref)


def test_factors_of_weights_are_not_left_out(tmp_path: Path) -> None:
    """ModelOpt's fp8, which its own hf_quant_config.json tells and config.json does not."""
    ref = write_family("llama", tmp_path)
    factor = {"model.layers.0.mlp.up_proj.weight_scale": torch.ones(())}
    save_file(load_file(weights_of(ref)) | factor, weights_of(ref), metadata={"format": "pt"})
    with pytest.raises(CannotRunError, match=r"1 factors of packed weights are not read: .*up_proj\.weight_scale"):
        load_target(ref)
    unread = {"model.mtp.weight": torch.ones(2), "model.mtp.weight_scale": torch.ones(())}
    plain = {name: tensor for name, tensor in load_file(weights_of(ref)).items() if name not in factor}
    save_file(plain | unread, weights_of(ref), metadata={"format": "pt"})
    assert len(load_target(ref).notes) == 1


def test_weights_of_another_shape(tmp_path: Path) -> None:
    ref = write_family("llama", tmp_path)
    edit_config(ref, intermediate_size=50)
    words = r"12 weights have another shape: .*down_proj\.weight \(\[32, 48\], not \[32, 50\]\)"
    with pytest.raises(CheckpointError, match=words):
        load_target(ref)


@pytest.mark.parametrize(
    ("settings", "package"),
    [
        ({"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": {}}, "compressed-tensors"),
        ({"quant_method": "gptq", "bits": 4, "group_size": 32}, "gptqmodel"),
        ({"quant_method": "awq", "bits": 4, "group_size": 32}, "gptqmodel"),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "bitsandbytes"),
    ],
)
def test_a_quantised_target_names_the_package_that_is_missing(
    settings: dict[str, Any], package: str, tmp_path: Path
) -> None:
    ref = write_family("llama", tmp_path)
    edit_config(ref, quantization_config=settings)
    with pytest.raises(CannotRunError, match=rf"a package is missing to load {settings['quant_method']}.*{package}$"):
        load_target(ref)


def test_blocks_of_fp8_are_read_as_the_numbers_that_they_stand_for(tmp_path: Path) -> None:
    """DeepSeek-V3's format, Kimi-K2's too: float8_e4m3fn, and a factor for each block, here of 16 by 16."""
    packed, plain = (write_family("llama", tmp_path / name) for name in ("packed", "plain"))
    tensors = load_file(weights_of(plain))
    linear = [name for name in tensors if name.endswith("proj.weight")]
    stored = dict(tensors)
    for name in linear:
        stored[name], stored[f"{name}_scale_inv"], tensors[name] = in_blocks(tensors[name], 16)
    save_file(stored, weights_of(packed), metadata={"format": "pt"})
    save_file(tensors, weights_of(plain), metadata={"format": "pt"})
    edit_config(packed, quantization_config={"quant_method": "fp8", "weight_block_size": [16, 16]})
    expected = states(plain)
    assert float((states(packed) - expected).abs().max()) <= 1e-4 * float(expected.abs().max())


def in_blocks(weight: torch.Tensor, size: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The weight as stored, the factors, and the numbers that both stand for."""
    rows, columns = weight.shape
    blocks = weight.reshape(rows // size, size, columns // size, size)
    factors = blocks.abs().amax(dim=(1, 3), keepdim=True) / torch.finfo(torch.float8_e4m3fn).max
    stored = (blocks / factors).to(torch.float8_e4m3fn)
    meant = (stored.float() * factors).reshape(rows, columns)
    return stored.reshape(rows, columns), factors[:, 0, :, 0].contiguous(), meant


@pytest.mark.parametrize(
    ("ref", "error", "words"),
    [
        ("moonshotai-kimi-k2.5", CannotRunError, "a bundled record holds no weights"),
        ("./no/such/folder", NotFoundError, "no such file or folder"),
    ],
)
def test_references_without_weights(ref: str, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        load_target(ref)


def test_one_file_is_no_target(tmp_path: Path) -> None:
    with pytest.raises(CannotRunError, match="one weight file is no target"):
        load_target(str(weights_of(write_family("llama", tmp_path))))


@pytest.mark.parametrize(
    ("status", "error", "words"),
    [
        (403, AccessError, r"access refused \(HTTP 403\), .*, check HF_TOKEN"),
        (401, AccessError, "private"),
        (429, NetworkError, r"HTTP 429.*, try again later"),
    ],
)
def test_a_hub_that_fails_while_weights_come_is_no_damaged_file(
    status: int, error: type[Exception], words: str, hub: Hub, tmp_path: Path
) -> None:
    """transformers would say that the repository has no weights."""
    ref = write_family("llama", tmp_path / "files")
    hub.add_repo("org/target", {path.name: path for path in Path(ref).iterdir()})
    hub.fail(status, times=99, path="model.safetensors", retry_after=3600 if status == 429 else None)
    with pytest.raises(error, match=words):
        load_target("org/target")


def test_offline_a_target_is_read_from_the_cache_or_named(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref = write_family("llama", tmp_path / "files")
    commit = hub.add_repo("org/target", {path.name: path for path in Path(ref).iterdir()})
    read_config(open_source("org/target"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(NetworkError, match=r"offline, and .* is not in the Hub's cache"):
        load_target("org/target")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    expected = states("org/target")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    sent = len(hub.requests)
    assert torch.equal(states(f"org/target@{commit}"), expected)
    assert len(hub.requests) == sent


@pytest.mark.parametrize("named", [5, "LlamaForCausalLM", {"a": 1}])
def test_architectures_are_a_list(named: Any, tmp_path: Path) -> None:
    ref = write_family("llama", tmp_path)
    edit_config(ref, architectures=named)
    with pytest.raises(ConfigError, match=r"architectures is .*, write a list of class names"):
        load_target(ref)


@pytest.mark.parametrize(
    ("device_map", "words"),
    [
        ("nowhere", "no device 'nowhere', --device-map, here are cpu"),
        ({"": "cuda:99"}, "no device 'cuda:99'"),
        ({"": "disk"}, "leaves modules on disk, --device-map, name a folder: --offload-folder"),
    ],
)
def test_a_device_map_names_what_is_here(device_map: Any, words: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=words):
        load_target(write_family("llama", tmp_path), device_map=device_map)


def test_a_device_map_that_places_a_module_twice_is_told(tmp_path: Path) -> None:
    folder = str(tmp_path / "offload")
    with pytest.raises(CannotRunError, match="mend --device-map"):
        load_target(write_family("llama", tmp_path), device_map={"": "cpu", "lm_head": "disk"}, offload_folder=folder)


def test_from_the_hub_at_the_commit_that_the_branch_points_to(hub: Hub, tmp_path: Path) -> None:
    ref = write_family("llama", tmp_path / "files")
    files = {path.name: path for path in Path(ref).iterdir()}
    commit = hub.add_repo("org/target", files)
    target = load_target("org/target@main")
    assert target.revision == commit
    assert torch.equal(target.forward_with_taps(TEXT, range(LAYERS + 1))[1], states(ref))


def test_parts_of_models_with_other_names() -> None:
    """GPT-2's and OPT's stacks, GPT-NeoX's head, one that is found by its structure alone."""
    small: dict[str, Any] = {"vocab_size": 50, "num_hidden_layers": 3, "num_attention_heads": 2, "hidden_size": 8}
    made = [
        (transformers.GPT2LMHeadModel(transformers.GPT2Config(**small)), "transformer.h"),
        (transformers.GPTNeoXForCausalLM(transformers.GPTNeoXConfig(**small, intermediate_size=8)), "gpt_neox.layers"),
        (
            transformers.OPTForCausalLM(transformers.OPTConfig(**small, ffn_dim=8, word_embed_proj_dim=8)),
            "model.decoder.layers",
        ),
    ]
    for model, path in made:
        assert find_parts(model, 3, "here").path == path
    model = made[0][0]
    model.anew = model.transformer
    del model.transformer
    model.get_input_embeddings = lambda: model.anew.wte
    assert find_parts(model, 3, "here").path == "anew.h"
    with pytest.raises(CannotRunError, match=re.escape("a list of 4 decoder layers with a final norm beside it")):
        find_parts(model, 4, "here")


def test_the_arithmetic_of_the_multi_gpu_page() -> None:
    """Kimi-K2.5's language model, built without weights from its published config; its plan says what is split."""
    root = Path(__file__).parents[1]
    record = tomllib.loads((root / "reference_models" / "moonshotai-kimi-k2.5.toml").read_text())
    text = {key: value for key, value in record["config"]["text_config"].items() if key != "quantization_config"}
    config = transformers.CONFIG_MAPPING["deepseek_v3"].from_dict(text | {"model_type": "deepseek_v3"})
    with torch.device("meta"):
        model = transformers.DeepseekV3ForCausalLM(config)
    sizes = {name: each.numel() for name, each in model.named_parameters()}
    plan = [re.escape(rule).replace(r"\*", r"\d+") for rule in model._tp_plan]
    split = {name for name in sizes if any(re.match(rule, name) for rule in plan)}
    tables = sum(sizes[name] for name in split if "embed_tokens" in name or "lm_head" in name)
    experts = sum(size for name, size in sizes.items() if ".mlp.experts." in name)
    inside = sum(sizes[name] for name in split) - tables
    whole = sum(sizes.values()) - inside - tables
    page = (root / "docs" / "multi-gpu.md").read_text()
    assert f"{sum(sizes.values()):,} parameters" in page
    assert f"{experts:,} of them" in page
    assert f"{whole / 1e9:.2f} × 10⁹ in all" in page
    packed = experts * (0.5 + 2 / 32) + 2 * (inside - experts)
    for numbers, (shared, own) in {
        "bfloat16": (2 * (inside + tables), 2 * whole),
        "fp8 blocks": (inside + 2 * tables, whole),
        "INT4 as published": (packed + 2 * tables, 2 * whole),
    }.items():
        row = next(line for line in page.splitlines() if line.startswith(f"| {numbers}"))
        told = [f"{(shared + own) / 1e9:.0f}", *(f"{(shared / ranks + own) / 1e9:.1f}" for ranks in (8, 16, 32))]
        assert row.split("|")[2:6] == [f" {number} " for number in told]
