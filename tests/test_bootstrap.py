"""Intervals over prompts: their coverage of a known truth, and what they are at the ends."""

from __future__ import annotations

import time
from statistics import NormalDist

import numpy as np
import pytest

from drafter_audit.measure.acceptance import Acceptance, PromptCounts
from drafter_audit.measure.bootstrap import (
    _student,
    accept_len_difference,
    accept_len_interval,
    ratio_interval,
)

STEPS = 3
KINDS = ((0.5, 30), (0.8, 60))
"""Two kinds of prompts, equally frequent: the chance that each draft is right, and the mean number of rounds."""


def drafts_per_round(chance: float) -> float:
    return sum(chance**j for j in range(1, STEPS + 1))


TRUTH = sum(rounds * drafts_per_round(chance) for chance, rounds in KINDS) / sum(rounds for _, rounds in KINDS)


def counts(draw: np.random.Generator, prompts: int, shift: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """Accepted drafts and rounds of each prompt; a run of right drafts ends at the first wrong one."""
    kinds = np.array(KINDS)[draw.integers(0, 2, prompts)]
    rounds = draw.integers(kinds[:, 1] // 2, kinds[:, 1] * 3 // 2 + 1)
    accepted = [
        int(np.minimum(draw.geometric(1 - chance - shift, size) - 1, STEPS).sum())
        for chance, size in zip(kinds[:, 0], rounds, strict=True)
    ]
    return np.array(accepted), rounds


@pytest.mark.parametrize("prompts", [12, 40])
def test_an_interval_covers_the_truth_19_times_in_20(prompts: int) -> None:
    draw, runs = np.random.default_rng(prompts), 400
    found = [ratio_interval(*counts(draw, prompts), seed=run) for run in range(runs)]
    coverage = sum(low <= TRUTH <= high for low, high in filter(None, found)) / runs
    print(f"coverage with {prompts} prompts: {coverage:.3f}")
    assert abs(coverage - 0.95) < 3 * (0.95 * 0.05 / runs) ** 0.5


def test_an_interval_of_a_difference_covers_the_truth() -> None:
    """b drafts each prompt of a with a chance that is 0.05 higher."""
    draw, runs, prompts = np.random.default_rng(5), 200, 20
    means = [sum(r * drafts_per_round(c + by) for c, r in KINDS) / sum(r for _, r in KINDS) for by in (0, 0.05)]
    hits = 0
    for seed in range(runs):
        state = draw.bit_generator.state
        a = run_of(*counts(draw, prompts))
        draw.bit_generator.state = state  # the same prompts, answered at the same length
        b = run_of(*counts(draw, prompts, 0.05))
        low, high = accept_len_difference(a, b, seed=seed).interval or (0.0, 0.0)
        hits += low <= means[1] - means[0] <= high
    print(f"coverage of a difference: {hits / runs:.3f}")
    assert abs(hits / runs - 0.95) < 3 * (0.95 * 0.05 / runs) ** 0.5


def run_of(accepted: np.ndarray, rounds: np.ndarray) -> Acceptance:
    """A run with these sums for each prompt."""
    prompts = []
    for place, (more, size) in enumerate(zip(accepted.tolist(), rounds.tolist(), strict=True)):
        full, rest = divmod(more, STEPS)
        each = [STEPS] * full + [rest] * bool(rest)
        prompts.append(PromptCounts.of(f"p{place}", None, each + [0] * (size - len(each)), steps=STEPS))
    return Acceptance.pooled(prompts, steps=STEPS)


def test_pairing_makes_a_difference_sharper() -> None:
    """Drafters that differ by one draft a prompt, on prompts that differ by much more."""
    draw = np.random.default_rng(3)
    accepted, rounds = counts(draw, 60)
    a, b = run_of(accepted, rounds), run_of(accepted + 1, rounds)
    found = accept_len_difference(a, b)
    assert found.interval is not None
    assert found.difference == pytest.approx(b.accept_len - a.accept_len)
    assert found.interval[0] < found.difference < found.interval[1]
    alone = [accept_len_interval(run) or (0.0, 0.0) for run in (a, b)]
    assert found.interval[1] - found.interval[0] < 0.1 * min(high - low for low, high in alone)
    back = accept_len_difference(b, a)
    assert back.interval is not None
    assert (back.difference, *back.interval) == pytest.approx(
        (-found.difference, *(-end for end in found.interval[::-1]))
    )


@pytest.mark.parametrize(("freedom", "table"), [(3, 3.182), (5, 2.571), (10, 2.228), (30, 2.042), (120, 1.980)])
def test_quantiles_of_student(freedom: int, table: float) -> None:
    """97.5%, as printed in tables of the distribution."""
    assert _student(NormalDist().inv_cdf(0.975), freedom) == pytest.approx(table, rel=0.01)


def test_a_few_prompts_give_their_own_range() -> None:
    low, high = ratio_interval([1, 4, 9], [2, 4, 6]) or (0.0, 0.0)
    assert (low, high) == pytest.approx((0.5, 1.5))


def test_one_prompt_gives_no_interval() -> None:
    one = Acceptance.pooled([PromptCounts.of("a", None, [1, 2], steps=STEPS)], steps=STEPS)
    assert accept_len_interval(one) is None
    assert accept_len_difference(one, one).interval is None
    silent = PromptCounts.of("b", None, [], steps=STEPS)  # ended with its first token: it tells nothing
    assert accept_len_interval(Acceptance.pooled([*one.per_prompt, silent], steps=STEPS)) is None
    assert accept_len_interval(Acceptance.from_counters(steps=3, rounds=9, accepted=4)) is None


def test_equal_prompts_give_an_interval_of_no_width() -> None:
    assert ratio_interval([3] * 9, [2] * 9) == (1.5, 1.5)


def test_the_seed_decides() -> None:
    accepted, rounds = counts(np.random.default_rng(0), 30)
    first, again, other = (ratio_interval(accepted, rounds, seed=seed) for seed in (1, 1, 2))
    assert first == again != other


def test_runs_on_other_prompts_are_not_paired() -> None:
    a, b = (Acceptance.pooled([PromptCounts.of(i, None, [1], steps=STEPS)], steps=STEPS) for i in "ab")
    with pytest.raises(ValueError, match="same prompts"):
        accept_len_difference(a, b)


def test_200_prompts_take_well_under_a_second() -> None:
    accepted, rounds = counts(np.random.default_rng(0), 200)
    start = time.process_time()
    ratio_interval(accepted, rounds)
    assert time.process_time() - start < 1
