"""What `decode` and `sweep` answer: the JSON that was agreed on, pairs, and what a reader is shown."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from typing import Any

import pytest

from drafter_audit.decode.result import (
    DecodeResult,
    DecodeResults,
    DrafterFacts,
    Lossless,
    PromptFacts,
    Provenance,
    TargetFacts,
    Tie,
)
from drafter_audit.decode.sweep_result import SweepResult
from drafter_audit.errors import UsageError
from drafter_audit.measure.acceptance import Acceptance, PromptCounts
from drafter_audit.measure.costs import Costs, StepCosts, Timing
from drafter_audit.report.decode_view import decode_document
from drafter_audit.report.numbers import bar
from drafter_audit.report.render import render
from drafter_audit.report.sweep_view import sweep_document

TARGET = TargetFacts("org/target", "0123456789abcdef", "bfloat16", "int4")
PROMPTS = PromptFacts("pack.jsonl", "ab" * 32, 4)
CATEGORIES = ("code", "code", "maths", None)


def provenance(ref: str = "./ours", samples: int | None = None, **told: Any) -> Provenance:
    return Provenance(**{"mode": "live", "drafter": DrafterFacts(ref, None, samples), "target": TARGET,
                         "prompts": PROMPTS, **told})  # fmt: skip


def run(*rounds: list[int], steps: int = 3) -> Acceptance:
    prompts = [
        PromptCounts.of(f"p{i}", category, accepted, steps=steps, capped=i == 0, degenerate=i == 1)
        for i, (category, accepted) in enumerate(zip(CATEGORIES, rounds, strict=True))
    ]
    return Acceptance.pooled(prompts, steps=steps)


OURS = run([0, 1, 2, 3], [1, 1], [0, 0, 3], [2])
THEIRS = run([1, 2, 3, 3], [2, 1], [1, 0, 3], [3])
TIMING = Timing(0.9, 0.05, 0.03, 0.02, plain_s=1.0, plain_tokens=20)
LIVE = DecodeResult(
    provenance(),
    OURS,
    coverage=0.931,
    lossless=Lossless(27, 0, 2, 1e-4),
    ties=tuple(Tie(f"p{i}", 3, 3e-5) for i in range(7)),
    costs=Costs(OURS, TIMING),
    what_if=(2.8,),
    notes=("1 of 4 answers loops",),
)
REPLAY = DecodeResult(provenance("org/theirs", 1_400_000, mode="replay"), THEIRS)

CONTRACT = {
    *(
        "mode",
        "accept_len",
        "accept_len_interval",
        "accept_len_request_mean",
        "rounds",
        "accepted",
        "drafted",
        "tokens",
    ),
    *("overshoot", "histogram", "per_position", "per_position_counts", "conditional", "steps", "topk"),
    *("num_draft_tokens", "temperature", "rule", "stop", "degenerate", "coverage", "lossless", "timing"),
    *("tokens_per_s", "plain_tokens_per_s", "speedup", "break_even_accept_len", "per_prompt", "prompts", "seed"),
    *("drafter", "target"),
}
ROW = {"steps", "topk", "num_draft_tokens", "accept_len", "interval", "rounds", "accepted", "drafted", "tokens_per_s"}
NESTED = {
    "stop": {"eos", "cap"},
    "lossless": {"checked", "mismatches", "ties"},
    "timing": {"verify_s", "draft_s", "extend_s", "other_s"},
    "prompts": {"name", "sha256", "count"},
    "drafter": {"ref", "revision"},
    "target": {"ref", "revision", "dtype", "quantization"},
}


def test_the_json_has_the_names_agreed_on() -> None:
    told = json.loads(json.dumps(LIVE.to_dict(), allow_nan=False))
    assert told.keys() >= CONTRACT
    assert {name: told[name].keys() >= keys for name, keys in NESTED.items()} == dict.fromkeys(NESTED, True)
    assert REPLAY.to_dict().keys() == LIVE.to_dict().keys()
    assert REPLAY.to_dict()["timing"] is REPLAY.to_dict()["lossless"] is None


def test_each_figure_of_the_json_follows_from_the_counts_beside_it() -> None:
    told = LIVE.to_dict()
    cycle = sum(told["timing"][part] for part in NESTED["timing"]) / told["rounds"]
    plain = told["timing"]["plain_tokens"] / told["timing"]["plain_s"]
    assert told["accept_len"] == 1 + told["accepted"] / told["rounds"]
    assert told["tokens_per_s"] == pytest.approx(told["accept_len"] / cycle)
    assert told["break_even_accept_len"] == pytest.approx(cycle * plain)
    assert told["speedup"] == pytest.approx(told["tokens_per_s"] / plain)
    assert told["what_if"] == [{"accept_len": 2.8, "tokens_per_s": pytest.approx(2.8 / cycle)}]
    low, high = told["accept_len_interval"]
    assert low < told["accept_len"] < high


def test_a_what_if_out_of_reach_is_refused_and_one_without_times_is_a_fault() -> None:
    with pytest.raises(UsageError, match="a round of 3 steps emits 1 to 4 tokens"):
        replace(LIVE, what_if=(4.5,)).to_dict()
    with pytest.raises(ValueError, match="measured cycle"):
        replace(REPLAY, what_if=(2.0,))


def test_a_mismatch_is_no_tie_and_is_listed() -> None:
    place = Tie("p2", 5, 0.5)
    found = replace(LIVE, lossless=Lossless(27, 1, 2, 1e-4), mismatches=(place,))
    assert found.to_dict()["mismatches"] == [{"prompt": "p2", "position": 5, "gap": 0.5}]
    assert "mismatches, 1 by answer token (gap): p2 at 5 (5.0e-01)" in render(
        decode_document(DecodeResults((found,))), "table"
    )
    with pytest.raises(ValueError, match="0 mismatches are listed, 1 counted"):
        replace(found, mismatches=())
    with pytest.raises(ValueError, match="that is a mismatch"):
        replace(found, ties=(place,))


def test_one_result_stands_alone_and_several_are_paired() -> None:
    assert DecodeResults((LIVE,)).to_dict() == LIVE.to_dict()
    told = DecodeResults((LIVE, REPLAY)).to_dict()
    assert told.keys() == {"results", "paired"}
    (pair,) = told["paired"]
    assert (pair["a"], pair["b"], pair["reason"]) == ("./ours", "org/theirs", None)
    assert pair["difference"] == pytest.approx(THEIRS.accept_len - OURS.accept_len)
    assert pair["interval"][0] <= pair["difference"] <= pair["interval"][1]


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (replace(REPLAY, provenance=provenance("b", prompts=replace(PROMPTS, sha256="cd" * 32))), "different prompts"),
        (replace(REPLAY, provenance=provenance("b", raw=True)), "different prompts"),
        (replace(REPLAY, provenance=provenance("b", thinking=True)), "different prompts"),
        (replace(REPLAY, acceptance=run([1], [1], [1], [1], steps=2)), "different settings"),
        (replace(REPLAY, acceptance=Acceptance.from_counters(steps=3, rounds=9, accepted=9)), "same prompts"),
    ],
)
def test_what_cannot_be_paired_says_why(other: DecodeResult, reason: str) -> None:
    (pair,) = DecodeResults((LIVE, other)).paired
    assert pair.difference is pair.interval is None
    assert reason in (pair.reason or "")
    assert reason in render(decode_document(DecodeResults((LIVE, other))), "table")


def test_one_drafter_on_two_targets_is_named_with_each() -> None:
    other = replace(LIVE, provenance=provenance(target=replace(TARGET, revision=None, quantization=None)))
    assert DecodeResults((LIVE, other, REPLAY)).names == (
        "./ours on org/target, 0123456789ab, bfloat16, int4",
        "./ours on org/target, bfloat16",
        "org/theirs",
    )
    assert len(set(DecodeResults((LIVE, LIVE)).names)) == 2


def test_a_reader_sees_accept_len_and_its_interval_first() -> None:
    shown = render(decode_document(DecodeResults((LIVE,))), "table").splitlines()
    low, high = LIVE.interval or (0.0, 0.0)
    assert shown[2] == f"accept_len 2.300 tokens per round, 95% interval [{low:.3f}, {high:.3f}]"
    text = " ".join(" ".join(shown).split())
    for told in (
        "10 rounds, 13 drafts accepted of 30 drafted (43.3%)",
        "1 7 70.0% ██████████████ 70.0%",  # position 1: 7 of 10 rounds
        "0 3 30.0% ██████ 1 3 30.0% ██████",  # 3 rounds accepted none, 3 one
        "code 2 6 2.333",
        "cycle 1.000 100.000 100.0%",
        "23.0 tokens/s",
        "speedup of 1.150",
        "break-even with it is accept_len 2.000",
        "what if accept_len were 2.8, at the same cycle: 28.0 tokens/s, 1.400 times plain decoding",
        "3 ended by an end token, 1 at the cap; 1 loop",
        "holds 93.1% of the answers' tokens",
        "27 tokens checked against plain greedy decoding: 0 answers part from it, 2 more at a tie (gap below 0.0001)",
        "ties, which rounding decides, 7 by answer token (gap): p0 at 3 (3.0e-05)",
        "and 2 more, see --format json",
        "4 of pack.jsonl (sha256 abababababab), with the chat template",
        "org/target @ 0123456789ab (bfloat16, int4), live",
        "1 of 4 answers loops",
    ):
        assert told in text


def test_what_is_not_known_is_said() -> None:
    counters = replace(REPLAY, acceptance=Acceptance.from_counters(steps=4, rounds=50, accepted=147))
    shown = render(decode_document(DecodeResults((counters,))), "table")
    assert "no interval: that takes two answers" in shown
    assert "not told: drafted, histogram, prompts, tokens, overshoot, per_prompt" in shown
    no_plain = replace(LIVE, costs=Costs(OURS, Timing(1, 0, 0, 0)), what_if=())
    assert "no speedup, no break-even" in render(decode_document(DecodeResults((no_plain,))), "table")
    raw = replace(LIVE, provenance=provenance(raw=True, thinking=None))
    assert "raw, without the chat template" in render(decode_document(DecodeResults((raw,))), "table")


def test_several_drafters_side_by_side() -> None:
    ours = replace(LIVE, provenance=provenance(samples=37_000))
    text = render(decode_document(DecodeResults((REPLAY, ours))), "markdown")
    samples = text.index("By training samples")
    assert text.index("37,000", samples) < text.index("1,400,000", samples), "by rising samples"
    assert text.index("Paired on the same prompts") < text.index("By position")


@pytest.mark.parametrize("style", ["table", "markdown", "csv"])
def test_text_from_files_cannot_write_to_the_terminal(style: str) -> None:
    named = replace(LIVE, provenance=provenance("evil\x1b[31m"), ties=(Tie("p\x1b]0;", 0, 1e-6),), notes=("\x1b[2J",))
    others = replace(REPLAY, provenance=provenance("evil\x1b[32m"))
    assert "\x1b" not in render(decode_document(DecodeResults((named, others))), style)


def read(document: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(document)))


def test_csv_has_a_row_for_each_result_with_raw_numbers() -> None:
    live, replayed = read(render(decode_document(DecodeResults((LIVE, REPLAY))), "csv"))
    assert float(live["accept_len"]) == OURS.accept_len
    assert live["histogram"] == " ".join(map(str, OURS.histogram or ()))
    assert (live["eos"], live["cap"], live["verify_s"]) == ("3", "1", "0.9")
    assert (replayed["tokens_per_s"], replayed["samples"]) == ("", "1400000")


SWEEP = SweepResult(
    provenance(mode="replay"),
    tuple(run([0, 1, min(2, k), min(3, k)], [1, 1], [0, 0, min(3, k)], [min(2, k)], steps=k) for k in (1, 2, 3)),
    ceilings=(1.9, 2.7, 3.2),
    costs=StepCosts(20, 6),
    costs_from="--verify-ms, --draft-ms",
    coverage=0.93,
)


def test_a_sweep_tells_the_gain_of_each_step_and_the_best() -> None:
    told = json.loads(json.dumps(SWEEP.to_dict(), allow_nan=False))
    lengths = [1.7, 2.1, 2.3]  # 7, 11 and 13 accepted in 10 rounds
    assert [row["accept_len"] for row in told["rows"]] == pytest.approx(lengths)
    assert [row["marginal_gain"] for row in told["rows"]] == pytest.approx([0.7, 0.4, 0.2])
    assert [row["ceiling"] for row in told["rows"]] == [1.9, 2.7, 3.2]
    worth = [1000 * length / (20 + 6 * k) for k, length in enumerate(lengths, 1)]
    assert [row["tokens_per_s"] for row in told["rows"]] == pytest.approx(worth)
    assert told["best"] == told["rows"][1]
    assert told["rows"][0].keys() >= ROW


def test_drafts_for_nothing_make_the_longest_chain_best_and_a_tie_goes_to_the_shorter() -> None:
    def best(costs: StepCosts, sweep: SweepResult = SWEEP) -> int:
        row = replace(sweep, costs=costs).best
        assert row is not None
        return row.acceptance.steps

    assert best(StepCosts(verify_ms=10, draft_ms=0)) == 3
    assert best(StepCosts(verify_ms=1, draft_ms=10)) == 1
    alike = tuple(run([0, 1, min(2, k), 1], [1, 1], [0, 0, 1], [1], steps=k) for k in (1, 2, 3))
    assert best(StepCosts(verify_ms=10, draft_ms=0), replace(SWEEP, acceptances=alike, ceilings=())) == 2


def test_rows_of_trees_stand_behind_the_chains_and_gain_among_themselves() -> None:
    def tree(accepted: list[int], steps: int, verified: int) -> Acceptance:
        prompts = [PromptCounts.of("p", None, accepted, steps=steps)]
        return Acceptance.pooled(prompts, steps=steps, topk=4, num_draft_tokens=verified)

    trees = (tree([1, 0], 1, 4), tree([2, 1], 3, 4), tree([2, 2], 3, 8))
    told = replace(SWEEP, acceptances=(*SWEEP.acceptances, *trees), ceilings=(), costs=StepCosts(20, 1)).to_dict()
    shapes = [(row["topk"], row["num_draft_tokens"], row["steps"]) for row in told["rows"]]
    assert shapes == [(1, 2, 1), (1, 3, 2), (1, 4, 3), (4, 4, 1), (4, 4, 3), (4, 8, 3)]
    gains = [row["marginal_gain"] for row in told["rows"][3:]]
    assert gains == pytest.approx([0.5, (2.5 - 1.5) / 2, 2 / 3])
    assert [row["drafted"] for row in told["rows"][3:]] == [6, 6, 14]
    assert told["best"] == told["rows"][5]
    shown = render(sweep_document(replace(SWEEP, acceptances=trees, ceilings=(), costs=StepCosts(20, 1))), "table")
    assert "3 steps of a tree, top-k 4, 8 tokens verified: 130.4 tokens/s" in shown
    assert "top-k" not in render(sweep_document(SWEEP), "table")


def test_a_sweep_as_it_is_shown() -> None:
    shown = render(sweep_document(SWEEP), "table")
    (best,) = (line for line in shown.splitlines() if line.endswith("best"))
    assert best.split()[:2] == ["2", "2.100"]
    assert "2 steps: 65.6 tokens/s" in shown
    assert "a cycle is 20 ms and 6 ms a draft step (--verify-ms, --draft-ms)" in shown
    rows = read(render(sweep_document(SWEEP), "csv"))
    assert [row["best"] for row in rows] == ["False", "True", "False"]


def test_a_sweep_without_costs_has_no_best_and_no_empty_columns() -> None:
    bare = replace(SWEEP, costs=None, costs_from=None, ceilings=())
    assert bare.to_dict()["best"] is bare.to_dict()["rows"][0]["tokens_per_s"] is None
    shown = render(sweep_document(bare), "table")
    assert "neither measured nor given" in shown
    assert not any(name in shown for name in ("tokens/s", "ceiling", "cycle ms"))


def test_a_sweep_takes_rising_steps() -> None:
    with pytest.raises(ValueError, match="rising step counts"):
        replace(SWEEP, acceptances=SWEEP.acceptances[::-1])
    with pytest.raises(ValueError, match="2 ceilings for 3"):
        replace(SWEEP, ceilings=(1.0, 2.0))


@pytest.mark.parametrize(("part", "drawn"), [(0, ""), (0.5, "██████████"), (1, "█" * 20), (0.01, "▎"), (0.075, "█▌")])
def test_bars(part: float, drawn: str) -> None:
    assert bar(part) == drawn
