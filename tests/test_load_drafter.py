"""Loading: every tensor is used, left out for a reason, borrowed, or missing by name."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from safetensors.torch import load_file

from drafter_audit import AuditError, load_drafter, open_drafter
from drafter_audit.drafter.wiring import declared_wiring
from drafter_audit.errors import CannotRunError, CheckpointError, UsageError
from tests.checkpoints import write_peer
from tests.random_drafters import HIDDEN, LLAMA, VOCABULARY, write_random, write_target
from tests.test_network import close, inputs, loaded


def test_each_tensor_is_accounted_for(tmp_path: Path) -> None:
    target, theirs = write_target(tmp_path / "target")
    mask = np.zeros(VOCABULARY, bool)
    ref, weights = write_random(tmp_path / "drafter", t2d=mask, verifier_lm_head__weight=theirs["lm_head.weight"])
    report = load_drafter(ref, target=target).loaded
    ignored = dict(report.ignored)
    assert set(report.used) | set(ignored) == set(weights)
    assert not set(report.used) & set(ignored)
    assert set(ignored) == {"t2d", "verifier_lm_head.weight"}
    assert all(ignored.values())
    assert json.loads(json.dumps(report.to_dict(), allow_nan=False))["wiring"]["vocab_map"] == "offset"


def test_an_embedding_that_is_not_stored_is_the_targets(tmp_path: Path) -> None:
    target, theirs = write_target(tmp_path / "target")
    ref, _ = write_random(tmp_path / "drafter", drop=("embed_tokens.weight",))
    drafter = load_drafter(ref, target=target)
    assert torch.equal(drafter.network.embedding, torch.from_numpy(theirs["model.embed_tokens.weight"]))
    assert [(one.name, one.tensor, one.rows) for one in drafter.loaded.borrowed] == [
        ("embed_tokens.weight", "model.embed_tokens.weight", VOCABULARY)
    ]
    with pytest.raises(CannotRunError, match=r"name the target"):
        load_drafter(ref)


def test_a_copy_stands_in_for_the_target_that_nobody_named(tmp_path: Path) -> None:
    ref, weights = write_random(tmp_path / "drafter")
    spec = open_drafter(ref)
    declared = declared_wiring(spec)
    assert declared is not None
    drafter = load_drafter(ref, wiring=replace(declared, embedding="target"))
    assert torch.equal(drafter.network.embedding, torch.from_numpy(weights["embed_tokens.weight"]))
    assert "the file's copy" in drafter.loaded.notes[0]


def test_missing_tensors_are_named(tmp_path: Path) -> None:
    ref, _ = write_random(tmp_path, drop=("norm.weight", "layers.0.mlp.up_proj.weight"))
    with pytest.raises(CheckpointError, match=r"not stored: .*up_proj.weight, norm.weight"):
        loaded(ref)


def test_a_wiring_reads_as_many_states_as_fc_fuses(tmp_path: Path) -> None:
    """An engine that drops an id which is no boundary of its target leaves two of three."""
    target, _ = write_target(tmp_path / "target")
    ref, _ = write_random(tmp_path / "drafter")
    declared = declared_wiring(open_drafter(ref))
    assert declared is not None
    with pytest.raises(CannotRunError, match=r"2 boundaries, \[5, 8\], for a drafter that reads 3 states"):
        load_drafter(ref, target=target, wiring=replace(declared, boundaries=(5, 8)))


def test_a_wiring_may_need_what_the_file_lacks(tmp_path: Path) -> None:
    ref, _ = write_random(tmp_path)
    with pytest.raises(CheckpointError, match=r"input_norm.weight, fc_norm.0.weight"):
        loaded(ref, pre_fc_norm="whole_then_per_state")


def test_a_shape_that_contradicts_the_config_is_told(tmp_path: Path) -> None:
    ref, _ = write_random(tmp_path, layers__0__mlp__down_proj__weight=np.ones((HIDDEN, 41), np.float32))
    with pytest.raises(CheckpointError, match=r"\[32, 41\] where \[32, 40\] is needed"):
        loaded(ref)


def test_a_trained_part_that_nothing_reads_is_not_passed_over(tmp_path: Path) -> None:
    """HASS and BaldEagle normalise what fc reads; without it the numbers would be others."""
    ref, _ = write_random(tmp_path, embed_layernorm__weight=np.ones(HIDDEN, np.float32))
    with pytest.raises(CannotRunError, match=r"no network here reads embed_layernorm\.weight"):
        loaded(ref)


def test_fused_projections_are_taken_apart(tmp_path: Path) -> None:
    ref, weights = write_random(tmp_path / "a")
    fused = {
        "layers__0__self_attn__qkv_proj__weight": [f"layers.0.self_attn.{name}_proj.weight" for name in "qkv"],
        "layers__0__mlp__gate_up_proj__weight": [f"layers.0.mlp.{name}_proj.weight" for name in ("gate", "up")],
    }
    whole = {name: np.concatenate([weights[part] for part in parts]) for name, parts in fused.items()}
    drop = tuple(part for parts in fused.values() for part in parts)
    config = LLAMA | {"num_aux_hidden_states": 3}
    other, _ = write_random(tmp_path / "b", config, drop=drop, **whole)
    assert close(loaded(ref).unroll(*inputs(), 2), loaded(other).unroll(*inputs(), 2))


def test_what_is_damaged_is_said_and_loaded(tmp_path: Path) -> None:
    """A NaN gives no logits, but which tensor holds it is the answer; so it is for norms that were never trained."""
    head = np.zeros((LLAMA["draft_vocab_size"], HIDDEN), np.float32)
    head[3, :2] = np.nan
    ref, _ = write_random(tmp_path, lm_head__weight=head, norm__weight=np.ones(HIDDEN, np.float32))
    report = loaded(ref).loaded
    assert (report.non_finite, report.all_ones) == ((("lm_head.weight", 2),), ("norm.weight",))


@pytest.mark.parametrize("dtype", ["F16", "BF16"])
def test_half_precision_files_are_cast(dtype: str, tmp_path: Path) -> None:
    from safetensors.torch import save_file as save_torch

    ref, _ = write_random(tmp_path)
    half = {"F16": torch.float16, "BF16": torch.bfloat16}[dtype]
    stored = load_file(tmp_path / "model.safetensors")
    save_torch(
        {name: tensor.to(half) if tensor.is_floating_point() else tensor for name, tensor in stored.items()},
        tmp_path / "model.safetensors",
    )
    drafter = loaded(ref, "float32")
    assert drafter.network.embedding.dtype == torch.float32
    assert drafter.loaded.stored_dtypes == tuple(sorted((dtype, "I64")))
    assert torch.equal(drafter.network.embedding, stored["embed_tokens.weight"].to(half).float())


def test_pickled_weights_are_read_by_their_tables(tmp_path: Path) -> None:
    ref, _ = write_random(tmp_path)
    expected, stored = loaded(ref), load_file(tmp_path / "model.safetensors")
    (tmp_path / "model.safetensors").unlink()
    torch.save(stored, tmp_path / "pytorch_model.bin")
    assert close(loaded(ref).unroll(*inputs(), 2), expected.unroll(*inputs(), 2), 0.0)
    stored["fc.weight"] = stored["fc.weight"].t().contiguous().t()
    torch.save(stored, tmp_path / "pytorch_model.bin")
    with pytest.raises(CannotRunError, match=r"fc.weight is a view.*contiguous"):
        loaded(ref)


def test_quantised_weights_are_refused_with_the_way_out(tmp_path: Path) -> None:
    ref, _ = write_random(tmp_path)
    stored = {name: tensor.numpy() for name, tensor in load_file(tmp_path / "model.safetensors").items()}
    stored["fc.weight_scale"] = np.ones((HIDDEN, 1), np.float32)
    save_file(stored, tmp_path / "model.safetensors")
    with pytest.raises(CannotRunError, match=r"quantised weights \(fc.weight_scale\).*dequantised"):
        load_drafter(ref)


REFUSED: dict[str, dict[str, Any]] = {
    "peagle": LLAMA | {"architectures": ["PEagleDraftModel"], "parallel_drafting": True},
    "medusa": {"model_type": "medusa", "medusa_num_heads": 4, "hidden_size": 64, "vocab_size": 512},
    "dflash": LLAMA | {"architectures": ["DFlashDraftModel"], "dflash_config": {"mask_token_id": 1}},
    "mtp": {"architectures": ["DeepSeekMTPModel"], "model_type": "deepseek_mtp", "hidden_size": 64},
}


@pytest.mark.parametrize("kind", REFUSED)
def test_other_kinds_cannot_be_run_yet(kind: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(REFUSED[kind]))
    with pytest.raises(CannotRunError, match=f"kind {kind} cannot be run yet") as caught:
        load_drafter(str(tmp_path))
    assert caught.value.exit_code == 3


def test_neither_a_config_alone_nor_a_gguf_file_can_be_run(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    with pytest.raises(CannotRunError, match="no weights, only a config"):
        load_drafter(str(tmp_path))
    with pytest.raises(CannotRunError, match="GGUF"):
        load_drafter(str(Path(__file__).parent / "data" / "gguf" / "drafter.gguf"))


def test_what_nothing_tells_is_not_assumed(tmp_path: Path) -> None:
    """speculators' switch has two defaults: its config class says false, vLLM's loader true."""
    ref = write_peer(tmp_path / "drafter", "speculators_eagle3")
    config = json.loads((tmp_path / "drafter" / "config.json").read_text())
    del config["norm_before_residual"]
    (tmp_path / "drafter" / "config.json").write_text(json.dumps(config))
    with pytest.raises(CannotRunError, match=r"nothing tells residual.*pre_norm or post_norm"):
        load_drafter(ref)


def test_a_target_of_another_width_cannot_lend(tmp_path: Path) -> None:
    target, _ = write_target(tmp_path / "target")
    wide = np.ones((VOCABULARY, HIDDEN + 1), np.float32)
    save_file({"model.embed_tokens.weight": wide, "lm_head.weight": wide}, tmp_path / "target" / "model.safetensors")
    ref, _ = write_random(tmp_path / "drafter", drop=("embed_tokens.weight",))
    with pytest.raises(AuditError, match="33"):
        load_drafter(ref, target=target)


@pytest.mark.parametrize(("dtype", "device"), [("int8", "cpu"), ("float32", "nowhere")])
def test_an_unknown_dtype_or_device_is_a_usage_error(dtype: str, device: str, tmp_path: Path) -> None:
    ref, _ = write_random(tmp_path)
    with pytest.raises(UsageError):
        load_drafter(ref, dtype=dtype, device=device)
