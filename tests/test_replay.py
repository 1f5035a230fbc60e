"""Replay against rounds that peers ran, and against rounds drafted from scratch."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from drafter_audit import Drafter, load_drafter, open_drafter
from drafter_audit.decode.fit import informed
from drafter_audit.decode.replay import ReplayRun, replay, replay_shapes, rounds_of
from drafter_audit.drafter.wiring import declared_wiring
from drafter_audit.errors import AuditError, CannotRunError, UsageError
from drafter_audit.measure.shape import shape_of
from tests.random_drafters import LLAMA, MLA, write_random
from tests.recordings import Held, drafted, held, recorded, written

HERE = Path(__file__).parent
ROUNDS, TRAINED = HERE / "data/rounds", HERE / "oracles/eagle_chain"
PEERS = json.loads((ROUNDS / "peers.json").read_text())
SIZES = {"hidden_size": 128, "vocab_size": 512}


@cache
def trained_drafter() -> Drafter:
    """It declares no layer ids: with the number of the target's layers it reads the usual boundaries."""
    declared = declared_wiring(informed(open_drafter(str(TRAINED)), held([], **SIZES).manifest))
    assert declared is not None
    return load_drafter(str(TRAINED), wiring=declared)


def trained(answer: int) -> Held:
    """What the target of the trained drafter wrote, `answer` tokens counting."""
    tensors = load_file(ROUNDS / "recorded.safetensors")
    prompts = [
        recorded(str(i), 48, answer, tensors[f"tokens{i}"], (2, 4, 5), tensors[f"states{i}"], tensors[f"gaps{i}"])
        for i in range(4)
    ]
    return held(prompts, **SIZES)


def random_drafter(folder: Path, boundaries: tuple[int, ...], config: Any = LLAMA, kind: str = "eagle3") -> Drafter:
    ref, _ = write_random(folder, {**config, "num_aux_hidden_states": len(boundaries)}, kind)
    declared = declared_wiring(open_drafter(ref))
    assert declared is not None
    return load_drafter(ref, wiring=replace(declared, embedding="own", boundaries=boundaries))


def accepted(run: ReplayRun, steps: int) -> list[list[int]]:
    return [[count for _, count in rounds_of(prompt.matches.tolist(), steps)] for prompt in run.prompts]


def positions(run: ReplayRun) -> list[int]:
    """Rounds that accepted the draft at each position."""
    histogram = [sum(column) for column in zip(*(counts.histogram for counts in run.counts()), strict=True)]
    return [sum(histogram[k:]) for k in range(1, run.shape.steps + 1)]


def test_eagle_accepted_the_same_in_every_round() -> None:
    """EAGLE stops when rounds and accepted drafts are more than max_new_tokens: the prefill's token and as many."""
    run = replay(trained_drafter(), trained(PEERS["eagle"]["max_new_tokens"] + 2), 4)
    assert accepted(run, 4) == PEERS["eagle"]["accepted"]
    assert (sum(c.rounds for c in run.counts()), sum(c.accepted for c in run.counts())) == (51, 151)
    assert run.ties() == ()


def test_vllm_counted_the_same() -> None:
    """vLLM stops at max_tokens, the prefill's among them, and counts the last round whole."""
    run = replay(trained_drafter(), trained(PEERS["vllm"]["max_tokens"]), 4)
    vllm, counts = PEERS["vllm"], run.counts()
    assert sum(c.rounds for c in counts) == vllm["num_drafts"] == 50
    assert sum(c.accepted for c in counts) == vllm["num_accepted_tokens"] == 147
    assert positions(run) == vllm["num_accepted_tokens_per_pos"] == [47, 44, 39, 17]


@pytest.mark.parametrize("steps", range(1, 11))
def test_rounds_drafted_from_scratch_accept_the_same(steps: int) -> None:
    drafter, recording = trained_drafter(), trained(48)
    run = replay(drafter, recording, steps)
    for prompt, counted in zip(recording.held, accepted(run, steps), strict=True):
        assert counted == from_scratch(drafter, prompt.tokens.tolist(), prompt.states, steps)


def from_scratch(drafter: Drafter, tokens: list[int], states: torch.Tensor, steps: int) -> list[int]:
    """The accepted drafts of each round over 48 tokens of prompt and 48 of answer."""
    length, counted = 49, []
    while length < 96:
        chain = drafted(drafter, tokens[:length], states, steps)
        count = next((k for k in range(steps) if chain[k] != tokens[length + k]), steps)
        counted.append(count)
        length += count + 1
    return counted


SHAPES: dict[str, tuple[Any, str, tuple[int, ...], tuple[int, ...]]] = {
    "as recorded": (LLAMA, "eagle3", (2, 4, 5), (2, 4, 5)),
    "permuted among others": (LLAMA, "eagle3", (5, 2, 4), (0, 1, 2, 3, 4, 5, 8)),
    "one boundary in two slots": (LLAMA, "eagle3", (4, 4, 2), (2, 4)),
    "two layers": (LLAMA | {"num_hidden_layers": 2}, "eagle3", (2, 4, 5), (2, 4, 5)),
    "latent attention": (MLA, "eagle3_mla", (2, 4, 5), (2, 4, 5)),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_an_answer_written_from_drafts_accepts_those(tmp_path: Path, shape: str) -> None:
    """Every number of accepted drafts from none to ten comes up, and each round's is the one that was written."""
    config, kind, boundaries, kept = SHAPES[shape]
    drafter = random_drafter(tmp_path, boundaries, config, kind)
    made = [written(drafter, kept, steps=10, answer=60 + seed, seed=seed) for seed in range(6)]
    run = replay(drafter, held([prompt for prompt, _ in made]), 10)
    assert accepted(run, 10) == [taken for _, taken in made]
    assert {count for _, taken in made for count in taken} == set(range(11))
    assert [c.tokens for c in run.counts()] == [60 + seed for seed in range(6)]


def test_all_step_counts_from_one_reading_are_as_each_alone() -> None:
    drafter, recording = trained_drafter(), trained(48)
    for steps, run in enumerate(replay_shapes(drafter, recording, [shape_of(k) for k in range(1, 11)]), 1):
        alone = replay(drafter, recording, steps)
        assert run.counts() == alone.counts()
        assert run.ceiling() == alone.ceiling()
        assert (run.ties(), run.close_drafts()) == (alone.ties(), alone.close_drafts())


def test_drafts_are_the_likeliest_of_unroll() -> None:
    """As long as what was drafted before is true: unrolling pairs true tokens."""
    drafter, recording = trained_drafter(), trained(48)
    prompt = recording.held[0]
    padded = torch.nn.functional.pad(prompt.states, (0, 0, 0, 10))
    logits = drafter.unroll(prompt.tokens[1 : 1 + padded.shape[1]], padded, 6)[:, 47:94]
    (replayed,) = replay(drafter, held([prompt], **SIZES), 6).prompts
    assert torch.equal(replayed.drafts, drafter.target_ids(logits.argmax(-1)))
    top = logits.topk(2).values
    assert torch.allclose(replayed.draft_gaps, top[..., 0] - top[..., 1], atol=1e-4)


def test_an_answer_of_one_token_takes_no_round() -> None:
    run = replay(trained_drafter(), trained(1), 3)
    assert [(c.rounds, c.tokens, c.overshoot) for c in run.counts()] == [(0, 1, 0)] * 4


def test_the_ceiling_is_what_a_drafter_with_the_same_vocabulary_could_reach(tmp_path: Path) -> None:
    """Of an answer whose every third token has no draft id, a round takes the two before and is given the third."""
    drafter = random_drafter(tmp_path, (2, 4, 5))
    known = set(drafter.target_ids(range(24)).tolist())
    inside, outside = min(known), min(set(range(60)) - known)
    tokens = torch.tensor([outside] * 6 + [inside, inside, outside] * 20)
    prompt = recorded("thirds", 5, 31, tokens, (2, 4, 5), torch.zeros((3, 66, 32)))
    run, single = replay_shapes(drafter, held([prompt]), [shape_of(5), shape_of(1)])
    (ceiling,) = run.ceiling()
    assert (ceiling.histogram, ceiling.overshoot) == ((0, 0, 10, 0, 0, 0), 0)
    assert run.coverage == pytest.approx(20 / 31)
    assert single.ceiling()[0].histogram == (10, 10)  # both tokens, then the third alone


def test_a_close_decision_is_listed() -> None:
    """A gap of the target counts where a round emits that token, also past the end; one that comes later does not."""
    drafter, recording = trained_drafter(), trained(48)
    close = [replace(prompt, gaps=prompt.gaps.clone()) for prompt in recording.held]
    (plain,) = {c.overshoot for c in replay(drafter, held(close[1:2], **SIZES), 4).counts()}
    assert plain == 3  # the prefill's token and ten rounds of five
    close[0].gaps[0] = close[1].gaps[48 + plain - 1] = close[2].gaps[20] = 5e-5
    close[3].gaps[48 + 5] = 5e-5
    run = replay(drafter, held(close, **SIZES), 4)
    assert [(tie.prompt, tie.position) for tie in run.ties()] == [("0", 0), ("1", 48 + plain - 1), ("2", 20)]
    assert [tie.gap for tie in run.ties()] == pytest.approx([5e-5] * 3)
    assert replay(drafter, held(close, **SIZES, temperature=1.0), 4).ties() == ()


def test_a_sampled_recording_is_told_by_its_rule() -> None:
    drafter = trained_drafter()
    assert replay(drafter, trained(8), 2).rule == "greedy"
    sampled = replace(trained(8), manifest=replace(trained(8).manifest, temperature=0.7))
    assert replay(drafter, sampled, 2).rule == "argmax_draft"


@pytest.mark.parametrize(
    ("told", "steps", "error", "says"),
    [
        ({}, 17, UsageError, "17 steps on a recording that looks 16 tokens ahead"),
        ({}, 0, UsageError, "0 steps"),
        ({"hidden_size": 64}, 3, CannotRunError, "states of width 128, recorded are 64"),
        ({"vocab_size": 513}, 3, CannotRunError, "its vocabulary is of 512 tokens, the recorded target's of 513"),
        ({"vocab_size": 99}, 3, CannotRunError, r"it drafts tokens \d+\.\.\d+, the recorded target has 99"),
        ({"num_layers": 4}, 3, CannotRunError, "reads boundary 5, the recorded target has 4 layers"),
    ],
)
def test_what_does_not_fit_is_refused_before_any_prompt_is_read(
    told: dict[str, Any], steps: int, error: type[AuditError], says: str
) -> None:
    class Unread(Held):
        def prompts(self, boundaries: Any = None) -> Any:
            raise AssertionError("read")

    recording = Unread(Path("memory"), replace(held([], **SIZES).manifest, **told))
    with pytest.raises(error, match=says):
        replay(trained_drafter(), recording, steps)


def test_boundaries_that_were_not_recorded_are_named() -> None:
    prompt = replace(trained(8).held[0], boundaries=(2, 3, 5))
    with pytest.raises(CannotRunError, match=r"\[4\] were not recorded.*--boundaries 2,3,4,5"):
        replay(trained_drafter(), held([prompt], **SIZES), 3)
