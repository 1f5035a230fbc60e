"""Dumps of other tools: vLLM's own files, SpecForge's form, and which boundary each slot is."""

from __future__ import annotations

import fcntl
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from drafter_audit.errors import CheckpointError, InputsError, NotFoundError, PickledError
from drafter_audit.model.target.load import load_target
from drafter_audit.model.target.model import TargetModel
from drafter_audit.recording.dumps.dump import Dump, as_recorded
from drafter_audit.recording.dumps.files import read_dump
from drafter_audit.recording.dumps.matching import match_boundaries
from drafter_audit.recording.dumps.open import open_dumps
from drafter_audit.recording.recording import RecordedPrompt

DATA = Path(__file__).parent / "data" / "dumps"
SLOTS = (1, 3, 4)  # the boundaries that vLLM was asked for, of 4 layers


@pytest.fixture(scope="module")
def target() -> TargetModel:
    return load_target(str(DATA / "target"), dtype="float32")


def record(target: TargetModel, tokens: Tensor) -> RecordedPrompt:
    """All boundaries of the same tokens, by transformers' own forward."""
    boundaries = tuple(range(target.num_layers + 1))
    states = target.forward_with_taps(tokens, boundaries)[1]
    whole = Dump("recorded", tokens, torch.cat([states, states[:, -1:]], 1)[:, : len(tokens)])
    return as_recorded(whole, "same", boundaries, lookahead=0)


@pytest.fixture(scope="module")
def dumped() -> Dump:
    return read_dump(DATA / "vllm" / "hs_0.safetensors")


@pytest.fixture(scope="module")
def recorded(target: TargetModel, dumped: Dump) -> RecordedPrompt:
    return record(target, dumped.tokens)


def test_slots_of_vllms_file_are_the_boundaries_asked_for(dumped: Dump, recorded: RecordedPrompt) -> None:
    found = match_boundaries(dumped, recorded)
    assert tuple(each.boundary for each in found) == SLOTS
    assert all(each.clear and each.error < 1e-5 for each in found)
    assert all(abs(each.norm_ratio - 1) < 1e-5 for each in found)
    assert found[1].text.startswith("slot 1 is boundary 3 (error ")


def test_speculators_float8_file_is_the_same_to_float8(dumped: Dump, recorded: RecordedPrompt) -> None:
    """Three bits of mantissa: at most 1/16 off, less on average."""
    packed = read_dump(DATA / "speculators_fp8" / "hs_0.safetensors")
    assert torch.equal(packed.tokens, dumped.tokens)
    assert packed.states.dtype == torch.float32
    found = match_boundaries(packed, recorded)
    assert tuple(each.boundary for each in found if each.clear) == SLOTS
    assert all(0.005 < each.error < 0.0625 for each in found)


def specforge(dump: Dump, normed: Tensor) -> dict[str, Tensor]:
    """As scripts/prepare_hidden_states.py lays it out: states side by side, a batch of one."""
    mask = torch.zeros(len(dump.tokens), dtype=torch.int64)
    mask[4:12] = 1
    aux = dump.states.transpose(0, 1).flatten(1)[None]
    return {"input_ids": dump.tokens, "loss_mask": mask, "hidden_state": normed[None], "aux_hidden_state": aux}


def saved(saved_as: dict[str, Any], folder: Path, name: str = "data_0.ckpt") -> Path:
    torch.save(saved_as, folder / name)
    return folder / name


def test_specforges_file_has_the_answer_and_a_state_that_is_no_boundary(
    tmp_path: Path, target: TargetModel, dumped: Dump, recorded: RecordedPrompt
) -> None:
    last = target.forward_with_taps(dumped.tokens, [target.num_layers])[1][0]
    with torch.no_grad():
        normed = target.parts.norm(last[None])[0]
    found = read_dump(saved(specforge(dumped, normed), tmp_path))
    assert torch.equal(found.states, dumped.states)
    assert torch.equal(found.tokens, dumped.tokens)
    assert found.answer == (4, 12)
    assert found.normed is not None
    assert torch.equal(found.normed, normed)
    assert tuple(each.boundary for each in match_boundaries(found, recorded)) == SLOTS
    (behind_norm,) = match_boundaries(replace(found, states=found.normed[None]), recorded)
    assert not behind_norm.clear


def test_a_dump_becomes_a_recorded_prompt(dumped: Dump) -> None:
    mask = torch.zeros(14, dtype=torch.bool)
    mask[4:12] = True
    made = as_recorded(replace(dumped, loss_mask=mask), "a", SLOTS, lookahead=3)
    assert (made.prompt_length, made.answer_length, len(made.tokens)) == (4, 5, 12)
    assert torch.equal(made.states, dumped.states[:, :8])
    assert made.boundaries == SLOTS
    assert [list(table.shape) for table in (made.top_ids, made.top_logits)] == [[5, 0], [5, 0]]
    assert made.logsumexp.isnan().all()
    assert made.gaps.isnan().all()
    assert list(made.gaps.shape) == [8]
    without = as_recorded(dumped, "a", SLOTS, lookahead=3)
    assert (without.prompt_length, without.answer_length) == (1, 10)
    notes = list(dumped.notes())
    assert "not in the dump" in notes[1]


def test_a_folder_of_dumps_is_a_recording(dumped: Dump) -> None:
    found = open_dumps(DATA / "vllm", SLOTS, ("tiny", 4, 96), lookahead=2)
    prompts = list(found.prompts())
    assert [(p.id, len(p.tokens)) for p in prompts] == [("hs_0", 14), ("hs_1", 9)]
    assert (found.manifest.top, found.manifest.lookahead, found.manifest.hidden_size) == (0, 2, 64)
    only = next(iter(found.prompts([4, 1])))
    assert torch.equal(only.states, prompts[0].states[[2, 0]])
    with pytest.raises(InputsError, match="boundary 2 is not in the dump"):
        next(iter(found.prompts([2])))


@pytest.mark.parametrize("boundaries", [(1, 3), (1, 3, 3), (1, 3, 5), (-1, 3, 4)])
def test_boundaries_must_be_the_slots_and_the_targets(boundaries: tuple[int, ...]) -> None:
    with pytest.raises(InputsError, match="boundar"):
        open_dumps(DATA / "vllm", boundaries, ("tiny", 4, 96), lookahead=2)


def test_files_are_taken_by_their_numbers(tmp_path: Path) -> None:
    for number in (10, 9, 1):
        save_file(load_file(DATA / "vllm" / "hs_1.safetensors"), tmp_path / f"hs_{number}.safetensors")
    found = open_dumps(tmp_path, SLOTS, ("tiny", 4, 96), lookahead=2)
    assert [p.id for p in found.prompts()] == ["hs_1", "hs_9", "hs_10"]
    with pytest.raises(NotFoundError, match="no dumps"):
        open_dumps(DATA / "nothing", SLOTS, ("tiny", 4, 96))


# --- matching says what it cannot say


WRONG: dict[str, Callable[[Tensor], Tensor]] = {
    "a factor leaves the cosine at 1": lambda state: 1.5 * state,
    "a sign": lambda state: -state,
    "noise": lambda state: torch.randn(state.shape, generator=torch.Generator().manual_seed(0)),
    "half of another": lambda state: (state + state.roll(1, 0)) / 2,
    "zeros": torch.zeros_like,
}


@pytest.mark.parametrize("name", WRONG)
def test_a_slot_that_is_no_boundary_is_not_called_one(name: str, dumped: Dump, recorded: RecordedPrompt) -> None:
    changed = dumped.states.clone()
    changed[1] = WRONG[name](changed[1])
    found = match_boundaries(replace(dumped, states=changed), recorded)
    assert [each.clear for each in found] == [True, False, True]
    assert "none of the recorded boundaries for certain" in found[1].text


def test_a_boundary_that_was_not_recorded_is_not_replaced_by_its_neighbour(
    dumped: Dump, recorded: RecordedPrompt
) -> None:
    rows = [0, 1, 2, 4]
    fewer = replace(recorded, boundaries=tuple(rows), states=recorded.states[rows])
    assert [each.clear for each in match_boundaries(dumped, fewer)] == [True, False, True]


def test_two_boundaries_alike_are_ambiguous(dumped: Dump, recorded: RecordedPrompt) -> None:
    near = recorded.states.clone()
    near[2] = near[3] * 1.001
    noisy = replace(dumped, states=dumped.states * 1.01)
    (_, match, _) = match_boundaries(noisy, replace(recorded, states=near))
    assert not match.clear
    assert {match.boundary, match.runner_up} == {2, 3}


def test_one_huge_token_does_not_decide(dumped: Dump, recorded: RecordedPrompt) -> None:
    ours, theirs = dumped.states.clone(), recorded.states.clone()
    ours[:, 0] = theirs[:, 0] = 1e4
    found = match_boundaries(replace(dumped, states=ours), replace(recorded, states=theirs))
    assert tuple(each.boundary for each in found if each.clear) == SLOTS


def test_only_the_same_tokens_are_matched(dumped: Dump, recorded: RecordedPrompt) -> None:
    with pytest.raises(InputsError, match="begins with 2 tokens"):
        match_boundaries(replace(dumped, tokens=torch.cat([dumped.tokens[:2], dumped.tokens[2:] + 1])), recorded)
    with pytest.raises(InputsError, match="32 wide and 64"):
        match_boundaries(replace(dumped, states=dumped.states[..., :32]), recorded)


# --- damaged and foreign files


def changed(key: str, edit: Callable[[Tensor], Tensor]) -> Callable[[dict[str, Tensor]], dict[str, Tensor]]:
    return lambda tensors: tensors | {key: edit(tensors[key]).contiguous()}


BAD: dict[str, tuple[Callable[[dict[str, Tensor]], dict[str, Tensor]], str]] = {
    "no tokens": (lambda t: {"hidden_states": t["hidden_states"]}, "neither hidden_states and token_ids"),
    "fewer tokens": (changed("token_ids", lambda t: t[:-1]), r"states of \[3, 14, 64\] for tokens of \[13\]"),
    "empty tokens": (changed("token_ids", lambda t: t[:0]), r"tokens of \[0\]"),
    "negative tokens": (changed("token_ids", lambda t: t - 200), "no ids"),
    "two dimensions": (changed("hidden_states", lambda t: t.flatten(1)), r"hidden_states of \[14, 192\]"),
    "not finite": (changed("hidden_states", lambda t: t / 0), "not finite"),
    "float8 without factors": (
        changed("hidden_states", lambda t: t.to(torch.float8_e4m3fn)),
        "without hidden_states_s",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_wrong_with_a_file_is_said(tmp_path: Path, name: str) -> None:
    edit, says = BAD[name]
    save_file(edit(load_file(DATA / "vllm" / "hs_0.safetensors")), tmp_path / "hs_0.safetensors")
    with pytest.raises(CheckpointError, match=says):
        read_dump(tmp_path / "hs_0.safetensors")


def test_a_file_that_is_still_written_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "hs_0.safetensors"
    file.write_bytes((DATA / "vllm" / "hs_0.safetensors").read_bytes()[:-100])
    with pytest.raises(CheckpointError, match="not read as safetensors"):
        read_dump(file)
    with (tmp_path / "hs_0.safetensors.lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(CheckpointError, match="being written"):
            read_dump(file)
    with pytest.raises(CheckpointError, match="not read as safetensors"):
        read_dump(file)  # the writer leaves the lock's file behind


def test_what_is_wrong_with_a_pickled_file_is_said(tmp_path: Path, dumped: Dump) -> None:
    whole = specforge(dumped, dumped.states[0])
    without = {key: value for key, value in whole.items() if key != "aux_hidden_state"}
    with pytest.raises(CheckpointError, match="--enable-aux-hidden-states"):
        read_dump(saved(without, tmp_path))
    with pytest.raises(CheckpointError, match=r"aux_hidden_state of \[14, 191\]"):
        read_dump(saved(whole | {"aux_hidden_state": whole["aux_hidden_state"][..., 1:].contiguous()}, tmp_path))
    with pytest.raises(CheckpointError, match="the loss mask of 13"):
        read_dump(saved(whole | {"loss_mask": whole["loss_mask"][1:].clone()}, tmp_path))
    with pytest.raises(CheckpointError, match="gunzip"):
        read_dump(tmp_path / "data_0.ckpt.gz")


def test_a_pickle_is_never_run(tmp_path: Path, dumped: Dump) -> None:
    class Trap:
        def __reduce__(self) -> tuple[Any, ...]:
            return (Path.touch, (tmp_path / "ran",))

    file = saved(specforge(dumped, dumped.states[0]) | {"extra": Trap()}, tmp_path)
    with pytest.raises(PickledError, match="pickle"):
        read_dump(file)
    assert not (tmp_path / "ran").exists()
