"""What the shared options of prompts take and refuse."""

from __future__ import annotations

import shlex

import click
import pytest
from click.testing import CliRunner

from drafter_audit.cli.prompt_options import Answers, answer_options


@click.command()
@answer_options
@click.pass_context
def show(context: click.Context, answers: Answers) -> None:
    context.obj.append(answers)


def given(*arguments: str) -> Answers:
    found: list[Answers] = []
    CliRunner().invoke(show, arguments, obj=found)
    return found[0]


def test_defaults_and_values() -> None:
    unset = Answers(prompts="pack", raw=False, thinking=None, max_new_tokens=256, temperature=0.0, seed=0)
    assert given() == unset
    told = given(*shlex.split("--prompts a.jsonl --raw --no-thinking --max-new-tokens 8 --seed 3 --temperature 0.5"))
    assert told == Answers("a.jsonl", raw=True, thinking=False, max_new_tokens=8, temperature=0.5, seed=3)


@pytest.mark.parametrize(
    "given", ["--max-new-tokens 0", "--seed -1", "--temperature -1", "--temperature nan", "--temperature inf"]
)
def test_what_is_refused(given: str) -> None:
    assert CliRunner().invoke(show, shlex.split(given)).exit_code == 2
