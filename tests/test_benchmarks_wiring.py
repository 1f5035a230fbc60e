"""What is told of the wiring check's cost and of how sure it is: the benchmark runs, draws are what they stand for, and
docs/wiring.md shows what was measured."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.wiring import BOUND, Sizes, measure
from benchmarks.wiring_draws import Draw, Scored, draw, drawn
from benchmarks.wiring_misses import misses
from benchmarks.wiring_page import alarm_line, at_most, miss_table, plots, rate_table
from benchmarks.wiring_rates import blames
from drafter_audit.recording.recording import Recording
from drafter_audit.wiring.probe import open_probe
from drafter_audit.wiring.search import search
from tests.planted import TINY, planted

DOCS = Path(__file__).resolve().parents[1] / "docs"
SMALL = Sizes(bundled=2, random=2, prompt=4, recorded=6, judged=8, other=())


@pytest.mark.usefixtures("one_thread")
def test_it_runs_on_small_sizes() -> None:
    rows = {row.name: row for row in measure(1, SMALL)}
    judged = {name for name, row in rows.items() if row.bound is not None}
    assert judged == {"bundled: probe / record", "bundled: search / record", "random, 8 layers: probe / record"}
    for pair in ("bundled", "bundled with ids -1", "random, 8 layers"):
        for what in ("probe", "search"):
            spent = rows[f"{pair}: {what}, s"].ours, rows[f"{pair}: record, s"].ours
            assert rows[f"{pair}: {what} / record"].ours == pytest.approx(spent[0] / spent[1])
        assert rows[f"{pair}: wirings"].ours > 60
    assert BOUND == 1.0


@pytest.fixture(scope="module")
def scored(tmp_path_factory: pytest.TempPathFactory, tiny_recording: Recording) -> Scored:
    return Scored.of(planted(tmp_path_factory.mktemp("faulty"), "ids -1"), tiny_recording)


def test_a_draw_of_all_prompts_finds_what_the_search_does(scored: Scored, tiny_recording: Recording) -> None:
    everything = Draw(tuple(range(len(tiny_recording.manifest.answers))), 10**6)
    first = scored.on(everything).by_kl()
    assert first is not None
    path = search(open_probe(scored.probe.spec.origin.ref, tiny_recording)).path
    assert first.hypothesis.name == path[0].name


def test_what_is_blamed_is_compared_with_the_truth(scored: Scored, tiny_recording: Recording) -> None:
    everything = scored.on(Draw(tuple(range(len(tiny_recording.manifest.answers))), 10**6))
    truth = open_probe(str(TINY), tiny_recording).declared
    assert blames(everything, truth) == (True, True, True, True)
    assert blames(everything, replace(truth, rope_theta=3.0)) == (True, False, True, False)


def test_too_few_prompts_blame_nothing(scored: Scored, tiny_recording: Recording) -> None:
    few = scored.on(Draw(tuple(range(15)), 10**6))
    assert (few.by_kl(), few.by_accept_len()) == (None, None)


def test_scores_of_a_draw_are_those_of_its_recording(scored: Scored, tiny_recording: Recording) -> None:
    chosen = Draw((17, 3, 8), 10**6)
    taken, alone = scored.on(chosen), open_probe(scored.probe.spec.origin.ref, drawn(tiny_recording, chosen))
    score = alone.whole(alone.declared)
    np.testing.assert_allclose(taken.declared.score.kl, score.kl, atol=1e-4)
    np.testing.assert_array_equal(taken.declared.score.accepted, score.accepted)


@pytest.mark.parametrize("positions", [100, 250, 500])
def test_a_draw_cuts_the_answers_of_as_few_prompts_as_may_be(positions: int, tiny_recording: Recording) -> None:
    answers = tiny_recording.manifest.answers
    chosen = draw(answers, positions, range(len(answers)))
    starts = [answer.answer_length - 1 for answer in drawn(tiny_recording, chosen).manifest.answers]
    assert len(starts) == 16
    assert positions <= sum(starts) < positions + 16
    assert max(starts) == chosen.longest


def test_a_draw_of_many_positions_takes_more_prompts(tiny_recording: Recording) -> None:
    answers = tiny_recording.manifest.answers
    starts = [answer.answer_length - 1 for answer in answers]
    chosen = draw(answers, sum(starts[:18]), range(len(answers)))
    assert chosen == Draw(tuple(range(18)), max(starts))


@pytest.mark.parametrize(
    ("events", "draws", "bound"),
    [
        (0, 20, 1 - 0.025 ** (1 / 20)),  # the rate at which none in 20 is as rare as 2.5%
        (19, 20, 0.975 ** (1 / 20)),  # all 20 as likely as 97.5%
        (1, 20, 0.2487),  # R's binom.test(1, 20)
        (20, 20, 1.0),
    ],
)
def test_the_bound_of_a_rate_is_the_exact_one(events: int, draws: int, bound: float) -> None:
    assert at_most(events, draws) == pytest.approx(bound, abs=1e-4)


def test_an_interval_over_few_prompts_misses_what_is_rare() -> None:
    """One prompt of 40 has all of the difference: of two prompts drawn 95% see none of it, and both intervals are 0."""
    prompt_of = np.arange(40)
    rare = np.where(prompt_of == 7, 1.0, 0.0)
    two = next(misses("rare", np.zeros(40), rare, prompt_of, 200))
    assert (two.prompts, two.draws) == (2, 200)
    assert two.ours >= 180
    assert two.plain >= 180


# --- the page


@pytest.fixture(scope="module")
def measured() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DOCS / "wiring_rates.json").read_text())
    return found


def test_the_page_shows_what_was_measured(measured: dict[str, Any]) -> None:
    """Written by `python -m benchmarks.wiring_rates`."""
    _, _, page = (DOCS / "wiring.md").read_text().partition("\n### How sure\n")
    for told in (rate_table(measured), alarm_line(measured), miss_table(measured)):
        assert told in page


def test_what_the_page_concludes_is_in_the_figures(measured: dict[str, Any]) -> None:
    beyond = max(each["ours_beyond"] / each["draws"] for each in measured["misses"] if each["prompts"] >= 8)
    page = (DOCS / "wiring.md").read_text()
    assert f"a larger gain\nthan the true one was claimed in at most {beyond:.1%} of the draws" in page
    assert f"zero blamed is a rate of at most {at_most(0, measured['plan']['seeds']):.1%}" in page
    blamed = [rate for rate in measured["rates"] if rate["fault"] != "none"]
    assert sum(rate["draws"] for rate in blamed) == 3000
    assert sum(rate["kl"] - rate["kl_named"] for rate in blamed) == 0
    assert sum(rate["accept_len"] - rate["accept_len_named"] for rate in blamed) == 1
    sure = [r["kl"] for r in blamed if r["positions"] >= 500 and r["fault"] != "theta 15000"]
    assert min(sure) == 99
    assert not any(rate["kl"] for rate in measured["rates"] if rate["fault"] == "none")


def test_the_plots_show_what_was_measured(measured: dict[str, Any]) -> None:
    assert {name: (DOCS / name).read_text() for name in plots(measured)} == plots(measured)
