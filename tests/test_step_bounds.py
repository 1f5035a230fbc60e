"""What an accept_len at one step count says about another, checked against every profile of a small grid."""

from __future__ import annotations

from itertools import pairwise, product

import pytest

from drafter_audit.measure.step_bounds import bound_accept_len, break_even, tokens_per_s_at


def test_the_published_case() -> None:
    bounds = bound_accept_len(3.165, 3.490, steps=3, to_steps=2)
    assert bounds.low == pytest.approx(2.443, abs=5e-4)
    assert bounds.high == 3.0


@pytest.mark.parametrize("to_steps", [1, 2, 3, 4, 5])
def test_no_profile_of_rates_leaves_the_bounds(to_steps: int) -> None:
    """Rates per position that do not rise, on a grid: the true accept_len at k' lies within what k = 3 allows."""
    grid = [step / 6 for step in range(7)]
    for rates in product(grid, repeat=5):
        if any(later > earlier for earlier, later in pairwise(rates)):
            continue
        at_three, truth = 1 + sum(rates[:3]), 1 + sum(rates[:to_steps])
        bounds = bound_accept_len(at_three, at_three, steps=3, to_steps=to_steps)
        assert bounds.low - 1e-9 <= truth <= bounds.high + 1e-9


def test_the_same_step_count_changes_nothing() -> None:
    assert bound_accept_len(2.1, 2.4, steps=3, to_steps=3) == bound_accept_len(2.1, 2.4, steps=1_000, to_steps=1_000)


def test_throughput_arithmetic() -> None:
    assert tokens_per_s_at(4.2, measured=2.1, tokens_per_s=94.0) == pytest.approx(188.0)
    assert break_even(2.1, 94.0, 94.0) == 2.1
    assert break_even(2.1, 94.0, 88.8) == pytest.approx(1.984, abs=5e-4)
