"""Each knob turned: the network gives what a plain loop of numpy gives by the knob's definition, and other logits than
before, but where the definition says that nothing changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from drafter_audit import load_drafter, open_drafter
from drafter_audit.drafter.wiring import KNOBS, declared_wiring
from tests.knob_loop import knob_loop
from tests.random_drafters import HIDDEN, LLAMA, write_random, write_target
from tests.test_network import close, inputs, wired

STEPS = 4
LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64.0}
YARN = {"factor": 4.0, "original_max_position_embeddings": 64.0, "beta_fast": 8.0}


def scaling(kind: str, **settings: float) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted({"type": kind, **settings}.items()))


TURNED: dict[str, dict[str, Any]] = {
    "pre_fc_norm whole": {"pre_fc_norm": "whole"},
    "pre_fc_norm per_state": {"pre_fc_norm": "per_state"},
    "pre_fc_norm both": {"pre_fc_norm": "whole_then_per_state"},
    "residual": {"residual": "post_norm"},
    "feedback": {"feedback": "post_norm"},
    "hidden_norm none": {"hidden_norm": "none"},
    "hidden_norm twice": {"hidden_norm": "input_layernorm_then_hidden_norm"},
    "concat": {"concat": "hidden_first"},
    "token_shift 0": {"token_shift": 0},
    "token_shift 2": {"token_shift": 2},
    "rope_theta": {"rope_theta": 70000.0},
    "rope_scaling linear": {"rope_scaling": scaling("linear", factor=3.0)},
    "rope_scaling llama3": {"rope_scaling": scaling("llama3", **LLAMA3), "rope_theta": 10000.0},
    "rope_scaling yarn": {"rope_scaling": scaling("yarn", **YARN), "rope_theta": 10000.0},
    "rope_scaling partial": {"rope_scaling": scaling("default", partial_rotary_factor=0.5)},
    "rope_scaling partial linear": {"rope_scaling": scaling("linear", partial_rotary_factor=0.5, factor=3.0)},
    "embedding_scale": {"embedding_scale": 0.02},  # far from one: behind its norm it shows by eps alone
    "final_norm": {"final_norm": False},
    "all": {"pre_fc_norm": "whole_then_per_state", "residual": "post_norm", "feedback": "post_norm"}
    | {"hidden_norm": "input_layernorm_then_hidden_norm", "concat": "hidden_first", "final_norm": False},
}
SAME: dict[str, dict[str, Any]] = {
    "position_offset": {"position_offset": 9},
    "boundaries": {"boundaries": (0, 1, 7)},  # which states are passed is up to the caller
    "slot_order": {"slot_order": "listed"},
    "last_state": {"last_state": "post_norm"},
    "vocab_map": {"vocab_map": "absolute"},
}


def norms() -> dict[str, np.ndarray]:
    """The norms before fc, beside those that any drafter has."""
    draw = np.random.default_rng(7)
    sizes = {"input_norm": 3 * HIDDEN} | {f"fc_norm__{slot}": HIDDEN for slot in range(3)}
    return {
        f"{name}__weight": (1 + 0.3 * draw.standard_normal(size)).astype(np.float32) for name, size in sizes.items()
    }


@pytest.mark.parametrize("name", TURNED)
def test_a_turned_knob_computes_what_it_says(name: str, tmp_path: Path) -> None:
    ref, weights = write_random(tmp_path, **norms())
    ids, states = inputs()
    wiring = wired(ref, **TURNED[name])
    ours = load_drafter(ref, wiring=wiring, dtype="float64").unroll(ids, states, STEPS)
    theirs = knob_loop(weights, LLAMA, wiring, ids.tolist(), states.numpy().astype(np.float64), STEPS)
    assert close(ours, torch.from_numpy(theirs).float())
    before = load_drafter(ref, wiring=wired(ref), dtype="float64").unroll(ids, states, STEPS)
    assert not close(ours, before, 1e-3)


@pytest.mark.parametrize("name", SAME)
def test_a_knob_that_the_logits_do_not_depend_on(name: str, tmp_path: Path) -> None:
    ref, _ = write_random(tmp_path)
    ids, states = inputs()
    turned, plain = (load_drafter(ref, wiring=wired(ref, **knobs), dtype="float64") for knobs in (SAME[name], {}))
    assert close(turned.unroll(ids, states, STEPS), plain.unroll(ids, states, STEPS))


def test_the_residual_is_told_apart_only_where_there_is_a_norm(tmp_path: Path) -> None:
    ref, _ = write_random(tmp_path)
    both = ({"residual": "pre_norm", "hidden_norm": "none"}, {"residual": "post_norm", "hidden_norm": "none"})
    one, other = (load_drafter(ref, wiring=wired(ref, **knobs)).unroll(*inputs(), STEPS) for knobs in both)
    assert close(one, other, 0.0)


@pytest.mark.parametrize("head", ["own", "target_rows"])
@pytest.mark.parametrize("embedding", ["own", "target"])
def test_tables_are_whose_the_wiring_says(head: str, embedding: str, tmp_path: Path) -> None:
    target, theirs = write_target(tmp_path / "target")
    ref, weights = write_random(tmp_path / "drafter")
    kept = weights["d2t"] + np.arange(len(weights["d2t"]))
    tables = {
        "embed_tokens.weight": {"target": theirs["model.embed_tokens.weight"]}.get(embedding),
        "lm_head.weight": {"target_rows": theirs["lm_head.weight"][kept]}.get(head),
    }
    taken = weights | {name: table for name, table in tables.items() if table is not None}
    ids, states = inputs()
    wiring = wired(ref, head=head, embedding=embedding)
    expected = knob_loop(taken, LLAMA, wiring, ids.tolist(), states.numpy().astype(np.float64), 2)
    ours = load_drafter(ref, wiring=wiring, target=target, dtype="float64").unroll(ids, states, 2)
    assert close(ours, torch.from_numpy(expected).float())


def test_every_knob_is_turned_somewhere() -> None:
    turned = {knob for knobs in (*TURNED.values(), *SAME.values()) for knob in knobs}
    assert turned | {"embedding", "head"} == set(KNOBS)


@pytest.mark.parametrize("told", [{"partial_rotary_factor": 0.5}, {"rope_parameters": {"partial_rotary_factor": 0.5}}])
def test_a_share_of_plain_rope_is_declared(told: dict[str, Any], tmp_path: Path) -> None:
    ref, _ = write_random(tmp_path, LLAMA | told)
    declared = declared_wiring(open_drafter(ref))
    assert declared is not None
    assert declared.rope_scaling == scaling("default", partial_rotary_factor=0.5)
