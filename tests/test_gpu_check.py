"""The logic of the check for machines with a GPU, on a CPU. What it says of a GPU is not tested here."""

from __future__ import annotations

import re
import time
from dataclasses import replace

import pytest
import torch

from benchmarks.gpu_check import Found, certain_rounds, judged, main, run
from benchmarks.pairs import Pair, bundled_pair
from drafter_audit.decode.live import LiveRun, decode_live
from drafter_audit.decode.replay import ReplayRun, replay, rounds_of
from drafter_audit.decode.settings import Settings
from drafter_audit.recording import make
from drafter_audit.recording.open import open_recording


@pytest.fixture(scope="module")
def both(tmp_path_factory) -> tuple[LiveRun, ReplayRun]:
    pair: Pair = bundled_pair(2)
    folder = tmp_path_factory.mktemp("gpu") / "rec"
    make.record(pair.target, pair.prompts, folder, make.Settings((2, 6, 9), max_new_tokens=24, lookahead=3))
    live = decode_live(pair.drafter, pair.target, pair.prompts, Settings(3, 24))
    return live, replay(pair.drafter, open_recording(folder), 3)


def test_without_a_gpu_nothing_is_claimed(capsys: pytest.CaptureFixture[str]) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    assert main([]) == 3
    assert capsys.readouterr() == ("", "no GPU here\n")


def test_live_and_replay_agree_up_to_a_tie(both: tuple[LiveRun, ReplayRun]) -> None:
    found = judged(*both, (0.0, 0.0, 0.0))
    assert found.ok, found.text
    assert re.match(r"[1-9]\d* of \d+ rounds before a tie, 0 prompts apart, 0 mismatches", found.text)


def test_a_round_that_differs_before_a_tie_fails(both: tuple[LiveRun, ReplayRun]) -> None:
    live, replayed = both
    first, *rest = live.rounds
    other = replace(live, rounds=((first[0] + 1, *first[1:]), *rest))
    assert not judged(other, replayed, (0.0, 0.0, 0.0)).ok


@pytest.mark.parametrize("whose", ["gaps", "draft_gaps"])
def test_nothing_is_compared_from_a_tie_on(both: tuple[LiveRun, ReplayRun], whose: str) -> None:
    _, replayed = both
    prompt = replayed.prompts[0]
    whole = list(certain_rounds(prompt, replayed))
    starts = [start for start, _ in rounds_of(prompt.matches.tolist(), 3)]
    gaps = getattr(prompt, whose).clone()
    gaps[..., starts[2]] = 0.0  # the target's token with which the third round begins; the drafter's first draft of it
    expected = 1 if whose == "gaps" else 2
    assert list(certain_rounds(replace(prompt, **{whose: gaps}), replayed)) == whole[:expected]
    assert len(whole) > 2


def test_stages_do_not_hide_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    def broken() -> Found:
        raise RuntimeError("lost")

    def long() -> Found:
        time.sleep(30)
        return Found(True, "")

    assert run([("a", broken), ("b", lambda: Found(True, "well")), ("c", lambda: Found(False, "ill"))], 60) == 1
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["failed", "passed", "failed"]
    assert run([("a", lambda: Found(True, "")), ("b", long), ("c", lambda: Found(True, ""))], 0.5) == 3
    words = [line[:11].strip() for line in capsys.readouterr().out.splitlines()]
    assert words == ["passed", "not reached", "not reached"]


@pytest.mark.slow
def test_the_whole_of_it_on_a_small_pair(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--small"]) == 0, capsys.readouterr().out
