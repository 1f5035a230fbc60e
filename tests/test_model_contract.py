"""What callers may hand a drafter, and what they are told where they may not: never a failure of torch's."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from drafter_audit import Drafter, load_drafter
from drafter_audit.errors import CannotRunError, CheckpointError, InputsError, UsageError
from tests.random_drafters import DRAFT_VOCABULARY, EAGLE1, HIDDEN, LLAMA, MLA, VOCABULARY, write_random
from tests.test_network import close, inputs, loaded, wired

IDS, STATES = inputs()
TOKENS = len(IDS)


@pytest.fixture(scope="module")
def drafter(tmp_path_factory: pytest.TempPathFactory) -> Drafter:
    return loaded(write_random(tmp_path_factory.mktemp("drafter"))[0], "float32")


SAME: dict[str, Callable[[Drafter], torch.Tensor]] = {
    "int32": lambda d: d.unroll(IDS.int(), STATES, 3),
    "uint8": lambda d: d.unroll(IDS.to(torch.uint8), STATES, 3),
    "list": lambda d: d.unroll(IDS.tolist(), STATES, 3),
    "numpy": lambda d: d.unroll(IDS.numpy(), STATES.numpy(), 3),  # type: ignore[arg-type]
    "nested lists": lambda d: d.unroll(IDS, STATES.tolist(), 3),  # type: ignore[arg-type]
    "float64": lambda d: d.unroll(IDS, STATES.double(), 3),
    "not contiguous": lambda d: d.unroll(IDS, STATES.transpose(0, 2).contiguous().transpose(0, 2), 3),
    "requires grad": lambda d: d.unroll(IDS, STATES.clone().requires_grad_(), 3),
    "positions": lambda d: d.unroll(IDS, STATES, 3, positions=torch.arange(TOKENS)),
    "positions beyond the vocabulary": lambda d: d.unroll(IDS, STATES, 3, positions=torch.arange(TOKENS) + 1000),
    "positions below zero": lambda d: d.unroll(IDS, STATES, 3, positions=range(-TOKENS, 0)),
    "more steps than positions": lambda d: d.unroll(IDS, STATES, TOKENS + 9)[:3],
    "numpy's count of steps": lambda d: d.unroll(IDS, STATES, np.int64(3)),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("name", SAME)
def test_any_spelling_of_the_same_inputs_gives_the_same(name: str, drafter: Drafter) -> None:
    found = SAME[name](drafter)
    assert (found.dtype, found.requires_grad) == (torch.float32, False)
    assert close(found, drafter.unroll(IDS, STATES, 3), 1e-4)


def test_bfloat16_states_are_taken_as_they_are(drafter: Drafter) -> None:
    half = STATES.bfloat16()
    assert close(drafter.unroll(IDS, half, 2), drafter.unroll(IDS, half.float(), 2), 0.0)


@pytest.mark.parametrize("tokens", [0, 1])
@pytest.mark.parametrize("ids", [torch.Tensor.tolist, torch.Tensor.int])
def test_short_texts(tokens: int, ids: Callable[[torch.Tensor], Any], drafter: Drafter) -> None:
    found = drafter.unroll(ids(IDS[:tokens]), STATES[:, :tokens], 4)
    assert (found.shape, found.dtype) == ((4, tokens, DRAFT_VOCABULARY), torch.float32)


def test_past_the_end_the_token_is_zero(drafter: Drafter) -> None:
    padded = torch.cat((IDS, torch.zeros(4, dtype=torch.int64)))
    more = torch.cat((STATES, torch.randn(3, 4, HIDDEN)), dim=1)
    assert close(drafter.unroll(IDS, STATES, 5), drafter.unroll(padded, more, 5)[:, :TOKENS], 1e-4)


def with_one(value: float) -> torch.Tensor:
    states = STATES.clone()
    states[1, 5, 3] = value
    return states


WRONG: dict[str, tuple[Callable[[Drafter], object], str]] = {
    "a batch axis": (lambda d: d.unroll(IDS[None], STATES, 1), "without a batch axis"),
    "states with a batch axis": (lambda d: d.unroll(IDS, STATES[None], 1), r"\[1, 3, 11, 32\].*\[3, 11, 32\]"),
    "slots last": (lambda d: d.unroll(IDS, STATES.transpose(0, 1), 1), "3 slots"),
    "another width": (lambda d: d.unroll(IDS, STATES[..., 1:], 1), "32 wide"),
    "complex states": (lambda d: d.unroll(IDS, STATES.to(torch.complex64), 1), "real numbers"),
    "sparse states": (lambda d: d.unroll(IDS, STATES.to_sparse(), 1), "real numbers"),
    "states without values": (lambda d: d.unroll(IDS, STATES.to("meta"), 1), "real numbers"),
    "no states": (lambda d: d.unroll(IDS, None, 1), "states that make no tensor"),  # type: ignore[arg-type]
    "NaN": (lambda d: d.unroll(IDS, with_one(float("nan")), 2), "1 values of the states.*the first at 5"),
    "infinity": (lambda d: d.unroll(IDS, with_one(float("inf")), 2), "no finite numbers"),
    "a negative id": (lambda d: d.unroll(IDS - 100, STATES, 1), "from 0 to 59"),
    "an id too large": (lambda d: d.unroll(IDS + 100, STATES, 1), "from 0 to 59"),
    "fractions for ids": (lambda d: d.unroll(IDS.float(), STATES, 1), "whole numbers"),
    "truths for ids": (lambda d: d.unroll(IDS > 3, STATES, 1), "whole numbers"),
    "ragged ids": (lambda d: d.unroll([[1], [2, 3]], STATES, 1), "token ids that make no tensor"),  # type: ignore[list-item]
    "text": (lambda d: d.unroll("text", STATES, 1), "token ids that make no tensor"),  # type: ignore[arg-type]
    "an id beyond int64": (lambda d: d.unroll([2**63] * TOKENS, STATES, 1), "token ids that make no tensor"),
    "no steps": (lambda d: d.unroll(IDS, STATES, 0), "0 steps"),
    "half a step": (lambda d: d.unroll(IDS, STATES, 2.5), "2.5 steps"),  # type: ignore[arg-type]
    "steps in words": (lambda d: d.unroll(IDS, STATES, "3"), "'3' steps"),  # type: ignore[arg-type]
    "too few positions": (lambda d: d.unroll(IDS, STATES, 1, positions=[0]), "1 positions for 11 tokens"),
    "fractions for positions": (lambda d: d.unroll(IDS, STATES, 1, positions=IDS.float()), "positions of shape"),
    "an empty extension": (lambda d: d.extend(d.start(), [], STATES[:, :0]), "one position or more"),
    "a draft id too large": (lambda d: d.target_ids([DRAFT_VOCABULARY]), "from 0 to 23"),
    "a negative draft id": (lambda d: d.target_ids([-1]), "from 0 to 23"),
    "no draft ids": (lambda d: d.target_ids(None), "draft ids that make no tensor"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_inputs_are_told_what_is_right(name: str, drafter: Drafter) -> None:
    call, told = WRONG[name]
    with pytest.raises(InputsError, match=told):
        call(drafter)


@pytest.mark.parametrize("token", [-1, VOCABULARY, 1.5, None])
def test_a_drafted_token_is_one_of_the_targets(token: Any, drafter: Drafter) -> None:
    cache = drafter.start()
    drafter.extend(cache, IDS[:2], STATES[:, :2])
    with pytest.raises(InputsError):
        drafter.draft(cache, token)
    assert (cache.length, cache.drafted) == (2, 0)


def test_every_result_is_json(drafter: Drafter) -> None:
    told = json.loads(json.dumps(drafter.to_dict(), allow_nan=False))
    assert told["loaded"] == json.loads(json.dumps(drafter.loaded.to_dict(), allow_nan=False))
    assert (told["loaded"]["device"], told["loaded"]["dtype"]) == ("cpu", "float32")


UNKNOWN: dict[str, Any] = {
    "pre_fc_norm": "fc_norm",
    "residual": "postnorm",
    "feedback": "normed",
    "hidden_norm": "input_layernorm",
    "concat": "state_first",
    "vocab_map": "table",
    "embedding": "borrowed",
    "head": "tied",
    "last_state": "none",
    "token_shift": "1",
    "position_offset": 0.5,
    "rope_theta": None,
    "embedding_scale": float("nan"),
}


@pytest.mark.parametrize("knob", UNKNOWN)
def test_a_knob_has_no_other_values_than_its_own(knob: str, tmp_path: Path) -> None:
    ref, _ = write_random(tmp_path)
    with pytest.raises(UsageError, match=f"the wiring's {knob} is"):
        load_drafter(ref, wiring=replace(wired(ref), **{knob: UNKNOWN[knob]}))


@pytest.mark.parametrize("wiring", ["declared", {}, {"residual": "pre_norm"}])
def test_a_wiring_is_a_wiring(wiring: Any, tmp_path: Path) -> None:
    ref, _ = write_random(tmp_path)
    with pytest.raises(UsageError, match="a wiring of type"):
        load_drafter(ref, wiring=wiring)


@pytest.mark.parametrize("device", ["meta", "mps", "", "cuda:99", 3.5])
def test_a_device_that_is_not_here_is_a_usage_error_in_a_line(device: Any, tmp_path: Path) -> None:
    ref, _ = write_random(tmp_path)
    with pytest.raises(UsageError) as caught:
        load_drafter(ref, device=device)
    assert len(str(caught.value)) < 250


SETTINGS: dict[str, tuple[dict[str, Any], str]] = {
    "heads that do not divide": ({"num_attention_heads": 4, "num_key_value_heads": 3}, "4 heads of queries over 3"),
    "an odd head": ({"head_dim": 11}, "12 of 11|11 of 11"),
    "more than a whole head turned": ({"partial_rotary_factor": 1.5}, "18 of 12"),
    "nothing turned": ({"partial_rotary_factor": 0.0}, "0 of 12"),
    "a negative share": ({"partial_rotary_factor": -1.0}, "-12 of 12"),
    "theta 0": ({"rope_theta": 0.0}, "theta 0 "),
    "theta below 0": ({"rope_theta": -5.0}, "theta -5"),
    "linear by 0": ({"rope_scaling": {"type": "linear", "factor": 0.0}}, "no frequencies"),
    "linear by less": ({"rope_scaling": {"type": "linear", "factor": -2.0}}, "no frequencies"),
    "yarn by 0": ({"rope_scaling": {"type": "yarn", "factor": 0.0}}, "no frequencies"),
    "yarn by a word": ({"rope_scaling": {"type": "yarn", "factor": "x"}}, "no frequencies"),
    "llama3 in part": ({"rope_scaling": {"type": "llama3", "factor": 8.0}}, "without 'low_freq_factor'"),
    "an activation of nobody's": ({"hidden_act": "gale"}, "hidden_act 'gale'"),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_settings_that_give_no_network_are_named(name: str, tmp_path: Path) -> None:
    config, told = SETTINGS[name]
    ref, _ = write_random(tmp_path, LLAMA | config)
    with pytest.raises((CannotRunError, CheckpointError), match=told):
        loaded(ref)


def test_a_factor_of_latent_attention_that_is_none_is_named(tmp_path: Path) -> None:
    config = MLA | {"rope_scaling": {"type": "yarn", "factor": 4.0, "mscale_all_dim": "x"}}
    ref, _ = write_random(tmp_path, config, "eagle3_mla")
    with pytest.raises(CannotRunError, match="mscale_all_dim is 'x'"):
        loaded(ref)


@pytest.mark.parametrize("value", ["whole", "per_state"])
def test_norms_before_fc_need_states_to_fuse(value: str, tmp_path: Path) -> None:
    ref, _ = write_random(tmp_path, EAGLE1, "eagle1")
    with pytest.raises(CannotRunError, match="kind eagle1, which fuses no states"):
        loaded(ref, head="embedding", pre_fc_norm=value)
