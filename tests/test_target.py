"""The states of each family against what transformers itself returns, and every way in which they are refused."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

from drafter_audit.errors import CannotRunError, InputsError
from drafter_audit.model.target.load import load_target
from drafter_audit.model.target.model import TargetModel
from drafter_audit.model.target.self_check import check
from tests.tiny_targets import FAMILIES, HIDDEN, LAYERS, PLAIN, VOCABULARY, write_family, write_model

TEXT = torch.arange(9, 26)
ALL = range(LAYERS + 1)


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> TargetModel:
    return load_target(write_family("llama", tmp_path_factory.mktemp("llama")))


def close(one: Tensor, other: Tensor) -> bool:
    return float((one - other).abs().max()) <= 1e-5 * max(1.0, float(other.abs().max()))


@pytest.mark.parametrize("name", FAMILIES)
def test_states_are_what_transformers_returns(name: str, tmp_path: Path) -> None:
    """Its tuple holds boundaries 0..L-1, and after them the last state behind the final norm."""
    target = load_target(write_family(name, tmp_path))
    logits, states = target.forward_with_taps(TEXT, ALL)
    with torch.no_grad():
        theirs = target.model(TEXT[None], output_hidden_states=True)
        last = target.parts.norm(states[-1])
    assert (len(states), len(theirs.hidden_states)) == (LAYERS + 1, LAYERS + 1)
    for boundary in range(LAYERS):
        assert torch.equal(states[boundary], theirs.hidden_states[boundary][0]), boundary
    assert close(last, theirs.hidden_states[-1][0])
    assert not close(states[-1], theirs.hidden_states[-1][0])
    assert torch.equal(logits, theirs.logits[0])
    assert torch.equal(target.scores_from(states[-1]).argmax(-1), logits.argmax(-1))


@pytest.mark.parametrize("name", FAMILIES)
def test_greedy_with_a_cache_is_greedy_without(name: str, tmp_path: Path) -> None:
    target = load_target(write_family(name, tmp_path))
    made = target.greedy(TEXT, 4, (0, 2, LAYERS))
    text = TEXT
    for _ in range(4):
        text = torch.cat((text, target.forward_with_taps(text, ())[0][-1:].argmax(-1)))
    assert torch.equal(made.tokens, text[len(TEXT) :])
    whole = target.forward_with_taps(text[:-1], (0, 2, LAYERS))[1]
    assert made.states.shape == whole.shape == (3, len(TEXT) + 3, HIDDEN)
    assert close(made.states, whole)


def test_boundary_0_of_a_scaled_embedding_is_scaled(tmp_path: Path) -> None:
    """By the square root of the hidden size: Gemma's (transformers 5.24 models/gemma3/modeling_gemma3.py)."""
    target = load_target(write_family("gemma3", tmp_path))
    rows = target.parts.embedding.weight.detach()[TEXT]
    assert close(target.forward_with_taps(TEXT, (0,))[1][0], rows * HIDDEN**0.5)


def test_boundary_0_of_a_plain_embedding_is_its_rows(llama: TargetModel) -> None:
    rows = llama.parts.embedding.weight.detach()[TEXT]
    assert torch.equal(llama.forward_with_taps(TEXT, (0,))[1][0], rows)


def test_states_come_in_the_order_asked_for(llama: TargetModel) -> None:
    every = llama.forward_with_taps(TEXT, ALL)[1]
    assert torch.equal(llama.forward_with_taps(TEXT, (4, 0, 2))[1], every[[4, 0, 2]])
    assert llama.forward_with_taps(TEXT, ())[1].shape == (0, len(TEXT), HIDDEN)


def test_a_state_is_the_models_own_memory_only_while_it_is_handed_on(llama: TargetModel) -> None:
    """What comes back does not change when the model goes on."""
    _, states = llama.forward_with_taps(TEXT, ALL)
    kept = copy.deepcopy(states)
    llama.forward_with_taps(TEXT + 1, ALL)
    assert torch.equal(states, kept)


def test_no_hook_stays(llama: TargetModel) -> None:
    with pytest.raises(InputsError):
        llama.forward_with_taps([VOCABULARY], ALL)
    llama.forward_with_taps(TEXT, ALL)
    hooks = [each for layer in llama.parts.layers for each in (layer._forward_hooks, layer._forward_pre_hooks)]
    assert not any(hooks)


@pytest.mark.parametrize("boundaries", [(5,), (-1,), (1, 1)])
def test_boundaries_are_distinct_and_inside(boundaries: tuple[int, ...], llama: TargetModel) -> None:
    with pytest.raises(InputsError, match=r"give distinct ones within 0\.\.4"):
        llama.forward_with_taps(TEXT, boundaries)


@pytest.mark.parametrize("boundaries", [[1.0], [1.5], ["1"], [None], "12", None, 3, [float("nan")]])
def test_boundaries_are_whole_numbers(boundaries: Any, llama: TargetModel) -> None:
    with pytest.raises(InputsError, match=r"give distinct ones within 0\.\.4"):
        llama.forward_with_taps(TEXT, boundaries)


def test_boundaries_may_be_a_tensors(llama: TargetModel) -> None:
    expected = llama.forward_with_taps(TEXT, (4, 0))[1]
    assert torch.equal(llama.forward_with_taps(TEXT, torch.tensor([4, 0]))[1], expected)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["llama", "gemma3_wrapped", "kimi_k25", "kimi_linear"])
def test_a_text_in_two_forwards_with_a_cache_has_the_states_of_one(name: str, tmp_path: Path) -> None:
    target = load_target(write_family(name, tmp_path))
    past = target.new_cache()
    parts = [target.forward_with_taps(part, ALL, past=past) for part in (TEXT[:9], TEXT[9:])]
    logits, states = target.forward_with_taps(TEXT, ALL)
    assert close(torch.cat([part[1] for part in parts], dim=1), states)
    assert close(torch.cat([part[0] for part in parts]), logits)


@pytest.mark.parametrize(
    "ids", [[], [-1], [VOCABULARY], [2**70], [[3, 4]], 3, [1.5], [True], ["a"], "ab", [None], None, torch.tensor([3.0])]
)
def test_tokens_are_the_targets(ids: Any, llama: TargetModel) -> None:
    with pytest.raises(InputsError, match=f"ids below {VOCABULARY}"):
        llama.forward_with_taps(ids, (0,))


@pytest.mark.parametrize("to", ["cuda:99", "meta", "nowhere", None, 5])
def test_states_go_to_a_device_that_is_here(to: Any, llama: TargetModel) -> None:
    with pytest.raises(InputsError, match=r"no device .*here are cpu, and"):
        llama.forward_with_taps(TEXT, (0,), to=to)


@pytest.mark.parametrize("past", [5, "past", (), torch.zeros(3), transformers.DynamicCache()])
def test_a_past_comes_from_the_target(past: Any, llama: TargetModel) -> None:
    with pytest.raises(InputsError, match="take it from new_cache"):
        llama.forward_with_taps(TEXT, (0,), past=past)


@pytest.mark.parametrize("number", ["3", 1.0, None, 0, -1])
def test_new_tokens_are_at_least_one(number: Any, llama: TargetModel) -> None:
    with pytest.raises(InputsError, match=r"new tokens, .*, give"):
        llama.greedy(TEXT, number, (0,))


@pytest.mark.parametrize(("asked", "kept"), [(0, 17), (1, 1), (5, 5), (17, 17), (99, 17)])
def test_logits_of_the_last_positions(asked: int, kept: int, llama: TargetModel) -> None:
    whole = llama.forward_with_taps(TEXT, ())[0]
    logits = llama.forward_with_taps(TEXT, (), logits_to_keep=asked)[0]
    assert logits.shape == (kept, VOCABULARY)
    assert close(logits, whole[-kept:])


@pytest.mark.parametrize("asked", [-1, 1.0, "1", None])
def test_logits_to_keep_are_a_whole_number(asked: Any, llama: TargetModel) -> None:
    with pytest.raises(InputsError, match="logits to keep"):
        llama.forward_with_taps(TEXT, (), logits_to_keep=asked)


def test_a_text_has_no_more_tokens_than_the_target_has_positions(llama: TargetModel) -> None:
    assert llama.max_positions == PLAIN["max_position_embeddings"] == 128
    past = llama.new_cache()
    llama.forward_with_taps([3] * 120, (), past=past)
    llama.forward_with_taps([3] * 8, (), past=past)
    with pytest.raises(InputsError, match=r"a text of 129 tokens, .*, the target has 128 positions"):
        llama.forward_with_taps([3], (), past=past)
    with pytest.raises(InputsError, match="a text of 129 tokens"):
        llama.forward_with_taps([3] * 129, ())


def changed(tmp_path: Path) -> TargetModel:
    """A Llama of its own, to be damaged."""
    return load_target(write_family("llama", tmp_path))


@torch.no_grad()
def test_a_boundary_that_does_not_come_is_named(tmp_path: Path) -> None:
    target = changed(tmp_path)
    target.model.config.num_hidden_layers = 2  # transformers runs so many of its layers
    assert len(target.forward_with_taps(TEXT, (0, 1, 2))[1]) == 3
    with pytest.raises(CannotRunError, match="no state came at boundary 3, 4 of 5 asked for"):
        target.forward_with_taps(TEXT, ALL)


@torch.no_grad()
def test_a_boundary_that_comes_twice_is_refused(tmp_path: Path) -> None:
    target = changed(tmp_path)
    target.model.model.layers[2] = target.model.model.layers[1]
    with pytest.raises(CannotRunError, match="boundary 2 came twice"):
        target.forward_with_taps(TEXT, (2,))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@torch.no_grad()
def test_a_state_that_is_not_finite_is_named(value: float, tmp_path: Path) -> None:
    target = changed(tmp_path)
    target.parts.layers[2].mlp.down_proj.weight[3, 3] = value
    assert len(target.forward_with_taps(TEXT, (0, 1, 2))[1]) == 3
    with pytest.raises(CannotRunError, match="the state at boundary 3 is not finite"):
        target.forward_with_taps(TEXT, ALL)


@torch.no_grad()
def test_a_state_of_one_value_is_named(tmp_path: Path) -> None:
    target = changed(tmp_path)
    target.parts.embedding.weight.zero_()
    with pytest.raises(CannotRunError, match=r"the state at boundary 0 holds the one value 0\.0"):
        target.forward_with_taps(TEXT, ALL)


@torch.no_grad()
def test_states_that_are_all_the_same_are_refused(tmp_path: Path) -> None:
    target = changed(tmp_path)
    for layer in target.parts.layers:
        layer.self_attn.o_proj.weight.zero_()
        layer.mlp.down_proj.weight.zero_()
    with pytest.raises(CannotRunError, match="the states at all 5 boundaries are the same"):
        target.forward_with_taps(TEXT, ALL)
    with torch.no_grad():  # one layer that does nothing is no fault: pruned targets have them
        target.parts.layers[1].mlp.down_proj.weight.normal_()
    target.forward_with_taps(TEXT, ALL)


def test_the_check_names_the_boundary_that_would_do(llama: TargetModel) -> None:
    """Layers in a wrong order: what is taken for the last one is the second."""
    first, second, third, last = llama.parts.layers
    wrong = replace(llama, parts=replace(llama.parts, layers=(first, last, third, second)))
    with pytest.raises(CannotRunError, match="over boundary 4 do not give the target's own tokens, boundary 2 would"):
        check(wrong)


@torch.no_grad()
def test_the_check_finds_a_norm_that_is_passed_by(tmp_path: Path) -> None:
    """The model goes around its final norm, whose gain differs by channel."""
    target = changed(tmp_path)
    target.parts.norm.weight.copy_(torch.linspace(-3, 3, HIDDEN))
    check(target)
    target.model.model.norm = torch.nn.Identity()
    with pytest.raises(CannotRunError, match="over boundary 4 do not give the target's own tokens, no boundary would"):
        check(target)


@torch.no_grad()
def test_the_check_finds_a_norm_of_equal_gains_that_is_passed_by(tmp_path: Path) -> None:
    """The tokens are the same then: each position's logits are its true ones times a factor."""
    target = changed(tmp_path)
    assert len(set(target.parts.norm.weight.tolist())) == 1
    target.model.model.norm = torch.nn.Identity()
    with pytest.raises(CannotRunError, match="over boundary 4 do not give the target's own logits, no boundary would"):
        check(target)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize(
    ("model", "settings"),
    [
        ("Gemma2", {"final_logit_softcapping": 2.0, "sliding_window": 8}),  # far below its logits: most are capped
        ("Granite", {"logits_scaling": 7.0}),
        ("Cohere", {"logit_scale": 0.07}),
        ("Llama", {}),
    ],
)
def test_the_check_passes_logits_that_are_capped_or_scaled(
    model: str, settings: dict[str, Any], dtype: str, tmp_path: Path
) -> None:
    """Behind the head (transformers 5.24 models/gemma2, granite and cohere)."""
    torch.manual_seed(0)
    config = getattr(transformers, f"{model}Config")(**(PLAIN | settings))
    ref = write_model(getattr(transformers, f"{model}ForCausalLM")(config), tmp_path)
    target = load_target(ref, dtype=dtype)
    logits, states = target.forward_with_taps(TEXT, (LAYERS,))
    assert torch.equal(logits, target.scores_from(states[0])) == (model == "Llama")
    with torch.no_grad():
        target.parts.norm.weight.fill_(1.0)
    passed_by = replace(target, parts=replace(target.parts, norm=torch.nn.Identity()))
    with pytest.raises(CannotRunError, match="do not give the target's own"):
        check(passed_by)


@pytest.mark.parametrize("name", FAMILIES)
def test_the_check_passes_each_family_in_half_precision(name: str, tmp_path: Path) -> None:
    assert load_target(write_family(name, tmp_path), dtype="bfloat16").dtype == "bfloat16"


def test_the_check_says_where_no_boundary_would_do(llama: TargetModel) -> None:
    wrong = replace(llama, parts=replace(llama.parts, layers=llama.parts.layers[:-1]), num_layers=LAYERS - 1)
    with pytest.raises(CannotRunError, match="no boundary would"):
        check(wrong)


def test_streams_beside_each_other_are_no_state(llama: TargetModel) -> None:
    """DeepSeek-V4's layers hand on several (transformers 5.24 models/deepseek_v4/modeling_deepseek_v4.py)."""

    class Streams(torch.nn.Module):
        def forward(self, state: Tensor) -> Tensor:
            return state[:, :, None].expand(-1, -1, 4, -1)

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = Streams()

        def forward(self, input_ids: Tensor, use_cache: bool) -> None:
            self.layer(llama.parts.embedding(input_ids))

    model = Model()
    streams = replace(llama, model=model, parts=replace(llama.parts, layers=(model.layer,)), num_layers=1)
    with pytest.raises(CannotRunError, match=r"boundary 1 is of shape \[1, 17, 4, 32\], not \[1, 17, 32\]"):
        streams.forward_with_taps(TEXT, (1,))
