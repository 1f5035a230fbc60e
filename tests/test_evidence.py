"""Frozen or trained, by rows of drafter and target: what peers' own code exported, and pairs of every class."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import drafter_audit
from drafter_audit.audit.finding import Finding
from drafter_audit.audit.lint import lint
from drafter_audit.audit.params import count_params
from drafter_audit.audit.rules import find, find_in_contents
from drafter_audit.checkpoint.load import read_header
from drafter_audit.drafter.open import open_drafter
from drafter_audit.drafter.row_sample import MOST_ROWS, Run, choose_runs, row_numbers
from drafter_audit.drafter.spec import DrafterSpec
from drafter_audit.drafter.target import named_target
from drafter_audit.drafter.target_weights import CountedSource, TargetWeights
from drafter_audit.drafter.value_reads import MOST_READS
from drafter_audit.errors import CheckpointError, NetworkError
from drafter_audit.sources.open import open_source
from tests.checkpoints import EMBEDDING, KIMI_CONFIG, Tensors, kimi_tensors, read_peer, write_checkpoint
from tests.hub import Hub
from tests.rows import Array, bf16, cut_peer, peer_rows, write_arrays, write_rows

EMBED, HEAD = "embed_tokens.weight", "lm_head.weight"


@pytest.fixture
def target(tmp_path: Path) -> str:
    return cut_peer(tmp_path / "target", "tiny_llama")


def role_of(spec: DrafterSpec, name: str) -> tuple[str, str]:
    found = next(tensor for tensor in spec.tensors if tensor.name == name)
    return found.role, found.reason


def classes(spec: DrafterSpec) -> dict[str, str]:
    return {one.tensor: one.kind for one in spec.evidence}


def codes(spec: DrafterSpec) -> dict[str, Finding]:
    told = ("EMB", "HEAD", "EVIDENCE", "ROWS", "VOCAB")
    return {finding.code: finding for finding in find(spec) if finding.code.startswith(told)}


def random(rows: int, width: int = 64, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(0, 0.15, (rows, width)).astype(np.float32)


# --- what peers' code does with the target's rows


@pytest.mark.parametrize(
    ("peer", "found", "roles"),
    [
        ("specforge_eagle3", {EMBED: "bitwise_equal", HEAD: "unrelated"}, {EMBED: "frozen", HEAD: "trainable"}),
        ("speculators_eagle3", {EMBED: "bitwise_equal", HEAD: "bitwise_equal"}, {EMBED: "frozen", HEAD: "frozen"}),
        ("modelopt_eagle3", {HEAD: "unrelated"}, {EMBED: "borrowed", HEAD: "trainable"}),
    ],
)
def test_what_peers_exported(
    tmp_path: Path, target: str, peer: str, found: dict[str, str], roles: dict[str, str]
) -> None:
    """SpecForge copies the embedding and starts the head afresh; speculators copies both, the head by t2d."""
    spec = open_drafter(cut_peer(tmp_path / "drafter", peer), target=target)
    assert classes(spec) == found
    for name, role in roles.items():
        assert role_of(spec, name)[0] == role
    assert role_of(spec, HEAD)[1].startswith("evidence: ")
    assert codes(spec) == {}


def test_the_rule_stands_beside_the_evidence(tmp_path: Path, target: str) -> None:
    spec = open_drafter(cut_peer(tmp_path / "drafter", "specforge_eagle3"), target=target)
    assert role_of(spec, EMBED)[1] == (
        "evidence: bitwise equal to the target's model.embed_tokens.weight in 64 sampled rows "
        "(by rule frozen: specforge freezes the embedding, a copy of the target's)"
    )


def test_without_a_named_target_no_row_is_read(tmp_path: Path) -> None:
    spec = open_drafter(cut_peer(tmp_path / "drafter", "specforge_eagle3"))
    assert (spec.evidence, spec.evidence_none) == ((), None)
    assert not role_of(spec, EMBED)[1].startswith("evidence")


# --- every class


def pair(tmp_path: Path, target: str, **changed: Array) -> DrafterSpec:
    return open_drafter(cut_peer(tmp_path / "drafter", "specforge_eagle3", **changed), target=target)


def test_a_cast_copy_is_frozen(tmp_path: Path, target: str) -> None:
    half = peer_rows("tiny_llama")["model.embed_tokens.weight"].astype(np.float16)
    spec = pair(tmp_path, target, embed_tokens__weight=half)
    assert classes(spec)[EMBED] == "equal_after_cast"
    assert role_of(spec, EMBED)[0] == "frozen"
    assert "(F16)" in role_of(spec, EMBED)[1]


def test_a_scaled_copy_is_frozen_and_its_factor_told(tmp_path: Path, target: str) -> None:
    """Gemma's sqrt(hidden); here sqrt(64)."""
    spec = pair(tmp_path, target, embed_tokens__weight=peer_rows("tiny_llama")["model.embed_tokens.weight"] * 8)
    (told, _) = (one.to_dict() for one in spec.evidence)
    assert (told["class"], told["scale"], told["norm_ratio"]) == ("scaled", 8.0, 8.0)
    assert told["cosine"] == pytest.approx(1.0)
    assert role_of(spec, EMBED)[0] == "frozen"


def test_a_few_changed_rows_are_named(tmp_path: Path, target: str) -> None:
    rows = peer_rows("tiny_llama")["model.embed_tokens.weight"].copy()
    rows[[7, 8, 30]] += 1
    spec = pair(tmp_path, target, embed_tokens__weight=rows)
    (told, _) = (one.to_dict() for one in spec.evidence)
    assert (told["class"], told["differing_ranges"], told["differing_rows"]) == ("nearly_equal", [[7, 8], [30, 30]], 3)
    finding = codes(spec)["EMB-NEAR"]
    assert finding.severity == "warning"
    assert "rows 7-8, 30 differ" in finding.consequence
    assert role_of(spec, EMBED)[0] == "unknown"


def moved(name: str) -> Array:
    """The target's table, each row trained on by 2% of its norm or so; a row of zeros stays."""
    rows = peer_rows("tiny_llama")[name]
    return rows * (1 + random(len(rows)) * np.float32(0.02 / 0.15))


def test_an_embedding_that_moved_a_little_differs_everywhere(tmp_path: Path, target: str) -> None:
    spec = pair(tmp_path, target, embed_tokens__weight=moved("model.embed_tokens.weight"))
    told, finding = spec.evidence[0].to_dict(), codes(spec)["EMB-NEAR"]
    assert (told["class"], told["spread"]) == ("nearly_equal", "all_rows")
    assert told["differing_rows"] > 60
    assert "but for" not in finding.what
    assert "each row to within 5% of its norm" in finding.what
    assert "tensor parallelism" not in finding.consequence


def test_a_head_trained_from_the_targets_is_no_finding(tmp_path: Path, target: str) -> None:
    ids = np.arange(23) + peer_rows("specforge_eagle3")["d2t"]
    spec = pair(tmp_path, target, lm_head__weight=moved("lm_head.weight")[ids])
    assert spec.evidence[1].kind == "nearly_equal"
    assert role_of(spec, HEAD)[0] == "trainable"
    assert codes(spec) == {}


def test_a_random_embedding_is_an_error_and_not_frozen(tmp_path: Path, target: str) -> None:
    spec = pair(tmp_path, target, embed_tokens__weight=random(64))
    finding = codes(spec)["EMB-UNRELATED"]
    assert (finding.severity, finding.key, finding.file) == ("error", EMBED, "model.safetensors")
    assert "random or foreign" in finding.consequence
    assert role_of(spec, EMBED)[0] == "unknown"
    assert spec.parameters.frozen == 0
    assert spec.parameters.unknown == 64 * 64
    assert "EMB-UNRELATED" in {found.code for found in find_in_contents(spec)}


def test_an_embedding_trained_on_from_the_targets_is_not_called_random(tmp_path: Path, target: str) -> None:
    moved = peer_rows("tiny_llama")["model.embed_tokens.weight"] + random(64) * np.float32(0.3)
    finding = codes(pair(tmp_path, target, embed_tokens__weight=moved))["EMB-UNRELATED"]
    assert finding.consequence.startswith("it was changed")


def test_an_embedding_that_is_said_to_be_trained_may_differ(tmp_path: Path, target: str) -> None:
    ref = cut_peer(tmp_path / "drafter", "speculators_eagle3", embed_tokens__weight=random(64))
    config = json.loads(Path(ref, "config.json").read_text())
    Path(ref, "config.json").write_text(json.dumps({**config, "embed_requires_grad": True}))
    spec = open_drafter(ref, target=target)
    assert role_of(spec, EMBED)[0] == "trainable"
    assert "EMB-UNRELATED" not in codes(spec)


def test_a_head_said_to_be_trained_that_is_the_targets(tmp_path: Path, target: str) -> None:
    drafter = peer_rows("specforge_eagle3")
    ids = np.arange(len(drafter["d2t"])) + drafter["d2t"]
    spec = pair(tmp_path, target, lm_head__weight=peer_rows("tiny_llama")["lm_head.weight"][ids])
    assert role_of(spec, HEAD)[0] == "frozen"
    assert codes(spec)["HEAD-EQUAL"].severity == "info"


def test_a_head_said_to_be_frozen_that_was_trained(tmp_path: Path, target: str) -> None:
    """What speculators makes of a SpecForge checkpoint: its rule says frozen, and the rows do not."""
    rows = len(peer_rows("speculators_eagle3")["d2t"])
    ref = cut_peer(tmp_path / "drafter", "speculators_eagle3", lm_head__weight=random(rows))
    assert role_of(open_drafter(ref), HEAD)[0] == "frozen"
    assert role_of(open_drafter(ref, target=target), HEAD)[0] == "trainable"


def test_permuted_rows_are_no_copy(tmp_path: Path, target: str) -> None:
    rows = peer_rows("tiny_llama")["model.embed_tokens.weight"][::-1].copy()
    assert classes(pair(tmp_path, target, embed_tokens__weight=rows))[EMBED] == "unrelated"


def test_nothing_is_claimed_of_nan(tmp_path: Path, target: str) -> None:
    """speculators fills head and embedding with NaN before it loads them."""
    spec = pair(tmp_path, target, lm_head__weight=np.full((23, 64), np.nan, np.float32))
    assert role_of(spec, HEAD)[0] == "unknown"
    assert codes(spec)["ROWS-NONFINITE"].severity == "error"
    json.dumps(spec.to_dict(), allow_nan=False)


# --- what cannot be compared is said


def reason(spec: DrafterSpec) -> str:
    return next(one.reason or "" for one in spec.evidence if one.kind == "not_comparable")


def test_zeros_on_both_sides_prove_nothing(tmp_path: Path) -> None:
    zeros = np.zeros((64, 64), np.float32)
    target = cut_peer(tmp_path / "target", "tiny_llama", model__embed_tokens__weight=zeros)
    spec = pair(tmp_path, target, embed_tokens__weight=zeros)
    assert reason(spec) == "all sampled rows are zero on both sides"
    assert role_of(spec, EMBED) == ("frozen", "specforge freezes the embedding, a copy of the target's")
    assert codes(spec)["EVIDENCE-NONE"].severity == "warning"


@pytest.mark.parametrize(("d2t", "said"), [(60, "23 entries of d2t lead outside"), (-30, "lead outside")])
def test_a_map_that_leaves_the_target(tmp_path: Path, target: str, d2t: int, said: str) -> None:
    spec = pair(tmp_path, target, d2t=np.full(23, d2t + 10, np.int64) if d2t < 0 else np.full(23, 64, np.int64))
    assert said in reason(spec)
    assert classes(spec) == {EMBED: "bitwise_equal", HEAD: "not_comparable"}
    found = codes(spec)
    assert set(found) == {"VOCAB-MISMATCH"}
    assert (found["VOCAB-MISMATCH"].severity, found["VOCAB-MISMATCH"].key) == ("error", HEAD)


def test_a_target_of_another_vocabulary_says_nothing_of_the_export(tmp_path: Path) -> None:
    """Embedding and head differ because the target is the wrong one; the named target alone brings the finding."""
    rows = {name: random(60, seed=9) for name in ("model.embed_tokens.weight", "lm_head.weight")}
    target = write_arrays(tmp_path / "target", read_peer("tiny_llama")[0] | {"vocab_size": 60}, {}, rows)
    spec = pair(tmp_path, target, d2t=np.zeros(23, np.int64))
    counted = {finding.code: finding for finding in find_in_contents(spec)}
    assert counted["VOCAB-MISMATCH"].evidence == {"drafter": 64, "target": 60}
    assert "EMB-UNRELATED" not in counted
    assert classes(spec) == {EMBED: "not_comparable", HEAD: "not_comparable"}
    assert "may be those of other tokens: vocab_size is 64, the target's 60" in reason(spec)
    assert role_of(spec, EMBED)[0] == "frozen"
    assert [finding.code for finding in find(spec)].count("VOCAB-MISMATCH") == 1
    unnamed = replace(spec, target=replace(spec.target, said_by="config.json"))
    assert "VOCAB-MISMATCH" not in {finding.code for finding in find_in_contents(unnamed)}


def test_padding_alone_hides_no_trained_head(tmp_path: Path, target: str) -> None:
    """The embedding agrees, so the tokens are the same."""
    config = json.loads(Path(target, "config.json").read_text())
    rows = {
        name: np.concatenate([table, np.zeros((6, 64), np.float32)]) for name, table in peer_rows("tiny_llama").items()
    }
    padded = write_arrays(tmp_path / "padded", {**config, "vocab_size": 70}, {}, rows)
    assert classes(pair(tmp_path, padded)) == {EMBED: "bitwise_equal", HEAD: "unrelated"}


def test_a_reduced_head_without_a_map(tmp_path: Path, target: str) -> None:
    config, tensors, _ = read_peer("specforge_eagle3")
    arrays = {name: array for name, array in peer_rows("specforge_eagle3").items() if name != "d2t"}
    others = {name: shape for name, shape in tensors.items() if name not in (*arrays, "d2t", "t2d")}
    ref = write_arrays(tmp_path / "d", {**config, "vocab_size": 64, "draft_vocab_size": 23}, others, arrays)
    assert "no d2t says" in reason(open_drafter(ref, target=target))


def test_tables_of_another_width(tmp_path: Path, target: str) -> None:
    spec = pair(tmp_path, target, embed_tokens__weight=random(64, 32))
    assert reason(spec) == "the drafter's rows are 32 wide and the target's 64"


def test_a_packed_head_of_the_target(tmp_path: Path) -> None:
    config, _, _ = read_peer("tiny_llama")
    rows = peer_rows("tiny_llama")
    embedding = {"model.embed_tokens.weight": rows["model.embed_tokens.weight"]}
    packed = {"lm_head.weight_packed": ("I32", (64, 8)), "lm_head.weight_scale": ("F16", (64, 1))}
    target = write_arrays(tmp_path / "target", config, packed, embedding)
    spec = pair(tmp_path, target)
    assert reason(spec) == "the target's lm_head.weight_packed is packed"
    assert role_of(spec, HEAD)[1] == "specforge trains the head from a fresh start"


def test_eight_bit_weights_with_scales_are_not_taken_for_values(tmp_path: Path) -> None:
    config, _, _ = read_peer("tiny_llama")
    embedding = {"model.embed_tokens.weight": peer_rows("tiny_llama")["model.embed_tokens.weight"]}
    scaled = {"lm_head.weight": ("F8_E4M3", (64, 64)), "lm_head.weight_scale_inv": ("F32", (1, 1))}
    spec = pair(tmp_path, write_arrays(tmp_path / "target", config, scaled, embedding))
    assert reason(spec) == "the target's lm_head.weight is quantised, with lm_head.weight_scale_inv"


@pytest.mark.parametrize("scale", ["scale", "weight_scale", "weight_global_scale"])
def test_codes_of_a_quantised_embedding_are_not_taken_for_values(tmp_path: Path, target: str, scale: str) -> None:
    """DeepSeek-V4 stores `scale`, compressed-tensors `weight_global_scale`."""
    config, tensors, _ = read_peer("specforge_eagle3")
    rest = {name: shape for name, shape in tensors.items() if name not in (EMBED, "t2d")}
    coded: Tensors = {EMBED: ("F8_E4M3", (64, 64)), f"embed_tokens.{scale}": ("F32", (64, 1))}
    stored = np.frombuffer(np.random.default_rng(0).bytes(64 * 64), np.uint8)
    rows = {EMBED: {0: (stored & 0x7D).tobytes()}}
    write_rows(tmp_path / "d", {**rest, **coded}, rows)
    (tmp_path / "d" / "config.json").write_text(json.dumps({**config, "vocab_size": 64}))
    spec = open_drafter(str(tmp_path / "d"), target=target)
    assert spec.evidence[0].reason == f"the drafter's {EMBED} is quantised, with embed_tokens.{scale}"
    assert "EMB-UNRELATED" not in codes(spec)


def test_a_target_without_weights(tmp_path: Path) -> None:
    folder = tmp_path / "target"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(read_peer("tiny_llama")[0]))
    found = codes(pair(tmp_path, str(folder)))["EVIDENCE-NONE"]
    assert found.what.endswith("target has no weight files")


def test_a_bundled_target_has_no_rows(tmp_path: Path) -> None:
    found = codes(pair(tmp_path, "moonshotai-kimi-k2-instruct"))["EVIDENCE-NONE"]
    assert (found.severity, "bundled record" in found.what) == ("warning", True)


def test_a_target_that_cannot_be_read_leaves_the_rules(hub: Hub, tmp_path: Path) -> None:
    """Its config is bundled; the stand-in has no such repository."""
    spec = pair(tmp_path, "moonshotai/Kimi-K2-Instruct")
    assert spec.target.num_layers == 61
    assert "moonshotai/Kimi-K2-Instruct" in codes(spec)["EVIDENCE-NONE"].what


def sharded_target(folder: Path) -> dict[str, bytes | Path]:
    """The target's embedding and head, each in a shard of its own: a repository's files."""
    names = {"model.embed_tokens.weight": "a.safetensors", "lm_head.weight": "b.safetensors"}
    for name, file in names.items():
        write_rows(folder, {name: ("F32", (64, 64))}, {name: {0: peer_rows("tiny_llama")[name].tobytes()}}, file=file)
    index, config = {"weight_map": names}, read_peer("tiny_llama")[0] | {"vocab_size": 64}
    documents = {"model.safetensors.index.json": index, "config.json": config}
    shards = {file: folder / file for file in names.values()}
    return {**shards, **{name: json.dumps(content).encode() for name, content in documents.items()}}


@pytest.mark.parametrize("path", ["/resolve/", "b.safetensors"], ids=["all of it", "the head alone"])
def test_a_dead_hub_is_no_answer(hub: Hub, tmp_path: Path, path: str) -> None:
    hub.add_repo("org/target", sharded_target(tmp_path / "target"))
    named_target("org/target")  # its config is in the cache
    hub.fail(503, times=99, retry_after=0, path=path)
    with pytest.raises(NetworkError, match="503"):
        pair(tmp_path, "org/target")


def test_a_head_that_is_a_web_page_leaves_the_embeddings_evidence(hub: Hub, tmp_path: Path) -> None:
    files = {**sharded_target(tmp_path / "target"), "b.safetensors": b"<!DOCTYPE html><title>Sign in</title>"}
    hub.add_repo("org/target", files)
    spec = pair(tmp_path, "org/target")
    assert classes(spec) == {EMBED: "bitwise_equal", HEAD: "not_comparable"}
    found = codes(spec)["EVIDENCE-NONE"]
    assert (found.severity, found.key, "b.safetensors" in found.what) == ("warning", HEAD, True)


# --- where the target's tables lie


@pytest.mark.parametrize(
    "name",
    ["model.language_model.embed_tokens.weight", "language_model.model.embed_tokens.weight", "transformer.wte.weight",
     "tok_embeddings.weight"],
)  # fmt: skip
def test_the_embedding_under_other_names(tmp_path: Path, name: str) -> None:
    rows = peer_rows("tiny_llama")
    arrays = {name: rows["model.embed_tokens.weight"], "language_model.lm_head.weight": rows["lm_head.weight"]}
    spec = pair(tmp_path, write_arrays(tmp_path / "target", read_peer("tiny_llama")[0], {}, arrays))
    assert {one.target_tensor: one.kind for one in spec.evidence} == {
        name: "bitwise_equal",
        "language_model.lm_head.weight": "unrelated",
    }


@pytest.mark.parametrize("tie", [{"tie_word_embeddings": True}, {"text_config": {"tie_word_embeddings": True}}, {}])
def test_a_tied_head_is_the_embedding(tmp_path: Path, tie: dict[str, object]) -> None:
    config = {k: v for k, v in read_peer("tiny_llama")[0].items() if k != "tie_word_embeddings"} | tie
    rows, drafter = peer_rows("tiny_llama")["model.embed_tokens.weight"], peer_rows("specforge_eagle3")
    target = write_arrays(tmp_path / "target", config, {}, {"model.embed_tokens.weight": rows})
    spec = pair(tmp_path, target, lm_head__weight=rows[np.arange(23) + drafter["d2t"]])
    head = spec.evidence[1]
    assert (head.target_tensor, head.kind) == ("model.embed_tokens.weight", "bitwise_equal")


def test_an_untied_target_without_a_head_has_none(tmp_path: Path) -> None:
    rows = peer_rows("tiny_llama")["model.embed_tokens.weight"]
    config = read_peer("tiny_llama")[0]
    assert config["tie_word_embeddings"] is False
    spec = pair(tmp_path, write_arrays(tmp_path / "target", config, {}, {"model.embed_tokens.weight": rows}))
    assert list(classes(spec)) == [EMBED]


def test_a_vocabulary_padded_on_one_side(tmp_path: Path, target: str) -> None:
    rows = peer_rows("tiny_llama")["model.embed_tokens.weight"]
    padded = np.concatenate([rows, np.zeros((8, 64), np.float32)])
    spec = pair(tmp_path, target, embed_tokens__weight=padded)
    assert (spec.evidence[0].kind, spec.evidence[0].rows_sampled) == ("bitwise_equal", 64)


def test_a_tensor_deep_in_a_huge_index_is_given_up_before_the_limit_is_passed(tmp_path: Path) -> None:
    """Its shard is neither first nor last and stands at neither end of the index, and all of that would be too much."""
    write_rows(tmp_path, {"lm_head.weight": ("F32", (4, 4))}, {}, file="b.safetensors")
    for file in ("a.safetensors", "c.safetensors"):
        write_rows(tmp_path, {"x": ("F32", (1,))}, {}, file=file)
    names = [f"model.layers.{i}.mlp.experts.0.w" for i in range(60_000)]
    weight_map = dict.fromkeys([*names[:30_000], "lm_head.weight", *names[30_000:]], "a.safetensors")
    weight_map["lm_head.weight"] = "b.safetensors"
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    source = CountedSource(open_source(str(tmp_path)), limit=3_000_000)
    with pytest.raises(CheckpointError, match="would take over 3000000 bytes"):
        TargetWeights(source).find(["lm_head.weight"])
    assert 2 * 1_048_576 < source.spent <= 3_000_000
    roomy = TargetWeights(CountedSource(open_source(str(tmp_path)), limit=10_000_000)).find(["lm_head.weight"])
    assert roomy is not None
    assert roomy.tensor.file == "b.safetensors"


# --- the sample


def test_a_small_table_is_taken_whole() -> None:
    assert choose_runs(np.arange(512), row_bytes=4, target_row_bytes=4, budget=10**6) == (Run(0, 512, 0, 512),)


@pytest.mark.parametrize(("rows", "row_bytes", "budget"), [(163_840, 14_336, 3_500_000), (600, 4, 10**6), (20, 10, 70)])
def test_runs_are_spread_from_the_first_row_to_the_last(rows: int, row_bytes: int, budget: int) -> None:
    runs = choose_runs(np.arange(rows), row_bytes=row_bytes, target_row_bytes=row_bytes, budget=budget)
    taken = [row for run in runs for row in range(run.start, run.stop)]
    assert (taken[0], taken[-1]) == (0, rows - 1)
    assert len(set(taken)) == len(taken) <= MOST_ROWS
    assert 2 * row_bytes * len(taken) <= budget
    assert max(b.start - a.start for a, b in pairwise(runs)) < 2 * rows / len(runs)


def test_of_scattered_rows_those_that_lie_together_are_taken() -> None:
    """Rows 40 to 47 of the map are neighbours in the target; everywhere else it takes every tenth row."""
    targets = np.arange(1000) * 10
    targets[40:48] = 400 + np.arange(8)
    first, second, *_ = choose_runs(targets, row_bytes=100, target_row_bytes=100, budget=16 * (2 + 11) * 100)
    assert 40 <= first.start < first.stop <= 48
    assert first.high - first.low == first.stop - first.start == 2
    assert second.high - second.low == 11


def test_a_scattered_map_costs_no_more_than_its_budget() -> None:
    targets = np.sort(np.random.default_rng(0).choice(163_840, 32_000, replace=False))
    runs = choose_runs(targets, row_bytes=14_336, target_row_bytes=14_336, budget=3_500_000)
    assert sum((run.stop - run.start) + (run.high - run.low) for run in runs) * 14_336 <= 3_500_000
    assert sum(run.stop - run.start for run in runs) >= 80


def test_no_row_fits() -> None:
    assert choose_runs(np.arange(10), row_bytes=100, target_row_bytes=100, budget=199) == ()


def test_places_in_the_sample_become_rows_of_the_table() -> None:
    runs = (Run(0, 3, 0, 3), Run(10, 13, 10, 13))
    assert row_numbers(runs, (1, 2, 3, 5)) == ((1, 2), (10, 10), (12, 12))


# --- a pair of real size on the Hub

KIMI_TARGET = {"architectures": ["DeepseekV3ForCausalLM"], "hidden_size": 7168, "model_type": "kimi_k2",
               "num_hidden_layers": 61, "tie_word_embeddings": False, "vocab_size": 163840}  # fmt: skip
WIDTH, VOCAB, DRAFT = 7168, 163_840, 32_000


class Kimi:
    """Drafter and target of real size on the stand-in: holes at first, and then what was asked for is filled.

    So the test need not know which rows a reader looks at, and no table of gigabytes is written.
    """

    def __init__(self, hub: Hub, folder: Path, *, filler: int, embedding_seed: int = 0, card: bytes = b"") -> None:
        self.hub, self.folder = hub, folder
        self.targets = np.sort(np.random.default_rng(1).choice(VOCAB, DRAFT, replace=False)).astype(np.int64)
        self.seeds = {"drafter": embedding_seed, "target": 0}
        d2t = {"d2t": {0: (self.targets - np.arange(DRAFT)).tobytes()}}
        weights = write_rows(folder / "drafter", {**kimi_tensors(), **EMBEDDING}, d2t)
        files = {"config.json": json.dumps(KIMI_CONFIG).encode(), "model.safetensors": weights}
        hub.add_repo("org/drafter", files={**files, "README.md": card})
        hub.add_repo("org/target", files=self._target_files(filler))

    def _target_files(self, filler: int) -> dict[str, bytes | Path]:
        """62 shards: the embedding in the first, the head in the last, `filler` tensors in each as experts are."""
        files: dict[str, bytes | Path] = {"config.json": json.dumps(KIMI_TARGET).encode()}
        ends: dict[int, Tensors] = {
            1: {"model.embed_tokens.weight": ("BF16", (VOCAB, WIDTH))},
            62: {"lm_head.weight": ("BF16", (VOCAB, WIDTH))},
        }
        weight_map = {}
        for n in range(1, 63):
            file = f"model-{n:05}-of-00062.safetensors"
            experts: Tensors = {f"model.layers.{n}.mlp.experts.{i}.w": ("I32", (1,)) for i in range(filler)}
            tensors = {**ends.get(n, {}), **experts}
            files[file] = write_rows(self.folder / "target", tensors, {}, file=file)
            weight_map |= dict.fromkeys(tensors, file)
        files["model.safetensors.index.json"] = json.dumps(
            {"metadata": {}, "weight_map": weight_map}, indent=2
        ).encode()
        return files

    def open(self) -> DrafterSpec:
        """The spec of the second run; the log is that of the second run too."""
        first = open_drafter("org/drafter", target="org/target")
        assert {one.reason for one in first.evidence} == {"all sampled rows are zero on both sides"}
        for request in self.hub.requests:
            repo, file = request.path.split("/")[2], request.path.rpartition("/")[2]
            if request.range and file.endswith(".safetensors"):
                start, last = map(int, request.range.removeprefix("bytes=").split("-"))
                self._fill(repo, self.folder / repo / file, start, last + 1)
        self.hub.requests.clear()
        return open_drafter("org/drafter", target="org/target")

    def _fill(self, repo: str, path: Path, start: int, stop: int) -> None:
        header = read_header(open_source(str(path.parent)), path.name)
        for entry in header.entries:
            if entry.name.endswith(("embed_tokens.weight", HEAD)) and entry.start <= start < entry.start + entry.nbytes:
                rows = range((start - entry.start) // (2 * WIDTH), (stop - entry.start) // (2 * WIDTH))
                with path.open("r+b") as out:
                    out.seek(start)
                    out.write(b"".join(self._row(repo, entry.name, row) for row in rows))

    def _row(self, repo: str, name: str, row: int) -> bytes:
        is_head = name == HEAD
        token = int(self.targets[row]) if is_head and repo == "drafter" else row
        seed = 7 if is_head else self.seeds[repo]
        return bf16(np.random.default_rng((seed, token)).normal(0, 0.02, WIDTH)).tobytes()


@pytest.mark.parametrize("filler", [4, 2200], ids=["small index", "139,000 tensors"])
def test_a_pair_of_real_size_costs_less_than_8_mb(hub: Hub, tmp_path: Path, filler: int) -> None:
    spec = Kimi(hub, tmp_path, filler=filler).open()
    assert classes(spec) == {EMBED: "bitwise_equal", HEAD: "bitwise_equal"}
    assert 4_000_000 < hub.sent <= 8_000_000
    assert sum(one.bytes_read for one in spec.evidence) <= 7_500_000
    assert all(one.rows_sampled >= 80 and one.closeness and not one.closeness.zero_rows for one in spec.evidence)
    asked = {r.path.rpartition("/")[2] for r in hub.requests if r.path.startswith("/org/target") and r.range}
    assert asked - {"model.safetensors.index.json"} == {
        "model-00001-of-00062.safetensors",
        "model-00062-of-00062.safetensors",
    }
    assert len(hub.requests) <= 2 * 2 * 16 + 12
    head, embedding = 229_376_000, 1_174_405_120
    assert spec.parameters.frozen == head + embedding
    assert spec.parameters.trainable == 961_572_864
    assert "HEAD-EQUAL" in codes(spec)


def test_lint_of_a_pair_of_real_size_has_a_price(hub: Hub, tmp_path: Path) -> None:
    """At most 8 MB for the rows of both, and 8 MB for the drafter's own values."""
    Kimi(hub, tmp_path, filler=4).open()
    hub.requests.clear()
    found = lint("org/drafter", target="org/target")
    assert found.level == "target_rows"
    assert found.spec.values is not None
    own = found.spec.values.bytes_read
    assert 4_000_000 < own <= 8_000_000
    assert 0 < hub.sent - own <= 8_000_000
    assert len(hub.requests) <= 2 * 2 * 16 + 12 + MOST_READS


def test_the_drafters_own_files_count_towards_the_8_mb(hub: Hub, tmp_path: Path) -> None:
    """A card of 900 kB, nothing in the cache, and each of two drafters has 8 MB of its own."""
    kimi = Kimi(hub, tmp_path, filler=4, card=b"# A drafter\n" + b"word " * 180_000)
    sampled = [one.rows_sampled for one in kimi.open().evidence]
    for repeat in range(2):
        for cache in ("hub", "assets") if repeat == 0 else ():
            shutil.rmtree(hub.home / cache, ignore_errors=True)
        hub.requests.clear()
        spec = open_drafter("org/drafter", target="org/target")
        assert 3_000_000 < hub.sent <= 8_000_000
        assert [one.rows_sampled for one in spec.evidence] == sampled


def test_a_random_embedding_of_real_size(hub: Hub, tmp_path: Path) -> None:
    """lightseekorg/TorchSpec#38: [163840, 7168], initialised and never loaded."""
    spec = Kimi(hub, tmp_path, filler=1, embedding_seed=99).open()
    assert classes(spec) == {EMBED: "unrelated", HEAD: "bitwise_equal"}
    assert codes(spec)["EMB-UNRELATED"].severity == "error"
    assert hub.sent <= 8_000_000


# --- where it is shown


def test_evidence_stands_in_json(tmp_path: Path, target: str) -> None:
    refs = [cut_peer(tmp_path / name, name) for name in ("specforge_eagle3", "speculators_eagle3")]
    told = drafter_audit.compare(refs, target=target).to_dict()["drafters"]
    assert [[one["class"] for one in drafter["evidence"]] for drafter in told] == [
        ["bitwise_equal", "unrelated"],
        ["bitwise_equal", "bitwise_equal"],
    ]
    counted = count_params([open_drafter(refs[0], target=target)]).to_dict()["drafters"][0]
    assert counted["evidence"] == told[0]["evidence"]
    assert counted["evidence"][0] | {"max_abs": None, "cosine": None} == {
        "tensor": EMBED, "target_tensor": "model.embed_tokens.weight", "class": "bitwise_equal", "reason": None,
        "norm_ratio": 1.0, "max_abs": None, "cosine": None, "scale": None, "rounded_to": None, "spread": None,
        "rows_sampled": 64, "zero_rows": 1, "non_finite": 0, "differing_rows": 0, "differing_ranges": [],
        "bytes_read": counted["evidence"][0]["bytes_read"], "rule_role": "frozen",
        "rule_reason": "specforge freezes the embedding, a copy of the target's",
    }  # fmt: skip


def test_a_lone_weight_file_serves_as_target(tmp_path: Path, target: str) -> None:
    ref = write_checkpoint(tmp_path / "kimi", KIMI_CONFIG, kimi_tensors())
    spec = open_drafter(ref, target=target)
    assert reason(spec).startswith("the drafter's rows are 7168 wide")
