"""One fault is told once: exactly these errors and warnings, by their cause and where it lies, and no consequences."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drafter_audit.audit.consequences import without_consequences
from drafter_audit.audit.finding import Finding
from drafter_audit.audit.lint import lint
from tests.checkpoints import read_peer
from tests.whole import table, values, write_whole, write_whole_peer

WIDTH, VOCABULARY, DRAFT = 64, 512, 128
SPECFORGE = values(read_peer("specforge_eagle3")[1])
D2T, T2D, HEAD, EMBED = (SPECFORGE[name] for name in ("d2t", "t2d", "lm_head.weight", "embed_tokens.weight"))
IDS = D2T + np.arange(DRAFT)
IRREGULAR = np.sort(np.random.default_rng(0).permutation(VOCABULARY)[:DRAFT]).astype(np.int64)


def findings(
    folder: Path, config: dict[str, Any], arrays: dict[str, Any], peer: str = "specforge_eagle3"
) -> list[Finding]:
    """Of a drafter beside its target, whose rows are compared: its embedding is the target's."""
    theirs = {"model.embed_tokens.weight": EMBED, "lm_head.weight": table((VOCABULARY, WIDTH), seed=99)}
    target = write_whole(folder / "target", read_peer("tiny_llama")[0], theirs)
    nested = config.pop("eagle_config", None) or ids(1, 3, 4)
    ref = write_whole_peer(folder / "drafter", "specforge_eagle3", {**config, "eagle_config": nested}, **arrays)
    return [one for one in lint(ref, target=target).findings if one.severity != "info"]


def ids(*layers: int) -> dict[str, Any]:
    return {"eagle_aux_hidden_state_layer_ids": list(layers)}


def entry(array: np.ndarray, place: int, value: float) -> np.ndarray:
    changed = array.copy()
    changed.flat[place] = value
    return changed


def told(found: list[Finding]) -> list[tuple[str, str, str | None]]:
    return [(one.code, one.file, one.key) for one in found]


WEIGHTS, CONFIG = "model.safetensors", "config.json"
NORMS = {f"fc_norm__{slot}__weight": table((WIDTH,), seed=slot) for slot in range(3)}
NARROW = {f"midlayer__self_attn__{name}_proj__weight": SPECFORGE[f"midlayer.self_attn.{name}_proj.weight"][:, :WIDTH]
          for name in "qkv"}  # fmt: skip
BIASES = {
    f"midlayer__self_attn__{name}_proj__bias": table((rows,)) for name, rows in (("q", 128), ("k", 64), ("v", 64))
}

# Keys of config.json, tensors with dots as `__`, and the one finding: code, file, key.
FAULTS: dict[str, tuple[dict[str, Any], dict[str, Any], tuple[str, str, str | None] | None]] = {
    "nothing": ({}, {}, None),
    "entries out of range": ({}, {"d2t": entry(D2T, 127, 5000)}, ("D2T-RANGE", WEIGHTS, "d2t")),
    "an entry below zero": ({}, {"d2t": entry(D2T, 3, -9)}, ("D2T-RANGE", WEIGHTS, "d2t")),
    "one target id twice": ({}, {"d2t": entry(D2T, 5, int(IDS[4]) - 5)}, ("D2T-DUP", WEIGHTS, "d2t")),
    "a map that is short": ({}, {"d2t": D2T[:100]}, ("D2T-LENGTH", WEIGHTS, "d2t")),
    "a map of two dimensions": ({}, {"d2t": D2T[None]}, ("D2T-LENGTH", WEIGHTS, "d2t")),
    "a mask of the draft vocabulary": ({}, {"t2d": T2D[:DRAFT]}, ("T2D-LENGTH", WEIGHTS, "t2d")),
    "a mask of other tokens": ({}, {"t2d": np.roll(T2D, 1)}, ("D2T-T2D", WEIGHTS, "t2d")),
    "target ids, and no mask": ({}, {"d2t": IRREGULAR, "t2d": None}, ("D2T-ABS", WEIGHTS, "d2t")),
    "fractions": ({}, {"d2t": D2T.astype(np.float32) + np.float32(0.5)}, ("D2T-DTYPE", WEIGHTS, "d2t")),
    "no map": ({}, {"d2t": None, "t2d": None}, ("D2T-MISSING", WEIGHTS, "d2t")),
    "a head of other rows": ({}, {"lm_head__weight": HEAD[:100]}, ("D2T-LENGTH", WEIGHTS, "d2t")),
    "an embedding of other rows": ({}, {"embed_tokens__weight": EMBED[:500]}, ("T2D-LENGTH", WEIGHTS, "t2d")),
    "an embedding that is narrow": (
        {}, {"embed_tokens__weight": EMBED[:, :32]}, ("TENSOR-SHAPE", WEIGHTS, "embed_tokens.weight"),
    ),
    "a head of zeros": ({}, {"lm_head__weight": HEAD * 0}, ("HEAD-ZERO", WEIGHTS, "lm_head.weight")),
    "an embedding of zeros": (
        {}, {"embed_tokens__weight": EMBED * 0}, ("EMB-ZERO", WEIGHTS, "embed_tokens.weight"),
    ),
    "a NaN": ({}, {"lm_head__weight": entry(HEAD, 7, np.nan)}, ("ROWS-NONFINITE", WEIGHTS, "lm_head.weight")),
    "the draft vocabulary's size": ({"vocab_size": DRAFT}, {}, ("VOCAB-CONFIG", CONFIG, "vocab_size")),
    "twice the heads": ({"num_attention_heads": 8}, {}, ("SHAPE-MISMATCH", CONFIG, "num_attention_heads")),
    "another state's width": ({"target_hidden_size": 256}, {}, ("FC-WIDTH", CONFIG, "target_hidden_size")),
    "fc of other rows": ({}, {"fc__weight": table((32, 192))}, ("TENSOR-SHAPE", WEIGHTS, "fc.weight")),
    "no fc": ({}, {"fc__weight": None}, ("TENSOR-MISSING", WEIGHTS, "fc.weight")),
    "attention of usual width": ({}, NARROW, ("TENSOR-SHAPE", WEIGHTS, "midlayer.self_attn.q_proj.weight")),
    "norms without their switch": ({}, NORMS, ("NORM-FLAG", CONFIG, "fc_norm")),
    "a switch without its norms": ({"fc_norm": True}, {}, ("NORM-FLAG", CONFIG, "fc_norm")),
    "two kinds of norm before fc": (
        {"fc_norm": True, "norm_before_fc": True},
        {**NORMS, "input_norm__weight": table((3 * WIDTH,))},
        ("NORM-FLAG", CONFIG, "fc_norm"),
    ),
    "one norm of three lost": (
        {"fc_norm": True}, {**NORMS, "fc_norm__2__weight": None}, ("TENSOR-MISSING", WEIGHTS, "fc_norm.2.weight"),
    ),
    "biases that no key declares": ({"attention_bias": None}, BIASES, ("BIAS-FLAG", CONFIG, "attention_bias")),
    "a bias of fc that no key declares": ({}, {"fc__bias": table((WIDTH,))}, ("BIAS-FLAG", CONFIG, "bias")),
    "a type of rope that nobody knows": (
        {"rope_parameters": {"rope_theta": 1e4, "rope_type": "zigzag"}},
        {},
        ("ROPE-UNSUPPORTED", CONFIG, "rope_scaling"),
    ),
    "no class": ({"architectures": None}, {}, ("ARCH-NAME", CONFIG, "architectures")),
    "quantised by its config alone": (
        {"quantization_config": {"quant_method": "fp8"}}, {}, ("QUANT-FLAG", CONFIG, "quantization_config"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_one_fault_is_told_once(tmp_path: Path, name: str) -> None:
    config, arrays, expected = FAULTS[name]
    assert told(findings(tmp_path, dict(config), arrays)) == ([] if expected is None else [expected])


TWO: dict[str, tuple[dict[str, Any], dict[str, Any], set[str]]] = {
    "a double id, and a mask of others": (
        {}, {"d2t": entry(D2T, 5, int(IDS[4]) - 5), "t2d": np.roll(T2D, 1)}, {"D2T-DUP", "D2T-T2D"},
    ),
    "an id too large, and too many of them": (
        {"eagle_config": ids(1, 3, 9, 10)}, {}, {"IDS-RANGE", "IDS-COUNT"},
    ),
    "a random head, and a norm without its switch": (
        {"initializer_range": 0.02},
        {"lm_head__weight": np.random.default_rng(0).normal(0, 0.02, HEAD.shape).astype(np.float32), **NORMS},
        {"HEAD-RANDOM", "NORM-FLAG"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TWO)
def test_two_faults_are_two(tmp_path: Path, name: str) -> None:
    config, arrays, codes = TWO[name]
    assert {one.code for one in findings(tmp_path, dict(config), arrays)} == codes


@pytest.mark.parametrize("wrapper", ["eagle_module.", "draft_model.", "model."])
def test_a_wrapper_in_the_names(tmp_path: Path, wrapper: str) -> None:
    arrays = {name.replace(".", "__"): None for name in SPECFORGE}
    arrays |= {(wrapper + name).replace(".", "__"): array for name, array in SPECFORGE.items()}
    assert "PREFIX" in {one.code for one in findings(tmp_path, {}, arrays)}


def test_the_wrong_target_is_no_silence(tmp_path: Path) -> None:
    """A drafter that keeps its target's embedding, beside a target of half its width: fc would read six states."""
    half = {**read_peer("tiny_llama")[0], "hidden_size": 32}
    theirs = {"model.embed_tokens.weight": table((VOCABULARY, 32)), "lm_head.weight": table((VOCABULARY, 32))}
    target = write_whole(tmp_path / "target", half, theirs)
    found = lint(write_whole_peer(tmp_path / "drafter", "specforge_eagle3"), target=target).findings
    assert "TABLE-WIDTH" in {one.code for one in found if one.severity == "error"}


def test_a_graver_consequence_stays() -> None:
    """A blank file is a warning; an embedding that is not the target's is an error, and must fail the run."""
    blank = Finding("VALUES-BLANK", "warning", "blank", "")
    foreign = Finding("EMB-UNRELATED", "error", "foreign", "", key="embed_tokens.weight")
    assert without_consequences([blank, foreign]) == (blank, foreign)
    assert without_consequences([blank, replace(foreign, severity="warning")]) == (blank,)


def test_rows_that_agree_prove_padding(tmp_path: Path) -> None:
    """vllm-project/vllm#55133: more rows than the target has tokens, the others the same, is no warning."""
    padded = np.concatenate([EMBED, np.zeros((64, WIDTH), np.float32)])
    sizes = {"vocab_size": VOCABULARY + 64, "draft_vocab_size": VOCABULARY + 64}
    arrays = {"embed_tokens__weight": padded, "lm_head__weight": table(padded.shape), "d2t": None, "t2d": None}
    assert told(findings(tmp_path, sizes, arrays)) == []


def test_a_drafter_that_stores_neither_table_has_nothing_to_prove(tmp_path: Path) -> None:
    arrays = {"lm_head__weight": None, "embed_tokens__weight": None, "d2t": None, "t2d": None}
    assert told(findings(tmp_path, {"draft_vocab_size": VOCABULARY}, arrays)) == []


@pytest.mark.parametrize("dtype", [np.uint8, np.int64, np.float32])
def test_a_mask_in_any_dtype(tmp_path: Path, dtype: type) -> None:
    assert told(findings(tmp_path, {}, {"t2d": T2D.astype(dtype), "d2t": D2T.astype(np.int32)})) == []
