"""A figure held to a bar: where it stands, how many prompts would tell, and how often that is wrong."""

from __future__ import annotations

import pytest

from benchmarks.gate import accept_len, made_up, of_change, of_figure
from drafter_audit.measure.bars import LEAST_PROMPTS, Standing, standing


@pytest.mark.parametrize(
    ("interval", "place"),
    [((2.0, 2.4), "above"), ((1.9, 2.4), "unsure"), ((1.5, 2.0), "unsure"), ((1.5, 1.99), "below")],
)
def test_one_end_of_the_interval_decides(interval: tuple[float, float], place: str) -> None:
    assert standing(sum(interval) / 2, interval, 2.0, 40).place == place


def test_an_interval_half_as_wide_takes_four_times_the_prompts() -> None:
    assert standing(2.1, (1.9, 2.3), 2.0, 40) == Standing("unsure", 160)
    assert standing(2.0, (1.9, 2.3), 2.0, 40) == Standing("unsure", None)


def test_too_few_prompts_tell_nothing() -> None:
    assert standing(3.0, (2.9, 3.1), 2.0, LEAST_PROMPTS - 1) == Standing("unsure", LEAST_PROMPTS)
    assert standing(3.0, None, 2.0, 1).place == "unsure"


DRAWS, BASE = 300, made_up(2000)


@pytest.mark.parametrize("prompts", [12, 24])
def test_at_the_bar_both_errors_are_rare_and_off_it_there_are_none(prompts: int) -> None:
    """Nominal 2.5% each; 6% is more than three deviations of 300 draws above."""
    draws, truth = of_figure(BASE, prompts, DRAWS), accept_len(BASE)
    at, good, bad = (draws.held_to(truth - above) for above in (0.0, 0.5, -0.5))
    assert at.failed <= 0.06
    assert at.passed <= 0.06
    assert (good.failed, bad.passed) == (0.0, 0.0)
    assert good.passed > 0.5
    assert bad.failed > 0.5


def test_a_drafter_that_lost_nothing_always_passes_against_its_baseline() -> None:
    whole = made_up(200)
    assert of_change(whole, whole, 12, 50).held_to(0.0).passed == 1.0
