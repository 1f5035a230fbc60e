"""compare --weights: every kind of difference, on files whose bytes the test itself made."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import drafter_audit
from drafter_audit.audit.tensors.compare import compare_weights
from drafter_audit.audit.tensors.reading import Stored
from drafter_audit.audit.weights import TensorDifference, WeightsComparison
from drafter_audit.cli.main import main
from drafter_audit.drafter.open import open_drafter
from drafter_audit.errors import CheckpointError
from tests.conftest import RunPython
from tests.hub import Hub, write_sparse

HIDDEN, INNER, HEADS, HEAD_DIM, VOCAB, DRAFT = 32, 48, 4, 8, 500, 120
CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLMEagle3"],
    "draft_vocab_size": DRAFT,
    "dtype": "bfloat16",
    "eagle_config": {"eagle_aux_hidden_state_layer_ids": [2, 30, 58]},
    "head_dim": HEAD_DIM,
    "hidden_size": HIDDEN,
    "intermediate_size": INNER,
    "max_position_embeddings": 4096,
    "model_type": "llama",
    "num_attention_heads": HEADS,
    "num_hidden_layers": 1,
    "num_key_value_heads": HEADS,
    "rope_theta": 1e6,
    "vocab_size": VOCAB,
}
ATTENTION = "midlayer.self_attn."
SHAPES = {
    "fc.weight": (HIDDEN, 3 * HIDDEN),
    "lm_head.weight": (DRAFT, HIDDEN),
    "midlayer.hidden_norm.weight": (HIDDEN,),
    "midlayer.input_layernorm.weight": (HIDDEN,),
    "midlayer.post_attention_layernorm.weight": (HIDDEN,),
    "midlayer.mlp.gate_proj.weight": (INNER, HIDDEN),
    "midlayer.mlp.up_proj.weight": (INNER, HIDDEN),
    "midlayer.mlp.down_proj.weight": (HIDDEN, INNER),
    **{f"{ATTENTION}{name}_proj.weight": (HEADS * HEAD_DIM, 2 * HIDDEN) for name in "qkv"},
    f"{ATTENTION}o_proj.weight": (HIDDEN, HEADS * HEAD_DIM),
    "norm.weight": (HIDDEN,),
}
LAYER = {name for name in SHAPES if name.startswith("midlayer.")}
NUMPY = {"F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "BOOL": "u1", "U8": "u1", "BF16": "<u2"}

Array = Any
Weights = dict[str, tuple[str, Array]]


def as_bf16(values: Array) -> Array:
    """float32 cut to BF16, kept in float32: exact to store."""
    return (np.asarray(values, np.float32).view(np.uint32) & 0xFFFF0000).view(np.float32)


def trained(seed: int = 0, dtype: str = "BF16") -> Weights:
    """The 13 weights of a drafter at random, exact in BF16, and the map of its vocabulary: every fourth token."""
    random = np.random.default_rng(seed)
    weights = {name: (dtype, as_bf16(0.02 * random.standard_normal(shape))) for name, shape in SHAPES.items()}
    return weights | vocabulary(4 * np.arange(DRAFT))


def vocabulary(tokens: Array) -> Weights:
    """d2t holds offsets, t2d which tokens have a row."""
    present = np.zeros(VOCAB, np.uint8)
    present[tokens] = 1
    return {"d2t": ("I64", np.asarray(tokens) - np.arange(len(tokens))), "t2d": ("BOOL", present)}


def stored(dtype: str, values: Array) -> bytes:
    if dtype == "BF16":
        return (np.asarray(values, np.float32).view(np.uint32) >> 16).astype("<u2").tobytes()
    return np.asarray(values).astype(NUMPY[dtype]).tobytes()


def safetensors(weights: Weights) -> bytes:
    fields, body = {}, b""
    for name, (dtype, values) in weights.items():
        data = stored(dtype, values)
        fields[name] = {
            "dtype": dtype,
            "shape": list(np.shape(values)),
            "data_offsets": [len(body), len(body) + len(data)],
        }
        body += data
    text = json.dumps(fields).encode()
    return len(text).to_bytes(8, "little") + text + body


def files(weights: Weights, config: Mapping[str, Any] = CONFIG) -> dict[str, bytes]:
    return {"config.json": json.dumps(config).encode(), "model.safetensors": safetensors(weights)}


def write(folder: Path, weights: Weights, **config: Any) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files(weights, {**CONFIG, **config}).items():
        (folder / name).write_bytes(data)
    return str(folder)


def compared(*refs: str) -> WeightsComparison:
    weights = drafter_audit.compare(refs, weights=True).weights
    assert weights is not None
    assert len(weights) == len(refs) - 1
    return weights[0]


@pytest.fixture
def against(tmp_path: Path) -> Any:
    """`against(ours, theirs)` compares two sets of weights, theirs as `trained()` makes them."""

    def run(ours: Weights, theirs: Weights | None = None) -> WeightsComparison:
        refs = write(tmp_path / "theirs", trained() if theirs is None else theirs), write(tmp_path / "ours", ours)
        return compared(*refs)

    return run


def only(found: WeightsComparison) -> TensorDifference:
    """The one tensor that is not equal byte for byte."""
    (tensor,) = (tensor for tensor in found.tensors if tensor.kind != "bitwise_equal")
    return tensor


def changed(name: str, values: Array, dtype: str = "BF16") -> Weights:
    return trained() | {name: (dtype, values)}


def values_of(name: str) -> Array:
    return trained()[name][1].copy()


def cosine(a: Array, b: Array) -> float:
    a, b = (np.asarray(each, np.float64).ravel() for each in (a, b))
    return float(a @ b / np.sqrt((a @ a) * (b @ b)))


# --- values


def test_equal_files_have_no_difference(against: Any) -> None:
    found = against(trained())
    assert (found.differing, found.only_theirs, found.only_ours, found.config_keys, found.notes) == ((), (), (), (), ())
    assert found.to_dict()["tensors"] == {
        "equal": 15, "equal_after_cast": 0, "differing": 0, "not_compared": 0, "only_theirs": [], "only_ours": []
    }  # fmt: skip
    assert found.to_dict()["rows"] == []
    assert not found.differs


@pytest.mark.parametrize("dtype", ["F32", "F16"])
def test_a_copy_in_another_dtype_is_equal_after_a_cast(against: Any, dtype: str) -> None:
    found = against(trained(dtype=dtype), trained() if dtype == "F32" else trained(dtype="F32"))
    # norms, matrices: all 13 weights; the two tables keep their dtype
    assert [tensor.kind for tensor in found.tensors].count("equal_after_cast") == 13
    assert found.differing == ()
    assert not found.differs
    assert found.to_dict()["tensors"]["equal"] == 15
    assert found.to_dict()["rows"][0]["dtypes"] == [("BF16" if dtype == "F32" else "F32"), dtype]


def test_a_table_in_another_integer_is_equal_after_a_cast(against: Any) -> None:
    found = against(trained() | {"d2t": ("I32", trained()["d2t"][1])})
    assert only(found).kind == "equal_after_cast"
    assert found.vocabulary is not None
    assert found.vocabulary.same_map


def test_a_scaled_tensor_tells_its_factor(against: Any) -> None:
    found = only(against(changed("fc.weight", 8 * values_of("fc.weight"))))
    assert (found.kind, found.scale, found.norm_ratio) == ("scaled", 8, 8)
    assert found.cosine == pytest.approx(1)
    assert found.max_abs == 7 * np.abs(values_of("fc.weight")).max()


def test_one_changed_row_is_named_and_measured(against: Any) -> None:
    was = values_of("lm_head.weight")
    now = was.copy()
    now[17] = as_bf16(-2 * now[17])
    found = only(against(changed("lm_head.weight", now)))
    assert (found.kind, found.rows, found.rows_differing, found.first_differing) == ("nearly_equal", DRAFT, 1, (17,))
    assert found.norm_ratio == pytest.approx(np.linalg.norm(now) / np.linalg.norm(was))
    assert found.cosine == pytest.approx(cosine(was, now))
    assert found.max_abs == np.abs(now - was).max()


def test_figures_cover_a_tensor_of_many_pieces(tmp_path: Path) -> None:
    """6 MB on each side: the pieces of 1 MiB must come to the whole, also where most of them are equal."""
    was = as_bf16(np.random.default_rng(1).standard_normal((3000, 1000)))
    now = was.copy()
    now[2900:2905] += 1
    now = as_bf16(now)
    refs = [write(tmp_path / name, {"x.weight": ("BF16", values)}) for name, values in (("a", was), ("b", now))]
    found = only(compared(*refs))
    assert (found.kind, found.rows_differing, found.first_differing) == (
        "nearly_equal",
        5,
        (2900, 2901, 2902, 2903, 2904),
    )
    assert found.norm_ratio == pytest.approx(np.linalg.norm(now.astype(float)) / np.linalg.norm(was.astype(float)))
    assert found.cosine == pytest.approx(cosine(was, now))


def test_a_tensor_scaled_in_one_half_is_not_scaled(tmp_path: Path) -> None:
    was = as_bf16(np.random.default_rng(1).standard_normal((3000, 1000)))
    now = was.copy()
    now[1500:] *= 4
    refs = [write(tmp_path / name, {"x.weight": ("BF16", values)}) for name, values in (("a", was), ("b", now))]
    found = only(compared(*refs))
    assert (found.kind, found.rows_differing, found.scale) == ("unrelated", 1500, None)


def test_another_training_run_is_unrelated(against: Any) -> None:
    found = against(trained(seed=1) | vocabulary(4 * np.arange(DRAFT)))
    assert {tensor.kind for tensor in found.differing} == {"unrelated"}
    assert {tensor.name for tensor in found.differing} == set(SHAPES)
    assert all(abs(tensor.cosine) < 0.6 for tensor in found.differing)


def test_nan_is_no_figure_and_equal_nan_no_difference(against: Any, tmp_path: Path) -> None:
    was = values_of("fc.weight")
    was[3, 4] = np.nan
    now = was.copy()
    now[5, 6] = np.inf
    theirs = changed("fc.weight", was)
    assert against(theirs, theirs).differing == ()
    found = only(against(changed("fc.weight", now), theirs))
    assert (found.kind, found.non_finite) == ("non_finite", 3)
    assert found.norm_ratio == pytest.approx(1)  # the rows that are finite on both sides
    json.dumps(found.to_dict(), allow_nan=False)


def test_a_nan_in_one_row_does_not_make_the_rest_unrelated(tmp_path: Path, capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    broken = values_of("fc.weight")
    broken[3, 4] = np.nan
    refs = write(tmp_path / "a", trained()), write(tmp_path / "b", changed("fc.weight", broken))
    found = only(compared(*refs))
    assert (found.kind, found.rows_differing, found.first_differing, found.non_finite) == ("non_finite", 1, (3,), 1)
    assert found.cosine == pytest.approx(1)
    assert main(["compare", *refs, "--weights", "--exit-code"]) == 1
    out = capsys.readouterr().out
    assert "differs, figures are of its finite rows, 1 value NaN or infinite" in out
    assert "nrelated" not in out


def test_another_shape_is_told_and_not_read(against: Any) -> None:
    found = only(against(changed("fc.weight", values_of("fc.weight")[:, :HIDDEN])))
    assert (found.kind, found.cosine, found.rows_differing) == ("other_shape", None, None)
    assert found.shapes == ((HIDDEN, 3 * HIDDEN), (HIDDEN, HIDDEN))


def test_packed_weights_are_compared_by_bytes_and_that_is_said(against: Any) -> None:
    theirs = changed("fc.weight", np.arange(HIDDEN * 4).reshape(HIDDEN, 4), "U8")
    packed = theirs["fc.weight"][1].copy()
    packed[7, 1] += 1
    found = against(theirs | {"fc.weight": ("U8", packed)}, theirs)
    tensor = only(found)
    assert (tensor.kind, tensor.norm_ratio, tensor.rows_differing, tensor.first_differing) == (
        "bytes_differ",
        None,
        1,
        (7,),
    )
    assert len(found.notes) == 1
    assert "fc.weight" in found.notes[0]
    assert "byte by byte" in found.notes[0]


def test_a_view_whose_bytes_are_not_in_order_is_not_read_as_if_they_were(tmp_path: Path) -> None:
    """torch.save keeps a transposed tensor as a view of its storage."""
    spec = open_drafter(write(tmp_path / "a", trained()))
    assert spec.table is not None
    transposed = [t._replace(strides=(1, HIDDEN)) if t.name == "fc.weight" else t for t in spec.table]
    clues = replace(spec.clues, table=replace(spec.table, tensors=tuple(transposed)))
    (found,) = compare_weights([spec, replace(spec, clues=clues)])
    tensor = only(found)
    assert (tensor.name, tensor.kind, tensor.rows, tensor.cosine) == ("fc.weight", "not_compared", None, None)
    assert "a view in a pickled file" in str(tensor.reason)
    counts = found.to_dict()["tensors"]
    assert (counts["equal"], counts["differing"], counts["not_compared"]) == (14, 0, 1)
    assert found.differs, "what was not read never passes"


def test_floats_against_packed_values_are_not_compared_and_do_not_pass(tmp_path: Path, capsys: Any) -> None:
    packed = changed("fc.weight", np.zeros((HIDDEN, 3 * HIDDEN)), "U8")
    refs = [write(tmp_path / "a", trained()), write(tmp_path / "b", packed)]
    assert only(compared(*refs)).kind == "not_compared"
    assert main(["compare", *refs, "--weights", "--exit-code"]) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert (
        "0 tensors and 0 config keys differ. 1 tensor not compared, so not known to be equal: fc.weight "
        "(values of BF16 and U8 cannot be set side by side)."
    ) in out
    assert main(["compare", *refs, "--weights", "--format", "csv"]) == 0
    assert "not compared: values of BF16 and U8" in capsys.readouterr().out


# --- order


def permutations() -> dict[str, Any]:
    """Case: tensor, its new values, what is found. The interleave as llama.cpp's convert_hf_to_gguf.py writes it."""
    random = np.random.default_rng(5)

    def heads(values: Array) -> Array:
        return values.reshape(HEADS, HEAD_DIM, -1)[[2, 0, 3, 1]].reshape(values.shape)

    def to_gguf(values: Array) -> Array:
        halves = values.reshape(HEADS, 2, HEAD_DIM // 2, *values.shape[1:])
        return halves.swapaxes(1, 2).reshape(values.shape)

    q, k, v, o, gate = (
        values_of(name)
        for name in (*(f"{ATTENTION}{each}_proj.weight" for each in "qkvo"), "midlayer.mlp.gate_proj.weight")
    )
    return {
        "rows": ("midlayer.mlp.gate_proj.weight", gate[random.permutation(INNER)], "rows"),
        "heads of q": (f"{ATTENTION}q_proj.weight", heads(q), "heads"),
        "heads of v": (f"{ATTENTION}v_proj.weight", heads(v), "heads"),
        "heads of o": (f"{ATTENTION}o_proj.weight", heads(o.T).T, "heads"),
        "q interleaved": (f"{ATTENTION}q_proj.weight", to_gguf(q), "rope_interleave"),
        "k interleaved": (f"{ATTENTION}k_proj.weight", to_gguf(k), "rope_interleave"),
        "rows of q across heads": (f"{ATTENTION}q_proj.weight", q[random.permutation(len(q))], "rows"),
        "a row twice": ("midlayer.mlp.gate_proj.weight", gate[[0, *range(INNER - 1)]], None),
        "columns of q": (f"{ATTENTION}q_proj.weight", q[:, ::-1], None),
    }


@pytest.mark.parametrize("case", list(permutations()))
@pytest.mark.parametrize("dtype", ["BF16", "F32"])
def test_a_permutation_is_told_by_name(against: Any, case: str, dtype: str) -> None:
    name, values, permutation = permutations()[case]
    found = only(against(changed(name, values, dtype)))
    assert found.name == name
    assert found.permutation == permutation
    assert (found.kind == "permuted") == (permutation is not None)
    if permutation:
        assert found.norm_ratio == pytest.approx(1)


def test_the_interleave_is_found_in_both_directions(against: Any) -> None:
    name, values, _ = permutations()["q interleaved"]
    assert only(against(trained(), changed(name, values))).permutation == "rope_interleave"


def test_a_permuted_bias_is_found(against: Any) -> None:
    name = f"{ATTENTION}q_proj.bias"
    bias = as_bf16(np.random.default_rng(2).standard_normal(HEADS * HEAD_DIM))
    swapped = bias.reshape(HEADS, HEAD_DIM)[::-1].ravel()
    found = only(against(trained() | {name: ("BF16", swapped)}, trained() | {name: ("BF16", bias)}))
    assert found.permutation == "heads"


# --- names


@pytest.mark.parametrize(
    "rename",
    [
        lambda name: name.replace("midlayer.", "layers.0."),
        lambda name: f"model.{name.replace('midlayer.', 'layers.0.')}",
    ],
    ids=["layers.0", "model.layers.0"],
)
def test_spellings_of_a_name_are_one_tensor(against: Any, rename: Any) -> None:
    found = against({rename(name): what for name, what in trained().items()})
    assert (found.differing, found.only_theirs, found.only_ours) == ((), (), ())
    assert len(found.tensors) == 15


def test_missing_and_added_tensors_are_listed(against: Any) -> None:
    ours = {name: what for name, what in trained().items() if name != "norm.weight"}
    found = against(ours | {"embed_tokens.weight": ("BF16", np.zeros((VOCAB, HIDDEN), np.float32))})
    assert (found.only_theirs, found.only_ours) == (("norm.weight",), ("embed_tokens.weight",))
    assert found.differs
    assert found.differing == ()


def test_two_spellings_on_one_side_are_not_mixed_up(against: Any) -> None:
    doubled = trained() | {"layers.0.hidden_norm.weight": ("BF16", np.ones(HIDDEN, np.float32))}
    found = against(doubled)
    assert (found.only_ours, found.only_theirs) == (("layers.0.hidden_norm.weight",), ())
    assert found.differing == ()
    found = against(doubled, {name.replace("midlayer.", "model.layers.0."): what for name, what in trained().items()})
    assert found.only_ours == ("layers.0.hidden_norm.weight", "midlayer.hidden_norm.weight")
    assert found.only_theirs == ("model.layers.0.hidden_norm.weight",)


def test_a_name_that_both_sides_spell_twice_is_paired_twice(tmp_path: Path) -> None:
    """One file, twice: every tensor has its own counterpart, whatever else shares its canonical name."""
    twice = trained() | {
        "model.lm_head.weight": ("BF16", as_bf16(np.random.default_rng(6).standard_normal((VOCAB, HIDDEN)))),
        "layers.0.mlp.up_proj.weight": ("BF16", as_bf16(np.random.default_rng(7).standard_normal((INNER, HIDDEN)))),
    }
    refs = [write(tmp_path / name, twice) for name in ("a", "b")]
    found = compared(*refs)
    assert (found.only_theirs, found.only_ours, found.differing) == ((), (), ())
    assert sorted(tensor.name for tensor in found.tensors) == sorted(twice)
    assert main(["compare", *refs, "--weights", "--exit-code"]) == 0
    moved = write(tmp_path / "c", twice | vocabulary(4 * np.arange(DRAFT) + 1))
    heads = {tensor.name: tensor for tensor in compared(refs[0], moved).tensors if "lm_head" in tensor.name}
    assert heads["model.lm_head.weight"].matched_by == "place", "the map speaks of 120 rows, and this head has 500"
    assert heads["lm_head.weight"].matched_by == "token"


def test_a_converter_that_lost_the_names_of_a_layer_is_seen(tmp_path: Path, capsys: Any) -> None:
    """The converted file has every key, and a fresh layer (vllm-project/speculators issue 1114)."""
    fresh = {
        name: (dtype, np.ones(HIDDEN, np.float32) if name.endswith("norm.weight") else values)
        for name, (dtype, values) in trained(seed=9).items() if name in LAYER
    }  # fmt: skip
    converted = {name.replace("midlayer.", "layers.0."): what for name, what in (trained() | fresh).items()}
    source, ours = write(tmp_path / "source", trained()), write(tmp_path / "converted", converted)
    found = compared(source, ours)
    assert {tensor.ours_name for tensor in found.of_kind("unrelated")} == {
        n.replace("midlayer.", "layers.0.") for n in LAYER
    }
    assert len(found.differing) == len(LAYER)
    assert main(["compare", source, ours, "--weights", "--exit-code"]) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert f"Unrelated to {source}: layers.0.hidden_norm.weight" in out
    assert "a converter that loses names" in out


# --- vocabulary


def test_rows_are_compared_by_the_token_they_stand_for(against: Any) -> None:
    """Ours drops 10 tokens, adds 10 others and changes the row of one that stayed."""
    was = 4 * np.arange(DRAFT)
    now = np.sort(np.concatenate([np.delete(was, range(20, 30)), 1 + 4 * np.arange(50, 60)]))
    head = as_bf16(np.random.default_rng(3).standard_normal((VOCAB, HIDDEN)))
    theirs = changed("lm_head.weight", head[was]) | vocabulary(was)
    head[was[100]] = as_bf16(3 * head[was[100]])
    row = int(np.flatnonzero(now == was[100])[0])
    found = against(changed("lm_head.weight", head[now]) | vocabulary(now), theirs)
    assert found.vocabulary is not None
    at = {token: row for row, token in enumerate(was.tolist())}
    moved = sum(1 for row, token in enumerate(now.tolist()) if token in at and at[token] != row)
    assert found.vocabulary.to_dict() == {"same_map": False, "moved": moved, "added": 10, "removed": 10}
    (tensor,) = (tensor for tensor in found.tensors if tensor.name == "lm_head.weight")
    assert (tensor.matched_by, tensor.kind) == ("token", "nearly_equal")
    assert (tensor.rows, tensor.rows_differing, tensor.first_differing) == (DRAFT - 10, 1, (row,))


def test_a_shuffled_map_with_its_rows_is_the_same_head(against: Any) -> None:
    was = 4 * np.arange(DRAFT)
    order = np.random.default_rng(4).permutation(DRAFT)
    found = against(changed("lm_head.weight", values_of("lm_head.weight")[order]) | vocabulary(was[order]))
    assert found.vocabulary is not None
    assert (found.vocabulary.added, found.vocabulary.removed) == (0, 0)
    assert found.vocabulary.moved == int((order != np.arange(DRAFT)).sum())
    assert {tensor.name: tensor.kind for tensor in found.differing} == {"d2t": "bytes_differ"}


def test_a_map_changed_under_the_same_rows_differs_in_every_moved_row(against: Any) -> None:
    """The map alone was replaced: each row now stands for the next token."""
    found = against(trained() | vocabulary(4 * np.arange(DRAFT) + 1))
    assert found.vocabulary is not None
    assert found.vocabulary.to_dict() == {"same_map": False, "moved": 0, "added": DRAFT, "removed": DRAFT}
    assert found.differs


def test_heads_that_share_no_token_are_not_compared(tmp_path: Path, capsys: Any) -> None:
    other = trained() | {"lm_head.weight": trained(seed=1)["lm_head.weight"]} | vocabulary(4 * np.arange(DRAFT) + 1)
    refs = [write(tmp_path / "a", trained()), write(tmp_path / "b", other)]
    found = compared(*refs)
    (head,) = found.of_kind("not_compared")
    assert (head.name, head.rows, head.rows_differing, head.cosine) == ("lm_head.weight", 0, None, None)
    assert [row["name"] for row in found.to_dict()["rows"] if row["kind"] == "not_compared"] == ["lm_head.weight"]
    counts = found.to_dict()["tensors"]
    assert (counts["equal"], counts["differing"], counts["not_compared"]) == (12, 2, 1)  # d2t and t2d differ
    assert main(["compare", *refs, "--weights", "--exit-code"]) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert "1 tensor not compared, so not known to be equal: lm_head.weight (no token has a row on both sides)." in out
    assert "over 0 of 120 rows of theirs and 120 of ours" in out


@pytest.mark.parametrize("dtype", ["BF16", "F32"])
def test_a_head_equal_in_the_tokens_that_both_have_is_not_counted_as_equal(
    tmp_path: Path, capsys: Any, dtype: str
) -> None:
    """Of 120 tokens 30 are shared, and their rows are the same; 90 rows of each side are not read."""
    was, now = 4 * np.arange(DRAFT), 4 * np.arange(DRAFT)
    now[30:] += 1
    head = values_of("lm_head.weight")
    head[30:] = as_bf16(np.random.default_rng(8).standard_normal((DRAFT - 30, HIDDEN)))
    refs = [
        write(tmp_path / "a", trained() | vocabulary(was)),
        write(tmp_path / "b", changed("lm_head.weight", head, dtype) | vocabulary(now)),
    ]
    found = compared(*refs)
    (row,) = (row for row in found.to_dict()["rows"] if row["name"] == "lm_head.weight")
    assert row["kind"] == ("bitwise_equal" if dtype == "BF16" else "equal_after_cast")
    assert (row["matched_by"], row["rows"], row["rows_differing"]) == ("token", 30, 0)
    counts = found.to_dict()["tensors"]
    assert (counts["equal"], counts["equal_after_cast"], counts["differing"]) == (12, 0, 3)
    assert main(["compare", *refs, "--weights"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "over 30 of 120 rows of theirs and 120 of ours" in out


@pytest.mark.parametrize(
    ("ours", "reason"),
    [
        ({"d2t": ("I64", np.full(DRAFT, VOCAB))}, "outside the vocabulary"),
        ({"d2t": ("I64", -np.arange(DRAFT))}, "two rows one token"),
        ({"d2t": ("I64", np.zeros(DRAFT - 1))}, "119 entries and lm_head 120 rows"),
        ({}, "no d2t"),
    ],
    ids=["outside", "twice", "short", "absent"],
)
def test_a_map_that_cannot_be_read_is_said(against: Any, ours: Weights, reason: str) -> None:
    weights = {name: what for name, what in trained().items() if name != "d2t"} | ours
    found = against(weights)
    assert found.vocabulary is None
    assert any(reason in note for note in found.notes)
    (head,) = (tensor for tensor in found.tensors if tensor.name == "lm_head.weight")
    assert (head.kind, head.matched_by) == ("bitwise_equal", "place")


# --- config


def test_a_fork_that_changes_the_config_alone(tmp_path: Path, capsys: Any) -> None:
    """As users republished a head whose engine stopped at 2048 positions (NVIDIA-NeMo/RL pull 3960)."""
    upstream = write(tmp_path / "upstream", trained(), max_position_embeddings=2048)
    fork = write(tmp_path / "fork", trained(), max_position_embeddings=40960)
    assert main(["compare", fork, upstream, "--weights", "--format", "json"]) == 0
    (pair,) = json.loads(capsys.readouterr().out)["weights"]
    assert pair["against"] == fork
    assert (pair["tensors"]["differing"], pair["tensors"]["equal"], pair["rows"]) == (0, 15, [])
    assert pair["config_keys"] == [{"key": "max_position_embeddings", "values": [40960, 2048]}]
    size = sum(len(stored(*what)) for what in trained().values())
    assert pair["bytes_read"] == 2 * (size + DRAFT * 8)  # the map is read twice: as a map and as a tensor
    assert main(["compare", fork, upstream, "--weights"]) == 0
    assert "0 tensors and 1 config key differ: max_position_embeddings." in capsys.readouterr().out


def test_config_keys_are_compared_by_value_and_listed_by_impact(tmp_path: Path) -> None:
    theirs = write(tmp_path / "a", trained(), transformers_version="4.57", rope_scaling=None, rms_norm_eps=1e-6)
    config = {
        "vocab_size": VOCAB + 1, "transformers_version": "5.0", "head_dim": HEAD_DIM * 2, "rope_theta": 10000,
        "norm_before_residual": True, "eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 29, 57]},
    }  # fmt: skip
    ours = write(tmp_path / "b", trained(), **dict(reversed(config.items())), rms_norm_eps=0.000001, use_cache=None)
    assert [key.key for key in compared(theirs, ours).config_keys] == [
        "eagle_config.eagle_aux_hidden_state_layer_ids",
        "norm_before_residual",
        "rope_theta",
        "head_dim",
        "vocab_size",
        "transformers_version",
    ]


def test_true_is_not_one_in_a_config(tmp_path: Path) -> None:
    refs = [write(tmp_path / str(index), trained(), flag=flag) for index, flag in enumerate((True, 1))]
    assert [key.key for key in compared(*refs).config_keys] == ["flag"]


def test_a_weight_file_without_a_config_is_said(tmp_path: Path) -> None:
    theirs = write(tmp_path / "a", trained())
    (tmp_path / "alone.safetensors").write_bytes(safetensors(trained()))
    found = compared(theirs, str(tmp_path / "alone.safetensors"))
    assert found.config_keys == ()
    assert "has none" in found.notes[0]


# --- the command


def test_three_checkpoints_are_each_set_against_the_last(tmp_path: Path, capsys: Any) -> None:
    refs = [write(tmp_path / name, trained(seed)) for name, seed in (("a", 0), ("b", 1), ("c", 1))]
    assert main(["compare", *refs, "--weights", "--format", "json"]) == 0
    weights = json.loads(capsys.readouterr().out)["weights"]
    assert [(pair["against"], pair["tensors"]["differing"]) for pair in weights] == [(refs[0], 13), (refs[1], 0)]


def test_weights_are_in_the_json_only_when_asked_for(tmp_path: Path, capsys: Any) -> None:
    ref = write(tmp_path / "a", trained())
    assert main(["compare", ref, ref, "--format", "json"]) == 0
    assert "weights" not in json.loads(capsys.readouterr().out)


def test_the_exit_code_counts_weights_only_with_the_option(tmp_path: Path, capsys: Any) -> None:
    refs = [write(tmp_path / name, trained(seed)) for name, seed in (("a", 0), ("b", 1))]
    assert main(["compare", *refs, "--exit-code"]) == 0
    assert main(["compare", *refs, "--exit-code", "--weights"]) == 1
    capsys.readouterr()


@pytest.mark.parametrize("style", ["table", "markdown", "csv"])
def test_every_format_names_what_differs(tmp_path: Path, capsys: Any, monkeypatch: Any, style: str) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    name, values, _ = permutations()["q interleaved"]
    refs = [write(tmp_path / "a", trained()), write(tmp_path / "b", changed(name, values), rms_norm_eps=1e-5)]
    assert main(["compare", *refs, "--weights", "--format", style]) == 0
    out = capsys.readouterr().out.replace("\\_", "_")
    assert name in out
    assert "GGUF" in out
    assert "rms_norm_eps" in out


@pytest.mark.parametrize("place", [0, 1])
def test_a_bundled_record_has_no_weights_to_compare(tmp_path: Path, capsys: Any, place: int) -> None:
    refs = [write(tmp_path / "a", trained())]
    refs.insert(place, "aq-medai-kimi-k2-instruct-eagle3")
    assert main(["compare", *refs, "--weights"]) == 3
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert "no weights to compare" in err
    assert "AQ-MedAI/Kimi-K2-Instruct-eagle3" in err


def test_a_file_that_shrinks_while_it_is_read_is_an_error(tmp_path: Path) -> None:
    spec = open_drafter(write(tmp_path / "a", trained()))
    path = tmp_path / "a" / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    assert spec.table is not None
    last = max(spec.table, key=lambda tensor: tensor.start)
    with pytest.raises(CheckpointError, match="cut short inside tensor"):
        Stored(spec.origin, last, lambda _: None).read_bytes(0, last.nbytes)


# --- remote, progress, memory


def test_a_remote_pair_is_read_by_range(hub: Hub, capsys: Any) -> None:
    hub.add_repo("org/theirs", files(trained()), lfs=True)
    hub.add_repo(
        "org/ours", files(changed("fc.weight", 8 * values_of("fc.weight")), {**CONFIG, "rope_theta": 1e4}), lfs=True
    )
    assert main(["compare", "org/theirs", "org/ours", "--weights", "--format", "json"]) == 0
    out, err = capsys.readouterr()
    (pair,) = json.loads(out)["weights"]
    assert [(row["name"], row["kind"]) for row in pair["rows"]] == [("fc.weight", "scaled")]
    assert [key["key"] for key in pair["config_keys"]] == ["rope_theta"]
    size = 2 * sum(len(stored(*what)) for what in trained().values())
    assert err == ""
    reads = [request for request in hub.requests if request.path.endswith("model.safetensors")]
    assert all(request.range for request in reads)
    assert pair["bytes_read"] == size + 2 * DRAFT * 8


def test_a_local_checkpoint_is_compared_with_a_remote_one(hub: Hub, tmp_path: Path, capsys: Any) -> None:
    hub.add_repo("org/theirs", files(trained()))
    local = write(tmp_path / "ours", trained())
    assert main(["compare", "org/theirs", local, "--weights", "--exit-code"]) == 0
    assert capsys.readouterr().err == ""


def test_a_read_that_fails_is_one_line(hub: Hub, run_python: RunPython) -> None:
    """Online one in the midst; offline the first, though all headers are kept: the line then names what mends it."""
    refs = []
    for name in ("theirs", "ours"):
        commit = hub.add_repo(f"org/{name}", files(trained()), lfs=True)
        refs.append(f"org/{name}@{commit}")
        assert main(["params", refs[-1]]) == 0
    code = f"import sys; from drafter_audit.cli.main import main; sys.exit(main(['compare', *{refs!r}, '--weights']))"
    offline = run_python(code, HF_HUB_OFFLINE="1")
    hub.fail(404, times=99, path="org/ours/")
    for run in (offline, run_python(code)):
        assert (run.returncode, run.stdout, run.stderr.count("\n")) == (3, "", 1)
        assert run.stderr.startswith("error: ")
    assert f"hf download org/theirs model.safetensors --revision {refs[0].partition('@')[2]}" in offline.stderr


def test_progress_is_silent_where_stderr_is_no_terminal(tmp_path: Path, run_python: RunPython) -> None:
    refs = [write(tmp_path / name, trained(seed)) for name, seed in (("a", 0), ("b", 1))]
    code = f"from drafter_audit.cli.main import main; main(['compare', *{refs!r}, '--weights'])"
    run = run_python(code)
    assert (run.returncode, run.stderr) == (0, "")
    assert "unrelated" in run.stdout


def on_terminal(*arguments: str) -> tuple[int, str, str]:
    """Exit code, stdout, and what a terminal saw of stderr."""
    import os
    import pty

    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "drafter_audit", *arguments]
    run = subprocess.run(command, stdout=subprocess.PIPE, stderr=theirs, check=False, timeout=60)
    os.close(theirs)
    seen = os.read(ours, 100_000).decode()
    os.close(ours)
    return run.returncode, run.stdout.decode(), seen


def test_a_terminal_shows_a_bar_that_fills(tmp_path: Path) -> None:
    refs = [write(tmp_path / name, trained(seed)) for name, seed in (("a", 0), ("b", 1))]
    code, out, seen = on_terminal("compare", *refs, "--weights")
    assert code == 0
    assert "Comparing weights  [" in seen
    assert "100%" in seen
    assert "Comparing weights" not in out


def test_a_terminal_is_told_what_the_hub_sends(hub: Hub, tmp_path: Path) -> None:
    commit = hub.add_repo("org/theirs", files(trained()))
    arguments = ("compare", f"org/theirs@{commit}", write(tmp_path / "ours", trained(1)), "--weights")
    code, _, seen = on_terminal(*arguments)
    size = sum(len(stored(*what)) for what in trained().values())
    assert code == 0
    assert f"Comparing weights, {size / 1000:.2f} kB from the Hub  [" in seen
    code, _, seen = on_terminal(*arguments, "--offline")  # nothing comes: no bar
    assert (code, seen[:7], seen.count("\n")) == (3, "error: ", 1)


PEAK = """
import os
from drafter_audit.cli.main import main
from drafter_audit.audit.tensors import compare as loaded
def peak():  # of this process alone: getrusage also counts the one that started it
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM"))
os.chdir({folder!r})
before = peak()
assert main(["compare", "a", "b", "--weights", "--format", "json", "-o", "out"]) == 0
print(peak() - before)
"""
"""Prints the kB that a comparison of the folders a and b takes beyond the program's own."""


@pytest.mark.parametrize("shape", [(3_000_000, 1), (750_000, 4), (500_000, 4), (3_000_000,)])
def test_memory_does_not_grow_with_the_number_of_rows(
    tmp_path: Path, run_python: RunPython, shape: tuple[int, ...]
) -> None:
    """Every row differs, and the last is the other's first: 12 MB on each side, 8 MB for 500,000 rows of 4."""
    was = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    for name, values in (("a", was), ("b", np.roll(was, -1, axis=0))):
        write(tmp_path / name, {"narrow.weight": ("F32", values)})
    run = run_python(PEAK.format(folder=str(tmp_path)))
    assert (run.returncode, run.stderr) == (0, "")
    (pair,) = json.loads((tmp_path / "out").read_text())["weights"]
    (row,) = pair["rows"]
    if shape == (500_000, 4):
        assert (row["kind"], row["permutation"], pair["notes"]) == ("permuted", "rows", [])
    else:
        assert (row["kind"], row["permutation"]) == ("unrelated", None)
        assert pair["notes"] == ["Too many rows to tell whether they are the same in another order: narrow.weight."]
    assert 0 < int(run.stdout) < 40_000  # kB; 16 of them hold what is read at once


def test_memory_does_not_grow_with_the_tensor(tmp_path: Path, run_python: RunPython) -> None:
    """A tensor of 400 MB on each side, one row of which differs, and one tensor in two dtypes: 860 MB read."""
    pairs = (("a", "BF16"), ("b", "F32"))
    for name, dtype in pairs:
        folder = tmp_path / name
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(CONFIG))
        tensors = {"big.weight": ("BF16", (25_000, 8_000)), "wide.weight": (dtype, (2_000, 5_000))}
        path = write_sparse(folder / "model.safetensors", tensors)
        if name == "b":
            with path.open("r+b") as file:
                file.seek(300_000_000)
                file.write(stored("BF16", np.ones(1000)))
    run = run_python(PEAK.format(folder=str(tmp_path)))
    assert (run.returncode, run.stderr) == (0, "")
    (pair,) = json.loads((tmp_path / "out").read_text())["weights"]
    assert [(row["name"], row["kind"]) for row in pair["rows"]] == [
        ("big.weight", "unrelated"), ("wide.weight", "equal_after_cast")
    ]  # fmt: skip
    assert pair["bytes_read"] == 2 * 400_000_000 + 60_000_000
    assert 0 < int(run.stdout) < 60_000  # kB
