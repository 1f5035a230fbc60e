"""Roles and counts. Expected numbers are products of published shapes, or follow from each trainer's rule."""

from __future__ import annotations

from pathlib import Path

import pytest

from drafter_audit.audit.params import count_params
from drafter_audit.audit.rules import find
from drafter_audit.drafter.open import open_drafter
from drafter_audit.drafter.spec import DrafterSpec
from drafter_audit.errors import CheckpointError
from tests.checkpoints import (
    EMBEDDING,
    KIMI_CONFIG,
    LEFTOVER,
    Tensors,
    kimi_tensors,
    read_peer,
    write_checkpoint,
    write_peer,
)

BODY, HEAD, EMBED = 961_572_864, 229_376_000, 1_174_405_120  # AQ-MedAI's Kimi shape


def kimi(folder: Path, extra: Tensors | None = None, **config: object) -> DrafterSpec:
    return open_drafter(write_checkpoint(folder, {**KIMI_CONFIG, **config}, {**kimi_tensors(), **(extra or {})}))


def role_of(spec: DrafterSpec, name: str) -> tuple[str, str]:
    found = next(tensor for tensor in spec.tensors if tensor.name == name)
    return found.role, found.reason


def test_kimi_without_its_embedding(tmp_path: Path) -> None:
    spec = kimi(tmp_path / "aq")
    sizes = {tensor.name: tensor.elements for tensor in spec.tensors}
    outside = {"lm_head.weight", "embed_tokens.weight", "d2t", "t2d"}
    assert sum(size for name, size in sizes.items() if name not in outside) == BODY
    assert sizes["lm_head.weight"] == HEAD
    p = spec.parameters
    assert (p.stored, p.trainable, p.frozen, p.unknown) == (1_190_948_864, 1_190_948_864, 0, 0)
    assert p.borrowed == sizes["embed_tokens.weight"] == EMBED
    assert p.buffers == 32_000 + 163_840
    assert p.config_implied == BODY + HEAD


def test_kimi_with_its_embedding(tmp_path: Path) -> None:
    p = kimi(tmp_path / "aq", EMBEDDING).parameters
    assert (p.stored, p.trainable, p.frozen, p.borrowed) == (2_365_353_984, BODY + HEAD, EMBED, 0)
    assert p.config_implied == 2_365_353_984


def test_a_second_draft_head_is_a_leftover(tmp_path: Path) -> None:
    spec = kimi(tmp_path / "ours", {**EMBEDDING, **LEFTOVER})
    role, reason = role_of(spec, "verifier_lm_head.weight")
    assert role == "frozen"
    assert reason.startswith("leftover")
    assert (spec.parameters.stored, spec.parameters.frozen) == (2_594_729_984, EMBED + HEAD)


@pytest.mark.parametrize(
    ("peer", "embedding", "head"),
    [
        ("specforge_eagle3", "frozen", "trainable"),
        ("speculators_eagle3", "frozen", "frozen"),
        ("speculators_converted", "frozen", "frozen"),
        ("modelopt_eagle3", "borrowed", "trainable"),
        ("modelopt_eagle3_kimik2", "borrowed", "trainable"),
    ],
)
def test_each_trainers_rule(tmp_path: Path, peer: str, embedding: str, head: str) -> None:
    spec = open_drafter(write_peer(tmp_path / "checkpoint", peer))
    assert role_of(spec, "embed_tokens.weight")[0] == embedding
    assert role_of(spec, "lm_head.weight")[0] == head
    assert role_of(spec, "d2t")[0] == "buffer"
    body = [t for t in spec.tensors if not t.name.startswith(("embed", "lm_head", "d2t", "t2d"))]
    assert {tensor.role for tensor in body} == {"trainable"}
    assert all(tensor.reason for tensor in spec.tensors)


@pytest.mark.parametrize(
    "peer", ["specforge_eagle3", "speculators_eagle3", "modelopt_eagle3", "modelopt_eagle3_kimik2"]
)
def test_shapes_are_those_that_the_config_implies(tmp_path: Path, peer: str) -> None:
    """What peers' own code built is what `config_implied` adds up, for plain and for latent attention."""
    spec = open_drafter(write_peer(tmp_path / "checkpoint", peer))
    assert spec.parameters.config_implied == spec.parameters.stored
    assert spec.parameters.missing == 0


def test_speculators_own_word_on_the_embedding(tmp_path: Path) -> None:
    config, tensors, metadata = read_peer("speculators_eagle3")
    spec = open_drafter(write_checkpoint(tmp_path / "s", {**config, "embed_requires_grad": True}, tensors, metadata))
    assert role_of(spec, "embed_tokens.weight") == ("trainable", "config.json: embed_requires_grad is true")


def test_modelopt_full_vocabulary_head_is_a_copy(tmp_path: Path) -> None:
    config, tensors, _ = read_peer("modelopt_eagle3")
    full = {**tensors, "lm_head.weight": ("F32", (512, 64))}
    del full["d2t"]
    spec = open_drafter(write_checkpoint(tmp_path / "m", {**config, "draft_vocab_size": 512}, full))
    assert role_of(spec, "lm_head.weight")[0] == "frozen"
    own = {**config["eagle_config"], "has_lm_head": True}
    spec = open_drafter(
        write_checkpoint(tmp_path / "o", {**config, "draft_vocab_size": 512, "eagle_config": own}, full)
    )
    assert role_of(spec, "lm_head.weight")[0] == "trainable"


def test_peagle_trains_its_embedding(tmp_path: Path) -> None:
    spec = kimi(tmp_path / "p", {**EMBEDDING, "mask_hidden": ("BF16", (1, 1, 21504))})
    assert role_of(spec, "embed_tokens.weight")[0] == "trainable"
    assert role_of(spec, "mask_hidden")[0] == "trainable"


def test_without_a_trainer_nothing_is_claimed(tmp_path: Path) -> None:
    """`layers.0.*` names, no fingerprint: embedding and head may be anything."""
    renamed = {name.replace("midlayer.", "layers.0."): shape for name, shape in {**kimi_tensors(), **EMBEDDING}.items()}
    spec = open_drafter(write_checkpoint(tmp_path / "u", KIMI_CONFIG, renamed))
    assert spec.dialect.name == "unknown"
    assert (role_of(spec, "embed_tokens.weight")[0], role_of(spec, "lm_head.weight")[0]) == ("unknown", "unknown")
    assert spec.parameters.unknown == EMBED + HEAD
    assert spec.parameters.stored == BODY + HEAD + EMBED


def test_a_reduced_head_cannot_be_borrowed(tmp_path: Path) -> None:
    tensors = kimi_tensors()
    del tensors["lm_head.weight"]
    spec = open_drafter(write_checkpoint(tmp_path / "h", KIMI_CONFIG, tensors))
    assert role_of(spec, "lm_head.weight")[0] == "missing"
    full = {name: shape for name, shape in tensors.items() if name not in ("d2t", "t2d")}
    spec = open_drafter(write_checkpoint(tmp_path / "f", {**KIMI_CONFIG, "draft_vocab_size": 163840}, full))
    assert role_of(spec, "lm_head.weight")[0] == "borrowed"


def test_targets_are_counted_too(tmp_path: Path) -> None:
    spec = open_drafter(write_peer(tmp_path / "target", "tiny_llama"))
    _, tensors, _ = read_peer("tiny_llama")
    assert spec.parameters.stored == sum(a * (b[0] if b else 1) for a, *b in (shape for _, shape in tensors.values()))
    assert (spec.kind.name, spec.parameters.borrowed) == ("lm", 0)


def test_quantisation_companions_are_no_parameters(tmp_path: Path) -> None:
    tensors = {**kimi_tensors(), "midlayer.mlp.down_proj.weight_scale_inv": ("F32", (56, 144))}
    spec = open_drafter(write_checkpoint(tmp_path / "q", KIMI_CONFIG, tensors))
    assert spec.parameters.stored == BODY + HEAD


def test_excluding_frozen_drops_rows_and_keeps_totals(tmp_path: Path) -> None:
    spec = kimi(tmp_path / "ours", {**EMBEDDING, **LEFTOVER})
    whole, cut = count_params([spec]).drafters[0], count_params([spec], exclude_frozen=True).drafters[0]
    assert {t.name for t in whole.tensors} - {t.name for t in cut.tensors} == {
        "embed_tokens.weight",
        "verifier_lm_head.weight",
    }
    assert cut.excluded == EMBED + HEAD
    assert whole.excluded == 0
    assert cut.to_dict()["parameters"]["stored"] == 2_594_729_984


def test_modules_add_up(tmp_path: Path) -> None:
    spec = kimi(tmp_path / "aq")
    groups = {group.name: group.logical for group in count_params([spec]).drafters[0].groups("module")}
    assert groups["midlayer.self_attn"] == 3 * 8192 * 14336 + 7168 * 8192
    assert groups["midlayer.mlp"] == 3 * 7168 * 18432
    roles = {group.name: group.logical for group in count_params([spec]).drafters[0].groups("role")}
    assert roles == {"buffer": 195_840, "trainable": BODY + HEAD, "borrowed": EMBED}


def test_a_bundled_record_is_counted_from_its_config() -> None:
    p = open_drafter("aq-medai-kimi-k2-instruct-eagle3").parameters
    assert (p.stored, p.borrowed, p.counted_from) == (1_190_948_864, EMBED, "config")


def test_nothing_to_count_is_an_error_not_a_zero() -> None:
    """A target's config implies no count of its own: zero would read as a measurement."""
    spec = open_drafter("moonshotai-kimi-k2-instruct")
    assert spec.parameters.counted_from == "nothing"
    with pytest.raises(CheckpointError, match="nothing to count"):
        count_params([spec])


def test_a_tensor_nobody_knows_is_not_called_trained(tmp_path: Path) -> None:
    spec = kimi(tmp_path / "odd", {"weird.weight": ("BF16", (3,))})
    assert role_of(spec, "weird.weight")[0] == "unknown"
    assert "weird.weight" in next(finding.what for finding in find(spec) if finding.code == "TENSOR-UNKNOWN")
