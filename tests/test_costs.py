"""What rounds cost: the figures that started this project, and the arithmetic of a step more."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drafter_audit.errors import UsageError
from drafter_audit.measure.acceptance import Acceptance
from drafter_audit.measure.costs import NOT_MEASURED, Costs, StepCosts, Timing
from tests.acceptance_runs import drawn, runs

# 94 tok/s at accept_len 2.1 and 2 steps, 88.8 tok/s plain; verification took 95% of a cycle.
CYCLE = 2.1 / 94
MEASURED = Costs(
    Acceptance.from_counters(steps=2, rounds=1000, accepted=1100),
    Timing(950 * CYCLE, 20 * CYCLE, 20 * CYCLE, 10 * CYCLE, plain_s=100.0, plain_tokens=8880),
)


def test_the_figures_of_a_measured_run() -> None:
    assert pytest.approx(CYCLE) == MEASURED.cycle_s
    assert MEASURED.tokens_per_s == pytest.approx(94)
    assert MEASURED.timing.plain_tokens_per_s == pytest.approx(88.8)
    assert MEASURED.speedup == pytest.approx(94 / 88.8)
    assert MEASURED.break_even_accept_len == pytest.approx(1.984, abs=5e-4)


def test_what_another_accept_len_would_be_worth() -> None:
    assert MEASURED.what_if(2.4433) == pytest.approx(109.4, abs=0.05)
    assert MEASURED.what_if(3.0) == pytest.approx(134.3, abs=0.05)
    assert MEASURED.what_if(2.1) == pytest.approx(MEASURED.tokens_per_s)
    even = MEASURED.break_even_accept_len
    assert even is not None
    assert MEASURED.what_if(even) == pytest.approx(88.8)


@pytest.mark.parametrize("value", [3.001, 3.2, 0.99, -1.0, float("nan"), float("inf")])
def test_what_no_round_can_emit_is_refused(value: float) -> None:
    with pytest.raises(UsageError, match="a round of 2 steps emits 1 to 3 tokens") as caught:
        MEASURED.what_if(value)
    assert caught.value.exit_code == 2
    assert "--what-if" in str(caught.value)


def test_without_plain_decoding_there_is_nothing_to_break_even_with() -> None:
    alone = Costs(MEASURED.acceptance, Timing(1.0, 0.5, 0.25, 0.25))
    assert (alone.speedup, alone.break_even_accept_len) == (None, None)
    assert alone.tokens_per_s == pytest.approx(2100 / 2)


@pytest.mark.parametrize(
    "times",
    [
        (0, 0, 0, 0),
        (-1, 1, 1, 1),
        (float("nan"), 1, 1, 1),
        (1, 1, 1, 1, 2.0),
        (1, 1, 1, 1, 2.0, 0),
        (1, 1, 1, 1, None, 9),
    ],
)
def test_times_that_cannot_be_are_refused(times: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match=r"must be finite|takes both"):
        Timing(*times)


def test_the_json_says_the_same_with_and_without_times() -> None:
    assert MEASURED.to_dict().keys() == NOT_MEASURED.keys()
    assert {"verify_s", "draft_s", "extend_s", "other_s"} <= MEASURED.to_dict()["timing"].keys()


@drawn
@given(runs(), *[st.floats(0.001, 10)] * 5)
def test_a_cycle_is_the_same_by_round_and_by_step(
    run: Acceptance, verify: float, draft: float, extend: float, other: float, plain: float
) -> None:
    costs = Costs(run, Timing(verify, draft, extend, other, plain_s=plain, plain_tokens=100))
    assert costs.per_step.cycle_ms(run.steps) == pytest.approx(1000 * costs.cycle_s)
    assert costs.per_step.tokens_per_s(run.accept_len, run.steps) == pytest.approx(costs.tokens_per_s)
    even = costs.break_even_accept_len
    assert even == pytest.approx(costs.cycle_s / (plain / 100))
    assert even is not None
    assert (costs.speedup or 0) == pytest.approx(run.accept_len / even)


rates = st.lists(st.floats(0.01, 1), min_size=1, max_size=10).map(lambda rates: sorted(rates, reverse=True))


@drawn
@given(rates, st.floats(0.1, 100), st.floats(0.001, 100))
def test_one_more_step_pays_while_its_rate_exceeds_its_share_of_the_cycle(
    rates: list[float], verify: float, draft: float
) -> None:
    """Rates that do not rise give one summit: the first step count whose next step brings less than it costs."""
    costs = StepCosts(verify, draft)
    lengths = {k: 1 + sum(rates[:k]) for k in range(1, len(rates) + 1)}
    pays = [
        rates[k] * costs.cycle_ms(k) > lengths[k] * draft * (1 + 1e-9) for k in range(1, len(rates))
    ]  # rates[k] is that of step k + 1
    summit = next((k for k, more in enumerate(pays, 1) if not more), len(rates))
    worth = {k: costs.tokens_per_s(length, k) for k, length in lengths.items()}
    assert max(worth.values()) == pytest.approx(worth[summit])
    assert all(
        worth[later] <= worth[earlier] * (1 + 1e-9) for earlier, later in pairwise(range(summit, len(rates) + 1))
    )


@pytest.mark.parametrize("costs", [(0, 1), (-1, 1), (1, -1), (float("nan"), 1), (1, float("inf"))])
def test_costs_that_are_none_are_refused(costs: tuple[float, float]) -> None:
    with pytest.raises(UsageError, match="--verify-ms"):
        StepCosts(*costs)
