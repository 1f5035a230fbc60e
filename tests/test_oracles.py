"""The oracles are whole, and each declares the kind and the wiring that its name promises.

What they are and who computed them: tests/oracles/README.md.
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file

from drafter_audit import open_drafter
from drafter_audit.drafter.wiring import KNOBS, Wiring, declared_wiring

ORACLES = Path(__file__).parent / "oracles"
PLAIN = Wiring(boundaries=None)
STEPS, TOKENS, VOCABULARY = 5, 12, 80

OFFSET = {"vocab_map": "offset"}
ABOVE = {**OFFSET, "boundaries": (2, 4, 5)}  # speculators writes boundaries, ModelOpt the layers below them
WHOLE = {"boundaries": (2, 4, 5)}
POST, FED_BACK = {"residual": "post_norm"}, {"feedback": "post_norm"}
PER_STATE, AT_ONCE = {"pre_fc_norm": "per_state"}, {"pre_fc_norm": "whole"}


def scaled(kind, theta=10000.0, **settings):
    """Rope of that type; settings that are its default are left out, as a wiring does."""
    told = {"rope_scaling": tuple(sorted({**settings, "type": kind}.items()))}
    return told if theta == 10000.0 else {**told, "rope_theta": theta}


LLAMA3 = scaled("llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64.0)
YARN = {"original_max_position_embeddings": 64.0}
KIMI = scaled("yarn", 50000.0, factor=8.0, beta_fast=1.0, mscale=1.0, mscale_all_dim=1.0, **YARN)

# What each drafter declares beyond plain EAGLE-3 over the whole vocabulary.
SPECULATORS = {
    "plain": ABOVE,
    "norm_before_residual": ABOVE | POST,
    "norm_before_fc": ABOVE | AT_ONCE,
    "fc_norm": ABOVE | PER_STATE,
    "norm_output": ABOVE | FED_BACK,
    "all_norms_whole": ABOVE | POST | AT_ONCE | FED_BACK,
    "all_norms_per_state": ABOVE | POST | PER_STATE | FED_BACK,
    "four_states": OFFSET | PER_STATE | {"boundaries": (0, 2, 4, 5)},
    "two_layers": ABOVE | POST,
    "qwen3": ABOVE,
    "qwen3_two_layers": ABOVE | FED_BACK,
    "biases": ABOVE,
    "llama3_rope": ABOVE | LLAMA3,
    "yarn_rope": ABOVE | scaled("yarn", 50000.0, factor=4.0, **YARN),
    "full_vocabulary": WHOLE,
}
SPECFORGE = {
    "plain": OFFSET,
    "norm_output_true": OFFSET | FED_BACK,
    "norm_output_false": OFFSET,
    "fc_norm": OFFSET | PER_STATE,
    "llama3_rope": OFFSET | LLAMA3,
    "yarn_rope": OFFSET | scaled("yarn", factor=4.0, mscale=1.0, mscale_all_dim=0.0, **YARN),
    "yarn_rope_mscale": OFFSET | scaled("yarn", 50000.0, factor=4.0, mscale=0.7, mscale_all_dim=0.3, **YARN),
    "linear_rope": OFFSET | scaled("linear", factor=3.0),
    "wide_target": OFFSET | PER_STATE | {"embedding": "own"},
    "full_vocabulary": {},
}
MODELOPT = {
    "plain": ABOVE,
    "uniform_input_norm": ABOVE,
    "four_states": OFFSET | {"boundaries": (2, 4, 5, 8)},
    "two_layers": ABOVE,
    "biases": ABOVE,
    "own_full_head": WHOLE,
    "target_head": WHOLE,
    "exported_yarn": ABOVE | scaled("yarn", factor=32.0, original_max_position_embeddings=2048.0),
    "no_states": OFFSET | {"hidden_norm": None, "last_state": "post_norm"},
    "mla": ABOVE | KIMI,
    "mla_other_yarn": ABOVE | scaled("yarn", 50000.0, factor=4.0, mscale=0.7, mscale_all_dim=0.3, **YARN),
    "mla_no_q_lora": ABOVE | KIMI,
    "mla_two_layers": ABOVE | KIMI,
}
PROMISED = {
    f"{peer}_{name}": told
    for peer, cases in (("speculators", SPECULATORS), ("specforge", SPECFORGE), ("modelopt", MODELOPT))
    for name, told in cases.items()
}
CHAINS = ("eagle_chain", "vllm_eagle1")  # whole rounds: EAGLE's own, on a trained drafter, and vLLM's


@cache
def drafter(name):
    return open_drafter(str(ORACLES / name))


@cache
def tensors(name, file="oracle"):
    return load_file(ORACLES / name / f"{file}.safetensors")


def told(name):
    with safe_open(ORACLES / name / "oracle.safetensors", "np") as file:
        return file.metadata()


def kind_of(name):
    return "eagle3_noaux" if name.endswith("no_states") else "eagle3_mla" if "_mla" in name else "eagle3"


def test_each_folder_is_known_whole_and_small():
    folders = {folder.name for folder in ORACLES.iterdir() if folder.is_dir()} - {"scripts", "__pycache__"}
    assert folders == {*PROMISED, *CHAINS}
    sizes = {}
    for name in folders:
        files = {file.name: file.stat().st_size for file in (ORACLES / name).iterdir()}
        assert set(files) == {"config.json", "model.safetensors", "oracle.safetensors"}, name
        sizes[name] = sum(files.values())
    assert max(size for name, size in sizes.items() if name != "eagle_chain") < 300_000
    assert sum(sizes.values()) < 6_000_000


@pytest.mark.parametrize("name", PROMISED)
def test_shapes_fit_together(name):
    oracle, stored = tensors(name), tensors(name, "model")
    slots, tokens, width = oracle["states"].shape
    rows, hidden = stored["lm_head.weight"].shape
    assert (tokens, oracle["input_ids"].shape) == (TOKENS, (TOKENS,))
    assert oracle["logits"].shape == (STEPS, TOKENS, rows)
    assert all(np.isfinite(oracle[part]).all() for part in ("states", "logits"))
    if "fc.weight" in stored:
        assert stored["fc.weight"].shape == (hidden, slots * width)
    embedding = oracle.get("target_embedding", stored.get("embed_tokens.weight"))
    assert embedding is not None
    assert len(embedding) == VOCABULARY > oracle["input_ids"].max()
    assert oracle.get("target_head", embedding).shape == embedding.shape
    assert list(oracle.get("valid", [])) in ([], [TOKENS - step for step in range(STEPS)])


@pytest.mark.parametrize("name", PROMISED)
def test_no_norm_and_no_map_is_trivial(name):
    """Ones or zeros would let a norm be left out, or a draft id pass for a target id, unseen."""
    stored = tensors(name, "model")
    norms = {key: weight for key, weight in stored.items() if "norm" in key}
    spreads = {key: float(weight.std()) for key, weight in norms.items()}
    flat = {key for key, spread in spreads.items() if spread < 0.1}
    assert flat == ({"layers.0.input_layernorm.weight"} if name.endswith("uniform_input_norm") else set())
    if PROMISED[name].get("vocab_map") == "offset":
        targets = np.arange(len(stored["d2t"])) + stored["d2t"]
        assert (np.diff(targets) > 0).all()
        assert targets[-1] < VOCABULARY
        assert len(set(stored["d2t"].tolist())) > 10
        assert "t2d" not in stored or np.flatnonzero(stored["t2d"]).tolist() == targets.tolist()


@pytest.mark.parametrize("name", PROMISED)
def test_the_drafter_declares_what_its_name_promises(name):
    spec, wiring = drafter(name), declared_wiring(drafter(name))
    assert spec.kind.name == kind_of(name)
    assert spec.dialect.name == name.partition("_")[0]
    apart = {knob: getattr(wiring, knob) for knob in KNOBS if getattr(wiring, knob) != getattr(PLAIN, knob)}
    assert apart == PROMISED[name]
    layers = 2 if name.endswith("two_layers") else 1
    assert spec.architecture.num_layers == layers


@pytest.mark.parametrize("name", [*PROMISED, *CHAINS])
def test_metadata_says_who_computed_it_and_where_config_and_numbers_part(name):
    metadata = told(name)
    assert {"peer", "version", "computed_by", "flags", "differs", "positions", "end", "shift"} == set(metadata)
    wiring = declared_wiring(drafter(name))
    for knob, value in json.loads(metadata["differs"]).items():
        assert knob in KNOBS
        assert getattr(wiring, knob) != value


@pytest.mark.parametrize("name", CHAINS)
def test_chains_lie_in_their_sequences(name):
    """Of each chain, so many drafts as the peer accepted are what the target then wrote."""
    oracle, slots = tensors(name), {"eagle_chain": (3, 128), "vllm_eagle1": (1, 64)}[name]
    for number in range(2):
        sequence, lengths = oracle[f"sequence{number}"], oracle[f"lengths{number}"].tolist()
        drafts, accepted = oracle[f"drafts{number}"], oracle[f"accepted{number}"].tolist()
        assert oracle[f"states{number}"].shape == (slots[0], lengths[-1], slots[1])
        assert len(sequence) == lengths[-1] + 1
        assert np.diff(lengths).tolist() == [count + 1 for count in accepted[:-1]]
        for length, chain, count in zip(lengths[:-1], drafts, accepted, strict=False):
            assert sequence[length + 1 :][:count].tolist() == chain[:count].tolist()


def test_the_readme_has_a_row_for_each():
    text = (ORACLES / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `((?:speculators|specforge|modelopt|eagle|vllm)_\w+)` \|", text, re.MULTILINE)
    assert sorted(rows) == sorted([*PROMISED, *CHAINS])
