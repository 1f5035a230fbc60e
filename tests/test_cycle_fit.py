"""The costs of a cycle from the cells of a sweep, and what each lever could bring at most."""

from __future__ import annotations

import numpy as np
import pytest

from drafter_audit.measure.costs import StepCosts
from drafter_audit.measure.cycle_fit import Lever, fit_cycle, levers


def test_the_line_is_that_of_least_squares() -> None:
    cycles = {1: 21.9, 2: 22.4, 3: 22.8, 5: 24.6, 8: 25.1}
    fit = fit_cycle(cycles)
    slope, intercept = np.polyfit(list(cycles), list(cycles.values()), 1)
    assert fit is not None
    assert (fit.costs.draft_ms, fit.costs.verify_ms) == pytest.approx((slope, intercept))
    assert fit.off_ms == pytest.approx(max(abs(intercept + slope * k - ms) for k, ms in cycles.items()))
    assert fit.cells == 5


def test_noise_makes_no_negative_cost() -> None:
    fit = fit_cycle({1: 22.0, 2: 21.8})
    assert fit is not None
    assert fit.costs == StepCosts(verify_ms=21.9, draft_ms=0.0)


@pytest.mark.parametrize("cycles", [{}, {2: 22.0}, {1: 1.0, 2: 3.0}])
def test_too_little_is_no_fit(cycles) -> None:
    """One cell cannot tell the two costs apart; the last would verify for less than nothing."""
    assert fit_cycle(cycles) is None


def test_what_each_lever_could_bring() -> None:
    """20 ms to verify and 1 ms a step, where a plain token takes 10 ms."""
    found = levers(StepCosts(20.0, 1.0), {1: 1.7, 2: 2.1, 3: 2.2}, steps=2, plain_ms=10.0)
    assert found == (
        Lever("communication", 1000 * 2.1 / 12),
        Lever("drafter", 1000 * 3 / 22),
        Lever("steps", 1000 * 2.2 / 23),
    )


def test_without_a_baseline_communication_is_not_judged() -> None:
    assert {lever.name for lever in levers(StepCosts(20.0, 1.0), {2: 2.1}, 2, None)} == {"steps", "drafter"}
