"""Replay against the live loop on the reference pair: the same rounds, drafts and histogram for each prompt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from drafter_audit import Drafter
from drafter_audit.decode.live import decode_live
from drafter_audit.decode.loading import planned
from drafter_audit.decode.replay import ReplayRun, replay_shapes
from drafter_audit.decode.settings import Settings
from drafter_audit.measure.shape import Shape, shape_of
from drafter_audit.model.target.load import load_target
from drafter_audit.model.target.model import TargetModel
from drafter_audit.model.target.tokenizer import load_tokenizer
from drafter_audit.prompts.prompt import TokenPrompt
from drafter_audit.prompts.read import read_prompts
from drafter_audit.prompts.render import render
from drafter_audit.recording.make import Settings as Kept
from drafter_audit.recording.make import record
from drafter_audit.recording.open import open_recording

HELD_OUT = Path(__file__).parent / "data/prompts/held_out.jsonl"
NEW, STEPS = 32, 10


@cache
def pair() -> tuple[Drafter, TargetModel]:
    target = load_target("tiny-target", dtype="float32")
    return planned("tiny", target).load("float32"), target


@cache
def prompts(every: int) -> tuple[TokenPrompt, ...]:
    """One in so many of 240."""
    tokenizer, (_, target) = load_tokenizer("tiny-target"), pair()
    assert tokenizer is not None
    sizes = {"vocab_size": target.vocab_size, "max_positions": target.max_positions, "max_new_tokens": NEW}
    given = read_prompts(str(HELD_OUT))
    return render(
        replace(given, prompts=given.prompts[::every]), tokenizer.tokenizer, thinking=None, raw=False, **sizes
    )


def replayed(given: Sequence[TokenPrompt], folder: Path, shapes: Sequence[Shape]) -> tuple[ReplayRun, ...]:
    drafter, target = pair()
    record(target, given, folder, Kept((2, 6, 9), max_new_tokens=NEW, lookahead=STEPS))
    return replay_shapes(drafter, open_recording(folder), shapes)


def apart(run: ReplayRun, given: Sequence[TokenPrompt]) -> list[str]:
    """The prompts that the two count differently, those with a tie of the target's left out."""
    live = decode_live(*pair(), given, Settings(run.shape.steps, NEW, plain=False)).counts
    tied = {tie.prompt for tie in run.ties()}
    assert len(tied) <= len(given) // 20
    both = zip(live, run.counts(), strict=True)
    return [mine.id for mine, its in both if mine != its and mine.id not in tied]


def test_the_live_loop_counts_the_same(tmp_path: Path) -> None:
    given = prompts(20)
    runs = replayed(given, tmp_path / "rec", [shape_of(steps) for steps in (1, 3, 10)])
    assert [apart(run, given) for run in runs] == [[], [], []]
    assert sum(counts.accepted for counts in runs[-1].counts()) > 50


@pytest.mark.slow
def test_the_live_loop_counts_the_same_over_240_prompts_at_every_step_count(tmp_path: Path) -> None:
    given = prompts(1)
    assert len(given) == 240
    for run in replayed(given, tmp_path / "rec", [shape_of(steps) for steps in range(1, STEPS + 1)]):
        assert apart(run, given) == [], run.shape
