"""What loops and what only repeats; when answers are no measure."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path

import click
import pytest

from drafter_audit.cli.measured import end_unmeasured
from drafter_audit.errors import EXIT_NOT_MEASURED
from drafter_audit.measure.acceptance import Acceptance, PromptCounts
from drafter_audit.measure.loops import loops, why_not_measured

TABLE = "| name | born | city |\n|------|------|------|\n" + "".join(
    f"| {name} | {year} | {city} |\n"
    for name, year, city in [("Ada", 1815, "London"), ("Emmy", 1882, "Erlangen"), ("Max", 1858, "Kiel")] * 2
)
ZEROS = "[" + ", ".join("[0, 0, 0, 0]" for _ in range(3)) + ","
RULE = "-" * 70 + "\nTotal"
VERSE = "Row, row, row your boat\n" * 3
CODE = "x = [\n" + "".join(f"    {i},\n" for i in range(9)) + "]\n" + "    }\n" * 4


@pytest.mark.parametrize("text", [TABLE, ZEROS, RULE, VERSE, CODE, "", "a"])
def test_honest_repetition_is_no_loop(text: str) -> None:
    """Each character a token: a tokenizer that takes several at once makes repeats shorter, not longer."""
    assert not loops(list(text.encode()))


@pytest.mark.parametrize("period", [1, 2, 7, 16, 60])
def test_a_loop_of_any_period_is_found_whatever_comes_before(period: int) -> None:
    piece = list(range(1000, 1000 + period))
    copies = max(4, -(-32 // period))
    assert loops([*range(90), *piece * copies])
    assert loops([*range(90), *piece * copies, *piece[: period // 2]])
    assert not loops([*range(90), *piece * copies, 7])  # it was left again
    assert not loops(piece * 3 + piece[:-1])


@pytest.mark.parametrize("rank", [0, 1])
def test_of_several_ranks_the_first_alone_says_that_nothing_was_measured(
    rank: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Torchrun ends every rank when one ends with a code, and the first may not have written yet."""
    for name, value in {"TORCHELASTIC_RUN_ID": "x", "RANK": rank, "WORLD_SIZE": 2, "LOCAL_RANK": rank}.items():
        monkeypatch.setenv(name, str(value))
    cut_off = Acceptance.pooled([PromptCounts.of("a", None, [1], steps=1, capped=True)], steps=1)
    with nullcontext() if rank else pytest.raises(click.exceptions.Exit) as ended:
        end_unmeasured(click.Context(click.Command("decode")), [cut_off.per_prompt])
    assert ("not measured: 1 of 1 answers" in capsys.readouterr().err) == (rank == 0)
    assert rank or ended.value.exit_code == EXIT_NOT_MEASURED


def test_greedy_text_of_a_real_target() -> None:
    """All four loop after a few words (" the the the", blanks, "____"); the last tokens of three have left it again."""
    answers = json.loads((Path(__file__).parent / "data" / "greedy_loops.json").read_text())["answers"]
    assert [loops(answer[:20]) for answer in answers] == [False] * 4
    assert [loops(answer[:64]) for answer in answers] == [True] * 4
    assert [loops(answer) for answer in answers] == [False, False, True, False]


def counts(*flags: tuple[bool, bool]) -> list[PromptCounts]:
    return [
        PromptCounts.of(str(i), None, [1], steps=1, capped=capped, degenerate=degenerate)
        for i, (capped, degenerate) in enumerate(flags)
    ]


WHOLE, CAPPED, LOOPING = (False, False), (True, False), (True, True)


def test_answers_measure_nothing_where_most_are_cut_or_loop() -> None:
    assert why_not_measured(counts(WHOLE, WHOLE, CAPPED, LOOPING)) is None
    reason = why_not_measured(counts(WHOLE, CAPPED, LOOPING))
    assert reason == "2 of 3 answers are no whole text: 2 hit the cap, 1 loop"
