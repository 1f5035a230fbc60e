"""The network by itself: against a plain loop, unrolled against step by step, and each knob that no peer exercises."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from drafter_audit import Drafter, load_drafter, open_drafter
from drafter_audit.drafter.wiring import Wiring, declared_wiring
from drafter_audit.errors import CannotRunError, InputsError
from tests.random_drafters import (
    EAGLE1,
    HIDDEN,
    LLAMA,
    MLA,
    VOCABULARY,
    draft_map,
    plain_loop,
    write_random,
    write_target,
)

TOKENS, STEPS = 11, 4
OWN = {"embedding": "own"}


def inputs(slots: int = 3, width: int = HIDDEN, tokens: int = TOKENS) -> tuple[torch.Tensor, torch.Tensor]:
    made = torch.Generator().manual_seed(3)
    ids = torch.randint(1, VOCABULARY, (tokens,), generator=made)
    return ids, torch.randn((slots, tokens, width), generator=made)


def wired(ref: str, **knobs: Any) -> Wiring:
    declared = declared_wiring(open_drafter(ref))
    assert declared is not None
    return replace(declared, **{**OWN, **knobs})


def loaded(ref: str, dtype: str = "float64", target: str | None = None, **knobs: Any) -> Drafter:
    return load_drafter(ref, wiring=wired(ref, **knobs), dtype=dtype, target=target)


def close(one: torch.Tensor, other: torch.Tensor, bound: float = 1e-5) -> bool:
    """Whether two are equal to within `bound`, of the largest where that is above one."""
    return one.shape == other.shape and float((one - other).abs().max()) <= bound * max(1.0, float(other.abs().max()))


def test_a_plain_loop_computes_the_same(tmp_path: Path) -> None:
    ref, weights = write_random(tmp_path)
    ids, states = inputs()
    theirs = plain_loop(weights, LLAMA, ids.tolist(), states.numpy().astype(np.float64), STEPS)
    assert close(loaded(ref).unroll(ids, states, STEPS), torch.from_numpy(theirs).float(), 1e-6)
    assert close(loaded(ref, "float32").unroll(ids, states, STEPS), torch.from_numpy(theirs).float())


def test_a_plain_loop_computes_the_same_of_an_eagle_1_drafter(tmp_path: Path) -> None:
    """Embedding and state are joined anew at each step; no norm before the first attention, none before the head."""
    target, theirs = write_target(tmp_path / "target")
    ref, weights = write_random(tmp_path / "drafter", EAGLE1, "eagle1", drop=("lm_head.weight",))
    ids, states = inputs(1)
    weights["lm_head.weight"] = theirs["lm_head.weight"]
    expected = plain_loop(weights, EAGLE1, ids.tolist(), states.numpy().astype(np.float64), STEPS, eagle1=True)
    drafter = loaded(ref, target=target)
    assert close(drafter.unroll(ids, states, STEPS), torch.from_numpy(expected).float(), 1e-6)
    assert [(one.name, one.tensor) for one in drafter.loaded.borrowed] == [("lm_head.weight", "lm_head.weight")]


SHAPES: dict[str, tuple[dict[str, Any], str, dict[str, Any]]] = {
    "llama": (LLAMA, "eagle3", {}),
    "two layers": (LLAMA | {"num_hidden_layers": 2}, "eagle3", {}),
    "one state": (LLAMA | {"num_aux_hidden_states": 1}, "eagle3", {}),
    "five states": (LLAMA | {"num_aux_hidden_states": 5}, "eagle3", {}),
    "wide target": (LLAMA | {"target_hidden_size": 48}, "eagle3", {}),
    "norms before and after": (
        LLAMA | {"norm_before_fc": True, "fc_norm": True},
        "eagle3",
        {"feedback": "post_norm", "residual": "post_norm"},
    ),
    "mla": (MLA, "eagle3_mla", {}),
    "mla, full rank": (MLA | {"q_lora_rank": None}, "eagle3_mla", {}),
    "mla, two layers": (MLA | {"num_hidden_layers": 2}, "eagle3_mla", {"feedback": "post_norm"}),
    "no shift": (LLAMA, "eagle3", {"token_shift": 0}),
    "eagle-1": (EAGLE1, "eagle1", {"head": "embedding"}),
    "eh_proj": (
        LLAMA | {"eagle_config": {"eh_proj_before_attn": True, "eh_proj_bias": True}},
        "eagle3",
        {},
    ),
}


@pytest.mark.parametrize("name", SHAPES)
def test_unrolled_and_step_by_step_agree(name: str, tmp_path: Path) -> None:
    """At every position, for every step whose tokens there are; what was drafted leaves no trace in the text."""
    config, kind, knobs = SHAPES[name]
    ref, _ = write_random(tmp_path, config, kind)
    drafter = loaded(ref, "float32", **knobs)
    ids, states = inputs(*drafter.states_shape)
    at_once, cache = drafter.unroll(ids, states, STEPS), drafter.start()
    for start, stop in ((0, 3), (3, 4), (4, 8), (8, TOKENS)):
        assert close(drafter.extend(cache, ids[start:stop], states[:, start:stop]), at_once[0, start:stop])
        for step in range(1, min(STEPS, TOKENS - stop + 1)):
            assert close(drafter.draft(cache, int(ids[stop - 1 + step])), at_once[step, stop - 1])
        assert (cache.length, cache.drafted) == (stop, max(0, min(STEPS - 1, TOKENS - stop)))


def test_long_texts_are_read_in_pieces_and_compute_the_same(tmp_path: Path) -> None:
    ref, _ = write_random(tmp_path, LLAMA | {"max_position_embeddings": 2048})
    drafter = loaded(ref, "float32")
    ids, states = inputs(tokens=700)
    whole = drafter.unroll(ids, states, 2)
    assert close(whole[:, :600], drafter.unroll(ids[:601], states[:, :601], 2)[:, :600])


def test_concat_swaps_the_columns_of_the_projections(tmp_path: Path) -> None:
    ref, weights = write_random(tmp_path / "a")
    names = [f"layers.0.self_attn.{name}_proj.weight" for name in "qkv"]
    swapped = {
        name.replace(".", "__"): np.concatenate([weights[name][:, HIDDEN:], weights[name][:, :HIDDEN]], axis=1)
        for name in names
    }
    other, _ = write_random(tmp_path / "b", **swapped)
    one, two = loaded(ref), loaded(other, concat="hidden_first")
    assert close(one.unroll(*inputs(), STEPS), two.unroll(*inputs(), STEPS))
    assert not close(one.unroll(*inputs(), STEPS), loaded(other).unroll(*inputs(), STEPS), 0.01)


def test_the_token_shift_moves_the_tokens_against_the_states(tmp_path: Path) -> None:
    ref, _ = write_random(tmp_path)
    (ids, states), plain = inputs(), loaded(ref)
    earlier, later = torch.cat((torch.tensor([0]), ids[:-1])), torch.cat((ids[1:], torch.tensor([0])))
    assert close(loaded(ref, token_shift=0).unroll(ids, states, 1), plain.unroll(earlier, states, 1))
    assert close(loaded(ref, token_shift=2).unroll(ids, states, STEPS), plain.unroll(later, states, STEPS))
    with pytest.raises(CannotRunError, match="step by step"):
        loaded(ref, token_shift=2).start()


def test_only_differences_of_positions_count(tmp_path: Path) -> None:
    ref, _ = write_random(tmp_path)
    (ids, states), plain = inputs(), loaded(ref)
    expected = plain.unroll(ids, states, STEPS)
    assert close(loaded(ref, position_offset=7).unroll(ids, states, STEPS), expected)
    assert close(plain.unroll(ids, states, STEPS, positions=torch.arange(TOKENS) + 5), expected)
    assert not close(plain.unroll(ids, states, STEPS, positions=torch.arange(TOKENS) * 2), expected, 0.01)


def test_the_embeddings_factor_is_on_its_rows(tmp_path: Path) -> None:
    ref, weights = write_random(tmp_path / "a")
    other, _ = write_random(tmp_path / "b", embed_tokens__weight=weights["embed_tokens.weight"] * 3)
    assert close(loaded(ref, embedding_scale=3.0).unroll(*inputs(), 2), loaded(other).unroll(*inputs(), 2))


def test_heads_come_from_where_the_wiring_says(tmp_path: Path) -> None:
    target, theirs = write_target(tmp_path / "target")
    kept = draft_map() + np.arange(len(draft_map()))
    ref, weights = write_random(tmp_path / "a")
    other, _ = write_random(tmp_path / "b", lm_head__weight=theirs["lm_head.weight"][kept])
    rows, whole = loaded(ref, target=target, head="target_rows"), loaded(ref, head="embedding", vocab_map="identity")
    assert close(rows.unroll(*inputs(), 2), loaded(other).unroll(*inputs(), 2))
    assert [(one.name, one.rows) for one in rows.loaded.borrowed] == [("lm_head.weight", len(kept))]
    assert ("lm_head.weight", "the wiring's head does without it") in rows.loaded.ignored
    assert torch.equal(whole.network.head.weight, torch.from_numpy(weights["embed_tokens.weight"]).double())


@pytest.mark.parametrize(("vocab_map", "added"), [("identity", None), ("offset", 1), ("absolute", 0)])
def test_draft_ids_become_target_ids(vocab_map: str, added: int | None, tmp_path: Path) -> None:
    ref, weights = write_random(tmp_path)
    ids = np.array([[0, 5], [9, 3]])
    expected = ids if added is None else weights["d2t"][ids] + added * ids
    assert loaded(ref, vocab_map=vocab_map).target_ids(torch.from_numpy(ids)).tolist() == expected.tolist()


@pytest.mark.parametrize("regular", [True, False])
def test_deeper_layers_take_their_norm_under_either_name(regular: bool, tmp_path: Path) -> None:
    """SGLang and TensorRT-LLM load hidden_norm where vLLM and ModelOpt load input_layernorm; where a deeper layer reads
    the embedding again, it has both."""
    config = LLAMA | {"num_hidden_layers": 2, "eagle_config": {"next_layer_regular": regular}}
    norm = np.full(HIDDEN, 1.5, np.float32)
    one, _ = write_random(tmp_path / "a", config, layers__1__input_layernorm__weight=norm)
    other, _ = write_random(
        tmp_path / "b",
        config,
        drop=("layers.1.input_layernorm.weight",) if regular else (),
        layers__1__hidden_norm__weight=norm,
    )
    if regular:
        assert close(loaded(one).unroll(*inputs(), 2), loaded(other).unroll(*inputs(), 2))
    else:
        assert loaded(other).network.layers[1].embedding_norm is not None


def test_inputs_that_do_not_fit_are_told_so(tmp_path: Path) -> None:
    ref, _ = write_random(tmp_path)
    drafter, (ids, states) = loaded(ref), inputs()
    with pytest.raises(InputsError, match=r"pass real numbers \[3, 11, 32\]: 3 slots"):
        drafter.unroll(ids, states[:2], 1)
    with pytest.raises(InputsError, match="from 0 to 59"):
        drafter.unroll(ids + VOCABULARY, states, 1)
    with pytest.raises(InputsError, match="0 steps"):
        drafter.unroll(ids, states, 0)
    with pytest.raises(InputsError, match="extend"):
        drafter.draft(drafter.start(), 3)


def test_a_sliding_window_is_run_up_to_its_length(tmp_path: Path) -> None:
    ref, _ = write_random(tmp_path, LLAMA | {"sliding_window": 12})
    drafter, (ids, states) = loaded(ref), inputs()
    drafter.unroll(ids, states, 2)
    with pytest.raises(CannotRunError, match="13 positions under a sliding window of 12"):
        drafter.unroll(ids, states, 3)


@pytest.mark.parametrize("kind", ["dynamic", "longrope"])
def test_ropes_that_change_with_the_texts_length_are_refused(kind: str, tmp_path: Path) -> None:
    ref, _ = write_random(tmp_path, LLAMA | {"rope_scaling": {"type": kind, "factor": 2.0}})
    with pytest.raises(CannotRunError, match=f"rope of type '{kind}'"):
        loaded(ref)


def test_half_precision_computes_nearly_the_same(tmp_path: Path) -> None:
    ref, _ = write_random(tmp_path)
    ids, states = inputs()
    assert close(loaded(ref, "bfloat16").unroll(ids, states, STEPS), loaded(ref).unroll(ids, states, STEPS), 0.3)
