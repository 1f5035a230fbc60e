"""Trees of drafts: how they grow, against plain Python, and against those that EAGLE grew on the trained pair."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from drafter_audit import Drafter, load_drafter, open_drafter
from drafter_audit.decode.replay import ReplayedPrompt, replay, replay_shapes, rounds_of
from drafter_audit.drafter.wiring import declared_wiring
from drafter_audit.errors import CannotRunError, InputsError, UsageError
from drafter_audit.measure.acceptance import Acceptance
from drafter_audit.measure.shape import drafted_by, shape_of, shapes_of
from drafter_audit.model.choices import branches, choices
from drafter_audit.model.trees import Likeliest, Trees, grown, likeliest
from tests.plain_trees import accepted_of, drafting, paths_of, tree_of
from tests.random_drafters import EAGLE1, LLAMA, MLA, write_random
from tests.test_replay import ROUNDS, held, trained, trained_drafter

EAGLE = json.loads((ROUNDS / "eagle_tree.json").read_text())
SHAPES = [shape_of(2, 3, 5), shape_of(4, 3, 9), shape_of(5, 3, 12), shape_of(5, 3, 40), shape_of(3, 2, 4)]


def paths(tree: Trees, at: int = 0) -> list[tuple[int, ...]]:
    return paths_of(tree.tokens[at].tolist(), tree.parents[at].tolist())


# A drafter of four tokens that knows the token before alone; no two paths of it are alike.
TABLE = {None: (0.4, 0.3, 0.2, 0.1), 0: (0.07, 0.6, 0.3, 0.03), 1: (0.55, 0.01, 0.04, 0.4), 2: (0.2, 0.25, 0.45, 0.1),
         3: (0.02, 0.08, 0.3, 0.6)}  # fmt: skip


def of_table(steps: int, topk: int, table: Any = TABLE) -> Any:
    rows = torch.tensor([table[token] for token in range(4)]).log()
    first = likeliest(torch.tensor([table[None]]).log(), topk)
    return grown(first, lambda tokens, origins: likeliest(rows[tokens], topk), steps)


def test_a_tree_by_hand() -> None:
    """Two beams, two steps. First 0 (.4) and 1 (.3); after them 01 (.24), 02 (.12), 10 (.165) and 13 (.12)."""
    found = of_table(2, 2)
    assert found.tokens.tolist() == [[0, 1, 1, 2, 0, 3]]
    assert found.parents.tolist() == [[-1, -1, 0, 0, 1, 1]]
    assert found.scores.exp().tolist() == [pytest.approx([0.4, 0.3, 0.24, 0.12, 0.165, 0.12])]
    tree = found.trees(shape_of(2, 2, 5))
    assert (tree.tokens.tolist(), tree.parents.tolist()) == ([[0, 1, 1, 0]], [[0, 0, 1, 2]])
    assert tree.gaps.tolist() == pytest.approx([math.log(0.165 / 0.12)])
    assert tree.depths().tolist() == [[0, 1, 1, 2, 2]]
    said = torch.tensor([[1, 9, 0, 0, 7]])  # after the text 1, after 1 then 0
    assert tree.standing(said).tolist() == [[True, False, True, False, True]]


def after_by_table(path: tuple[int, ...]) -> dict[int, float]:
    return {token: math.log(chance) for token, chance in enumerate(TABLE[path[-1] if path else None])}


@pytest.mark.parametrize("topk", [1, 2, 3, 4])
@pytest.mark.parametrize("steps", [1, 2, 3, 5])
def test_trees_of_a_table_are_those_of_plain_python(steps: int, topk: int) -> None:
    most = drafted_by(steps, topk)
    for size in sorted({1, (1 + most) // 2, most}) if topk > 1 else [steps]:
        tree = of_table(steps, topk).trees(shape_of(steps, topk, size + 1))
        assert paths(tree) == tree_of(after_by_table, steps, topk, size)


def test_of_paths_that_are_worth_the_same_the_earlier_is_taken() -> None:
    """A certain draft makes a path worth as much as its beginning, which must come with it."""
    certain = {None: (0.6, 0.4, 1e-12, 1e-12)} | dict.fromkeys(range(4), (1.0, 1e-12, 1e-12, 1e-12))
    found = of_table(3, 2, certain)
    assert paths(found.trees(shape_of(3, 2, 4))) == [(0,), (0, 0), (0, 0, 0)]
    tree = found.trees(shape_of(3, 2, 6))
    assert paths(tree) == [(0,), (1,), (0, 0), (1, 0), (0, 0, 0)]
    assert float(tree.gaps[0]) == 0.0


WIRED: dict[str, tuple[Any, str, dict[str, Any]]] = {
    "llama": (LLAMA, "eagle3", {}),
    "two layers": (LLAMA | {"num_hidden_layers": 2}, "eagle3", {}),
    "latent attention": (MLA, "eagle3_mla", {}),
    "eagle-1": (EAGLE1, "eagle1", {}),
    "the token before": (LLAMA, "eagle3", {"token_shift": 0}),
    "positions from 3": (LLAMA, "eagle3", {"position_offset": 3, "feedback": "post_norm"}),
}


def random(folder: Path, name: str) -> tuple[Drafter, list[int], torch.Tensor]:
    """A drafter, a text of 40 tokens, and states for all but the last."""
    config, kind, knobs = WIRED[name]
    ref, _ = write_random(folder, config, kind)
    declared = declared_wiring(open_drafter(ref))
    assert declared is not None
    drafter = load_drafter(ref, wiring=replace(declared, embedding="own", head="own", **knobs))
    made = torch.Generator().manual_seed(4)
    slots, width = drafter.states_shape
    states = torch.randn((slots, 39, width), generator=made)
    return drafter, torch.randint(0, 60, (40,), generator=made).tolist(), states


@pytest.mark.parametrize("name", WIRED)
def test_all_at_once_beside_a_text_and_path_by_path_grow_the_same_trees(name: str, tmp_path: Path) -> None:
    drafter, tokens, states = random(tmp_path, name)
    at_once, seen = branches(drafter, tokens[1:], states, 5, 3, 30), drafter.start()
    drafter.extend(seen, tokens[1:31], states[:, :30])
    for start in range(9):
        drafter.extend(seen, tokens[31 + start : 32 + start], states[:, 30 + start : 31 + start])
        beside = drafter.branches(seen, 5, 3)
        assert torch.allclose(at_once.scores[start], beside.scores[0], atol=1e-4, rtol=1e-4)
        for shape in SHAPES[:4]:
            alike = paths(at_once.trees(shape), start) == paths(beside.trees(shape))
            assert alike or float(at_once.trees(shape).gaps[start]) < 1e-4
    after = drafting(drafter, tokens[:32], states[:, :31])
    for shape in SHAPES[:4]:
        assert paths(at_once.trees(shape)) == tree_of(after, shape.steps, 3, shape.num_draft_tokens - 1)


@pytest.mark.parametrize("name", ["llama", "latent attention"])
def test_one_beam_is_a_chain(name: str, tmp_path: Path) -> None:
    drafter, tokens, states = random(tmp_path, name)
    chains = choices(drafter, tokens[1:], states, 1, 20)
    trees = branches(drafter, tokens[1:], states, 6, 1, 20).trees(shape_of(6))
    assert torch.equal(trees.tokens[:, 0], chains.ids[0])
    assert trees.parents.tolist() == [[0, 1, 2, 3, 4, 5]] * 19
    seen = drafter.start()
    drafter.extend(seen, tokens[1:21], states[:, :20])
    for start in range(19):
        drafter.extend(seen, tokens[21 + start : 22 + start], states[:, 20 + start : 21 + start])
        assert drafter.chain(seen, 6).tolist() == trees.tokens[start].tolist()


def test_trees_leave_no_trace(tmp_path: Path) -> None:
    drafter, tokens, states = random(tmp_path, "two layers")
    seen, alone = drafter.start(), drafter.start()
    for cache in (seen, alone):
        drafter.extend(cache, tokens[1:31], states[:, :30])
    drafter.branches(seen, 4, 5)
    assert torch.equal(drafter.chain(seen, 4), drafter.chain(alone, 4))
    drafter.branches(seen, 4, 5)
    more = (tokens[31:35], states[:, 30:34])
    assert torch.equal(drafter.extend(seen, *more), drafter.extend(alone, *more))


def test_more_starts_than_are_run_at_a_time_draft_what_each_does_alone(tmp_path: Path) -> None:
    """With 24 beams 1,024 rows are those of 42 starts."""
    drafter, tokens, states = random(tmp_path, "llama")
    tokens, states = (tokens * 3)[:100], torch.cat([states] * 3, dim=1)[:, :99]
    together = branches(drafter, tokens[1:], states, 3, 24)
    for start in (0, 41, 42, 43, 84, 98):
        alone = branches(drafter, tokens[1:], states[:, : start + 1], 3, 24, start)
        shape = shape_of(3, 24, 12)
        assert paths(together.trees(shape), start) == paths(alone.trees(shape))


def test_what_cannot_be_grown_is_refused(tmp_path: Path) -> None:
    drafter, tokens, states = random(tmp_path, "llama")
    with pytest.raises(InputsError, match="nothing to draft from"):
        drafter.branches(drafter.start(), 3, 2)
    with pytest.raises(InputsError, match=r"a top-k of 25, .*, pass 24 or less"):
        branches(drafter, tokens[1:], states, 3, 25)
    ahead = load_drafter(drafter.spec.ref, wiring=replace(drafter.wiring, token_shift=2))
    with pytest.raises(CannotRunError, match="token_shift 2"):
        branches(ahead, tokens[1:], states, 3, 2)


def test_eagle_grew_the_same_trees_and_accepted_the_same() -> None:
    """EAGLE's depth of 4 counts the steps after the first; of 20 tokens one is the last emitted. It stops at 48 tokens
    of rounds: 49 with the prefill's."""
    shape = shape_of(EAGLE["depth"] + 1, EAGLE["top_k"], EAGLE["total_tokens"])
    (run,) = replay_shapes(trained_drafter(), trained(49), [shape])
    assert [accepted(prompt, shape.steps) for prompt in run.prompts] == EAGLE["accepted"]
    assert (sum(c.rounds for c in run.counts()), sum(c.accepted for c in run.counts())) == (49, 148)
    assert (run.ties(), run.close_drafts()) == ((), 0)
    for prompt, theirs in zip(run.prompts, EAGLE["trees"], strict=True):
        starts = [start for start, _ in rounds_of(prompt.matches.tolist(), shape.steps)]
        assert [tree_at(prompt, start) for start in starts[:3]] == theirs


def accepted(prompt: ReplayedPrompt, steps: int) -> list[int]:
    return [count for _, count in rounds_of(prompt.matches.tolist(), steps)]


def tree_at(prompt: ReplayedPrompt, start: int) -> dict[str, list[int]]:
    assert prompt.parents is not None
    return {"tokens": prompt.drafts[:, start].tolist(), "parents": prompt.parents[:, start].tolist()}


def test_many_shapes_from_one_reading_accept_what_plain_trees_do() -> None:
    drafter, recording = trained_drafter(), trained(24)
    prompt = recording.held[2]
    runs = replay_shapes(drafter, held([prompt], hidden_size=128, vocab_size=512), [shape_of(4), *SHAPES])
    tokens = prompt.tokens.tolist()
    for run in runs[1:]:
        (replayed,) = run.prompts
        for start in (0, 7, 22):
            length = 49 + start
            after = drafting(drafter, tokens[:length], prompt.states[:, : length - 1])
            plain = tree_of(after, run.shape.steps, run.shape.topk, run.shape.num_draft_tokens - 1)
            assert paths_of(**tree_at(replayed, start)) == plain
            assert int(replayed.matches[start]) == accepted_of(plain, tokens[length:])
    assert runs[0].counts() == replay(drafter, held([prompt], hidden_size=128, vocab_size=512), 4).counts()


def test_counts_of_trees_keep_the_identities() -> None:
    shapes = [shape_of(5, 4, 20), shape_of(5, 4, 3), shape_of(1, 4, 5)]
    for run in replay_shapes(trained_drafter(), trained(40), shapes):
        record = Acceptance.pooled(run.counts(), **asdict(run.shape))
        assert record.drafted == record.rounds * (run.shape.num_draft_tokens - 1)
        assert len(record.histogram or ()) == run.shape.steps + 1
        assert not any((record.histogram or ())[run.shape.deepest + 1 :])
        ceiling = Acceptance.pooled(run.ceiling(), **asdict(run.shape))
        assert record.accept_len <= ceiling.accept_len <= 1 + run.shape.deepest


def test_an_answer_of_one_token_and_a_sampled_recording() -> None:
    (run,) = replay_shapes(trained_drafter(), trained(1), [shape_of(3, 2, 4)])
    assert [(c.rounds, c.tokens) for c in run.counts()] == [(0, 1)] * 4
    sampled = replace(trained(8), manifest=replace(trained(8).manifest, temperature=0.7))
    with pytest.raises(UsageError, match=r"a tree of top-k 2 on a recording at temperature 0.7"):
        replay_shapes(trained_drafter(), sampled, [shape_of(3, 2, 4)])


def test_a_close_choice_of_the_drafter_is_counted() -> None:
    first = Likeliest(torch.tensor([[3, 1]]), torch.tensor([[-0.5, -1.0]]), torch.tensor([5e-5]))
    found = grown(first, lambda t, o: Likeliest(t[..., None] + torch.arange(2), -torch.ones((1, 2, 2)), t * 0.0 + 1), 2)
    assert float(found.trees(shape_of(1, 2, 3)).gaps) == pytest.approx(5e-5)
    assert float(found.trees(shape_of(2, 2, 4)).gaps) == 0.0  # both children of 3 are worth the same


def test_shapes() -> None:
    assert (shape_of(3).num_draft_tokens, shape_of(5, 4, 20).most_tokens, shape_of(5, 4, 3).deepest) == (4, 69, 2)
    for given, says in {
        (0,): "0 steps",
        (3, 0): "0 topk",
        (3, 1, 5): "give 4, or leave it out",
        (3, 4): "whose number of tokens to verify is not said, --num-draft-tokens, give 2 to 37",
        (2, 2, 8): "give 2 to 7",
        (2, 2, 1): "give 2 to 7",
    }.items():
        with pytest.raises(UsageError, match=says):
            shape_of(*given)


def test_shapes_of_a_sweep() -> None:
    shapes, notes = shapes_of((1, 2), (1, 2), (4, 6))
    assert shapes == (shape_of(1), shape_of(2), shape_of(2, 2, 4), shape_of(2, 2, 6))
    assert notes == (
        "left out, as fewer tokens are drafted than would be verified: 4 at 1 steps, top-k 2; 6 at 1 steps, top-k 2",
    )
    assert shapes_of((2,), (1,), ()) == ((shape_of(2),), ())
    for given, says in {
        ((2,), (1,), (4,)): "chains alone",
        ((2,), (1, 2), ()): "is not said",
        ((1,), (2,), (9,)): "give 2 to 3",
    }.items():
        with pytest.raises(UsageError, match=says):
            shapes_of(*given)
