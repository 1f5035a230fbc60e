"""Trees beside a target that runs: against EAGLE's own rounds, the target alone, and replay, tree for tree."""

from __future__ import annotations

import inspect
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from drafter_audit import Drafter, load_drafter
from drafter_audit.decode.live import decode_live
from drafter_audit.decode.replay import ReplayedPrompt, replay_shapes, rounds_of
from drafter_audit.decode.settings import Settings
from drafter_audit.decode.text import Text
from drafter_audit.errors import CannotRunError, UsageError
from drafter_audit.measure.shape import Shape, shape_of
from drafter_audit.model.drafter import DrafterCache
from drafter_audit.model.target.branches import check_branches
from drafter_audit.model.target.cache import name_in
from drafter_audit.model.target.load import load_target
from drafter_audit.model.trees import Candidates
from drafter_audit.prompts.prompt import TokenPrompt
from drafter_audit.recording.make import Settings as Kept
from drafter_audit.recording.make import record
from drafter_audit.recording.open import open_recording
from tests.live_pairs import narrow_pair, narrow_prompts
from tests.test_live import TARGET, TRAINED, is_lossless
from tests.test_replay_live import NEW, STEPS, pair, prompts
from tests.test_trees import EAGLE, accepted, tree_at
from tests.tiny_targets import write_family

SHAPES = (shape_of(2, 2, 5), shape_of(5, 4, 16), shape_of(6, 8, 32), shape_of(4, 3, 4))


def test_eagle_accepted_the_same_in_every_round() -> None:
    rows = json.loads((TARGET / "prompts.json").read_text())["prompts"]
    given = [TokenPrompt(str(at), None, tuple(ids)) for at, ids in enumerate(rows)]
    asked = Settings(EAGLE["depth"] + 1, 49, ignore_end=True, topk=4, num_draft_tokens=EAGLE["total_tokens"])
    drafter = load_drafter(str(TRAINED), target=str(TARGET))
    run = decode_live(drafter, load_target(str(TARGET)), given, asked)
    assert [list(each) for each in run.rounds] == EAGLE["accepted"]
    assert (sum(c.rounds for c in run.counts), sum(c.accepted for c in run.counts)) == (49, 148)
    assert is_lossless(run)


@dataclass(frozen=True, repr=False)
class Listening(Drafter):
    """Keeps the positions that it had seen when it drafted, and all candidates."""

    drafted: list[tuple[int, Candidates]] = field(default_factory=list)

    def branches(self, cache: DrafterCache, steps: int, topk: int) -> Candidates:
        made = super().branches(cache, steps, topk)
        self.drafted.append((cache.length, made))
        return made


def listening(drafter: Drafter) -> Listening:
    return Listening(**{each.name: getattr(drafter, each.name) for each in fields(Drafter)})


def settings(shape: Shape, **told: Any) -> Settings:
    return Settings(shape.steps, NEW, plain=False, topk=shape.topk, num_draft_tokens=shape.num_draft_tokens, **told)


def live_trees(prompt: TokenPrompt, shape: Shape) -> tuple[tuple[int, ...], list[tuple[int, dict[str, list[int]]]]]:
    """What each round accepted, and the start of each with its tree."""
    drafter, target = pair()
    heard = listening(drafter)
    run = decode_live(heard, target, [prompt], settings(shape))
    trees = [(seen - len(prompt.ids), made.trees(shape)) for seen, made in heard.drafted]
    told = [(at, {"tokens": t.tokens[0].tolist(), "parents": t.parents[0].tolist()}) for at, t in trees]
    first = min(1, len(told))  # one round is decoded before all others, and counts nowhere
    return run.rounds[0], told[first:]


def replayed_trees(prompt: ReplayedPrompt, shape: Shape) -> list[tuple[int, dict[str, list[int]]]]:
    return [(start, tree_at(prompt, start)) for start, _ in rounds_of(prompt.matches.tolist(), shape.steps)]


def apart(given: Sequence[TokenPrompt], folder: Path, shapes: Sequence[Shape]) -> list[tuple[str, Shape]]:
    """Where live and replay differ in a round or in a tree, though nothing was close."""
    drafter, target = pair()
    record(target, given, folder, Kept((2, 6, 9), max_new_tokens=NEW, lookahead=STEPS))
    found = []
    for run in replay_shapes(drafter, open_recording(folder), shapes):
        tied = {tie.prompt for tie in run.ties()}
        for prompt, replayed in zip(given, run.prompts, strict=True):
            rounds, trees = live_trees(prompt, run.shape)
            same = (list(rounds), trees) == (accepted(replayed, run.shape.steps), replayed_trees(replayed, run.shape))
            if not same and prompt.id not in tied and not replayed.close_drafts(run.shape, 1e-4):
                found.append((prompt.id, run.shape))
    return found


def test_live_and_replay_agree_in_every_round_and_every_tree(tmp_path: Path) -> None:
    assert apart(prompts(60), tmp_path / "rec", SHAPES[:3]) == []


@pytest.mark.slow
def test_live_and_replay_agree_over_240_prompts(tmp_path: Path) -> None:
    assert apart(prompts(1), tmp_path / "rec", SHAPES) == []


TAKEN = {"llama": (1, 2, 3), "deepseek_v3": (3, 1, 3), "qwen3_moe": (0, 2, 4)}


@pytest.mark.parametrize("family", TAKEN)
def test_a_tree_leaves_the_targets_own_text(family: str, tmp_path: Path) -> None:
    drafter, target = narrow_pair(tmp_path, family, TAKEN[family])
    asked = Settings(4, 24, ignore_end=True, topk=3, num_draft_tokens=20)
    run = decode_live(drafter, target, narrow_prompts(), asked)
    assert is_lossless(run)
    assert sum(map(sum, run.rounds)) > 1


def test_branches_that_stay_leave_the_cache_as_if_they_alone_were_read(tmp_path: Path) -> None:
    target = load_target(write_family("llama", tmp_path / "target"))
    text, alone, ids = Text(target), Text(target), torch.arange(5, 17)
    for each in (text, alone):
        each.read(ids)
    logits, _ = text.read_ahead(torch.tensor([3, 4, 9, 6, 7]), torch.tensor([-1, 0, 0, 1, 2]))
    plain, _ = alone.read(torch.tensor([3, 9, 7]))
    assert torch.allclose(logits[[0, 2, 4]], plain, atol=1e-4)
    text.keep(torch.tensor([0, 2, 4]))
    more, _ = text.read(torch.tensor([8]))
    assert torch.allclose(more, alone.read(torch.tensor([8]))[0], atol=1e-4)
    text.read_ahead(torch.tensor([3, 4, 9]), torch.tensor([-1, 0, 0]))
    text.keep(torch.tensor([0, 1]))
    alone.read(torch.tensor([3, 4]))
    assert torch.allclose(text.read(torch.tensor([8]))[0], alone.read(torch.tensor([8]))[0], atol=1e-4)


@pytest.mark.parametrize("family", ["gemma3", "qwen3_next"])
def test_a_target_that_cannot_read_branches_is_refused_and_replay_named(family: str, tmp_path: Path) -> None:
    drafter, target = narrow_pair(tmp_path, family, (1, 2, 3))
    with pytest.raises(CannotRunError, match=r"not all of full attention, .*decode --recording"):
        decode_live(drafter, target, narrow_prompts(), settings(shape_of(3, 2, 4)))


@pytest.mark.parametrize("family", ["qwen2_5_vl", "kimi_k25"])
def test_wrapped_targets_read_branches(family: str, tmp_path: Path) -> None:
    check_branches(load_target(write_family(family, tmp_path / "target")))


class Blind(torch.nn.Module):
    """A model that takes a mask and does not heed it."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.inner, self.config = model, model.config

    def forward(self, input_ids: Any, cache: Any = None, attention_mask: Any = None, **told: Any) -> Any:
        name = name_in(inspect.signature(type(self.inner).forward).parameters)
        return self.inner(input_ids, **{name: cache}, **told)


def test_a_target_that_heeds_no_mask_is_found_out(tmp_path: Path) -> None:
    target = load_target(write_family("llama", tmp_path / "target"))
    check_branches(target)
    with pytest.raises(CannotRunError, match="otherwise than each path alone"):
        check_branches(replace(target, model=Blind(target.model)))


def test_sampled_trees_are_refused() -> None:
    with pytest.raises(UsageError, match=r"top-k 4 at temperature 0.7, where only chains are verified"):
        Settings(temperature=0.7, topk=4, num_draft_tokens=8)
