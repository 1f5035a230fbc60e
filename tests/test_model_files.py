"""Where a drafter's tensors come from: files of every layout, the Hub, and targets of every kind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from drafter_audit import load_drafter
from drafter_audit.errors import AuditError, CannotRunError, CheckpointError
from tests.conftest import RunPython
from tests.hub import Hub, write_sparse
from tests.random_drafters import DRAFT_VOCABULARY, HIDDEN, LLAMA, VOCABULARY, shapes_of, write_random
from tests.test_network import close, inputs, loaded, wired

Tensors = dict[str, torch.Tensor]
EMBEDDING, HEAD = torch.randn(VOCABULARY, HIDDEN), torch.randn(VOCABULARY, HIDDEN)
ONE_DEEP = {"model.embed_tokens.weight": EMBEDDING, "lm_head.weight": HEAD}


def write_sharded(folder: Path, tensors: Tensors, *, pickled: bool = False) -> None:
    """Two shards and their index."""
    stem, end = ("pytorch_model", "bin") if pickled else ("model", "safetensors")
    names = sorted(tensors)
    halves = {f"{stem}-0000{n + 1}-of-00002.{end}": names[n::2] for n in (0, 1)}
    for file, held in halves.items():
        part = {name: tensors[name].contiguous() for name in held}
        if pickled:
            torch.save(part, folder / file)
        else:
            save_file(part, folder / file)
    index = {"metadata": {}, "weight_map": {name: file for file, held in halves.items() for name in held}}
    (folder / f"{stem}.{end}.index.json").write_text(json.dumps(index))


@pytest.mark.parametrize("pickled", [False, True])
def test_shards_are_read_by_their_index(pickled: bool, tmp_path: Path) -> None:
    ref, _ = write_random(tmp_path)
    expected = loaded(ref).unroll(*inputs(), 2)
    stored = load_file(tmp_path / "model.safetensors")
    (tmp_path / "model.safetensors").unlink()
    write_sharded(tmp_path, stored, pickled=pickled)
    assert close(loaded(ref).unroll(*inputs(), 2), expected, 0.0)


def restored(folder: Path, change: Any) -> str:
    """A random drafter whose tensors `change` has made others."""
    ref, _ = write_random(folder)
    save_file(change(load_file(folder / "model.safetensors")), folder / "model.safetensors")
    return ref


SPELLINGS: dict[str, Any] = {
    "midlayer": lambda w: {name.replace("layers.0.", "midlayer."): tensor for name, tensor in w.items()},
    "below model": lambda w: {name if name == "d2t" else f"model.{name}": tensor for name, tensor in w.items()},
    "a second copy": lambda w: w | {f"model.{name}": tensor + 1 for name, tensor in w.items()},
    "d2t of int32": lambda w: w | {"d2t": w["d2t"].int()},
    "d2t of float32": lambda w: w | {"d2t": w["d2t"].float()},
}


@pytest.mark.parametrize("name", SPELLINGS)
def test_spellings_of_one_drafter_compute_the_same(name: str, tmp_path: Path) -> None:
    plain, other = loaded(write_random(tmp_path / "a")[0]), loaded(restored(tmp_path / "b", SPELLINGS[name]))
    assert close(plain.unroll(*inputs(), 2), other.unroll(*inputs(), 2), 0.0)
    assert torch.equal(plain.target_ids([3, 5]), other.target_ids([3, 5]))
    assert other.target_ids([3]).dtype == torch.int64


REFUSED: dict[str, tuple[Any, str]] = {
    "a bias on the head": (lambda w: w | {"lm_head.bias": torch.ones(DRAFT_VOCABULARY)}, "reads lm_head.bias"),
    "a bias on a norm": (lambda w: w | {"norm.bias": torch.ones(HIDDEN)}, "reads norm.bias"),
    "a fused bias": (lambda w: w | {"layers.0.self_attn.qkv_proj.bias": torch.ones(96)}, "reads .*qkv_proj.bias"),
    "a bias of another size": (lambda w: w | {"layers.0.mlp.up_proj.bias": torch.ones(3)}, r"\[3\] where \[40\]"),
    "a norm of truths": (
        lambda w: w | {"norm.weight": torch.ones(HIDDEN).bool()},
        "norm.weight is stored as",
    ),
    "a map of fractions": (lambda w: w | {"d2t": w["d2t"] + 0.5}, "no whole numbers"),
    "no fc, and three states": (lambda w: {k: v for k, v in w.items() if k != "fc.weight"}, "fc.weight is not stored"),
    "a fused tensor of another size": (
        lambda w: (
            {k: v for k, v in w.items() if "q_proj" not in k and "k_proj" not in k and "v_proj" not in k}
            | {"layers.0.self_attn.qkv_proj.weight": torch.ones(97, 2 * HIDDEN)}
        ),
        r"\[97, 64\] where its parts have \[48, 24, 24\] rows",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_compute_other_numbers_is_refused(name: str, tmp_path: Path) -> None:
    change, told = REFUSED[name]
    with pytest.raises((CannotRunError, CheckpointError), match=told):
        loaded(restored(tmp_path, change))


def test_each_missing_tensor_is_named(tmp_path: Path) -> None:
    _, weights = write_random(tmp_path / "whole")
    for number, name in enumerate(weights):
        ref, _ = write_random(tmp_path / str(number), drop=(name,))
        with pytest.raises(AuditError, match=name.replace(".", r"\.")):
            loaded(ref)


def test_a_map_that_leads_outside_is_noted(tmp_path: Path) -> None:
    drafter = loaded(restored(tmp_path, lambda w: w | {"d2t": w["d2t"] + VOCABULARY}))
    assert any("24 of 24 draft ids lead outside the target's 60" in note for note in drafter.loaded.notes)


def test_a_norm_is_all_ones_as_stored_and_not_as_rounded(tmp_path: Path) -> None:
    ref = restored(tmp_path, lambda w: w | {"norm.weight": torch.full((HIDDEN,), 1.001)})
    assert loaded(ref, "bfloat16").loaded.all_ones == ()


def test_a_drafter_is_told_in_a_line(tmp_path: Path) -> None:
    ref, _ = write_random(tmp_path)
    assert repr(loaded(ref)) == f"Drafter({ref!r}, eagle3, 3 states of 32, float64)"


def write_lender(folder: Path, tensors: Tensors, **config: Any) -> str:
    folder.mkdir()
    told = {"model_type": "llama", "num_hidden_layers": 8, "hidden_size": HIDDEN, "vocab_size": VOCABULARY}
    (folder / "config.json").write_text(json.dumps(told | config))
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / "model.safetensors")
    return str(folder)


def padded(table: torch.Tensor) -> torch.Tensor:
    return torch.cat((table, torch.zeros(4, HIDDEN)))


# tensors of a target, its config, and what a drafter without embedding and head takes for them
LENDERS: dict[str, tuple[Tensors, dict[str, Any], Tensors]] = {
    "plain": (ONE_DEEP, {}, {"embedding": EMBEDDING, "head": HEAD}),
    "tied": ({"model.embed_tokens.weight": EMBEDDING}, {"tie_word_embeddings": True}, {"head": EMBEDDING}),
    "tied, as its family is": ({"model.embed_tokens.weight": EMBEDDING}, {}, {"head": EMBEDDING}),
    "multimodal": (
        {"language_model.model.embed_tokens.weight": EMBEDDING, "language_model.lm_head.weight": HEAD},
        {"text_config": {"hidden_size": HIDDEN}},
        {"embedding": EMBEDDING, "head": HEAD},
    ),
    "padded": (
        {"model.embed_tokens.weight": padded(EMBEDDING), "lm_head.weight": padded(HEAD)},
        {},
        {"embedding": padded(EMBEDDING), "head": HEAD},
    ),
}


def borrower(folder: Path) -> str:
    config = {key: value for key, value in LLAMA.items() if key != "draft_vocab_size"}
    return write_random(folder, config, drop=("embed_tokens.weight", "lm_head.weight"))[0]


@pytest.mark.parametrize("name", LENDERS)
def test_targets_that_lend(name: str, tmp_path: Path) -> None:
    tensors, config, expected = LENDERS[name]
    target = write_lender(tmp_path / "target", tensors, **config)
    network = load_drafter(borrower(tmp_path / "drafter"), target=target).network
    assert torch.equal(network.embedding, expected.get("embedding", EMBEDDING))
    assert torch.equal(network.head.weight, expected["head"])


def test_a_sharded_target_lends_too(tmp_path: Path) -> None:
    target = write_lender(tmp_path / "target", ONE_DEEP)
    (tmp_path / "target" / "model.safetensors").unlink()
    write_sharded(tmp_path / "target", ONE_DEEP)
    assert torch.equal(load_drafter(borrower(tmp_path / "drafter"), target=target).network.head.weight, HEAD)


PACKED = {"model.embed_tokens.weight_packed": torch.ones(VOCABULARY, 4, dtype=torch.int32)}
SCALED = {"model.embed_tokens.weight": EMBEDDING.to(torch.float8_e4m3fn), "model.embed_tokens.weight_scale": HEAD}
NO_LENDERS: dict[str, tuple[Tensors, dict[str, Any], str]] = {
    "another width": ({"model.embed_tokens.weight": torch.ones(VOCABULARY, 64)}, {}, r"\[60, 64\]"),
    "fewer tokens": ({"model.embed_tokens.weight": EMBEDDING[:50]}, {}, r"\[50, 32\], at least 60 rows"),
    "no table": ({"model.embed_tokens.weight": torch.ones(5)}, {}, r"\[5\]"),
    "packed": (PACKED, {}, "is packed.*before quantisation"),
    "with scales": (SCALED, {}, "is quantised.*before quantisation"),
    "no head": ({"model.embed_tokens.weight": EMBEDDING}, {"tie_word_embeddings": False}, "stores none"),
    "another's names": ({"tok.weight": EMBEDDING}, {}, "stores none under a known name"),
}


@pytest.mark.parametrize("name", NO_LENDERS)
def test_targets_that_cannot_lend(name: str, tmp_path: Path) -> None:
    tensors, config, told = NO_LENDERS[name]
    target = write_lender(tmp_path / "target", tensors, **config)
    with pytest.raises((CannotRunError, CheckpointError), match=told):
        load_drafter(borrower(tmp_path / "drafter"), target=target)


def test_a_whole_head_does_not_fit_a_reduced_vocabulary(tmp_path: Path) -> None:
    """Its first rows would fit in number, and be other tokens' rows."""
    target, (ref, _) = write_lender(tmp_path / "target", ONE_DEEP), write_random(tmp_path / "drafter")
    with pytest.raises(CannotRunError, match="a head of 60 rows under a vocabulary map"):
        load_drafter(ref, target=target, wiring=wired(ref, head="target"))
    whole = load_drafter(ref, target=target, wiring=wired(ref, head="target", vocab_map="identity"))
    assert whole.unroll(*inputs(), 1).shape[-1] == VOCABULARY


def test_on_the_hub_only_what_is_needed_is_read(hub: Hub, tmp_path: Path) -> None:
    """Of a target of 400 MB its two tables, of a drafter its tensors but not the ones it does without."""
    ref, weights = write_random(tmp_path / "drafter", drop=("embed_tokens.weight",))
    files = {file.name: file.read_bytes() for file in Path(ref).iterdir()}
    tables = dict.fromkeys(ONE_DEEP, ("F32", (VOCABULARY, HIDDEN)))
    layers = {f"model.layers.{n}.mlp.up_proj.weight": ("F32", (5000, 5000)) for n in range(4)}
    held = write_sparse(tmp_path / "model.safetensors", {**tables, **layers})
    told = {"model_type": "llama", "num_hidden_layers": 4, "hidden_size": HIDDEN, "vocab_size": VOCABULARY}
    hub.add_repo("org/drafter", files)
    hub.add_repo("org/target", {"config.json": json.dumps(told).encode(), "model.safetensors": held})
    drafter = load_drafter("org/drafter", target="org/target")
    assert [(one.name, one.target) for one in drafter.loaded.borrowed] == [("embed_tokens.weight", "org/target")]
    assert drafter.unroll(*inputs(), 1).shape == (1, 11, DRAFT_VOCABULARY)
    assert hub.sent < 2 * sum(tensor.nbytes for tensor in weights.values()) + 300_000


QUANTISED: dict[str, dict[str, tuple[str, tuple[int, ...]]]] = {
    "compressed-tensors": {"weight_packed": ("I32", (HIDDEN, 12)), "weight_scale": ("F32", (HIDDEN, 1))},
    "GPTQ": {"qweight": ("I32", (12, HIDDEN)), "qzeros": ("I32", (1, 4)), "scales": ("F16", (1, HIDDEN))},
    "NVFP4": {"weight": ("U8", (HIDDEN, 48)), "weight_scale": ("F8_E4M3", (HIDDEN, 6)), "weight_scale_2": ("F32", ())},
    "fp8": {"weight": ("F8_E4M3", (HIDDEN, 96)), "weight_scale": ("F32", (1,))},
    "int8": {"weight": ("I8", (HIDDEN, 96)), "weight_scale": ("F32", (HIDDEN, 1))},
    "MLX": {"weight": ("U32", (HIDDEN, 12)), "scales": ("F16", (HIDDEN, 2)), "biases": ("F16", (HIDDEN, 2))},
    "bitsandbytes": {"weight": ("U8", (HIDDEN * 48, 1)), "weight.absmax": ("F32", (48,))},
}


@pytest.mark.parametrize("name", QUANTISED)
def test_quantised_drafters_are_refused_with_the_way_out(name: str, tmp_path: Path) -> None:
    shapes = {tensor: ("F32", shape) for tensor, shape in shapes_of(tmp_path, LLAMA, "eagle3").items()}
    del shapes["fc.weight"]
    packed = {f"fc.{part}": entry for part, entry in QUANTISED[name].items()}
    write_sparse(tmp_path / "model.safetensors", {**shapes, **packed, "d2t": ("I64", (DRAFT_VOCABULARY,))})
    with pytest.raises(CannotRunError, match=r"quantised weights \(.+\).*before quantisation"):
        load_drafter(str(tmp_path))


def test_more_than_there_is_memory_for_is_told(run_python: RunPython, tmp_path: Path) -> None:
    """A file of 26 GB without content, whose tensors agree with its config, in 4 GiB of addresses."""
    wide = LLAMA | {"intermediate_size": 2**26}
    shapes = {name: ("F32", shape) for name, shape in shapes_of(tmp_path, wide, "eagle3").items()}
    write_sparse(tmp_path / "model.safetensors", {**shapes, "d2t": ("I64", (DRAFT_VOCABULARY,))})
    code = (
        "import resource, drafter_audit; from drafter_audit.errors import CannotRunError\n"
        "resource.setrlimit(resource.RLIMIT_AS, (2**32, 2**32))\n"
        f"try: drafter_audit.load_drafter({str(tmp_path)!r})\n"
        "except CannotRunError as error: print(error)"
    )
    assert "more than there is memory for" in run_python(code).stdout
