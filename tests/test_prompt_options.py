"""What the shared options of prompts take and refuse."""

from __future__ import annotations

import shlex
from typing import Any

import click
import pytest
from click.testing import CliRunner

from drafter_audit.cli.prompt_options import answer_options, prompt_options


@click.command()
@prompt_options
@answer_options
def show(**given: Any) -> None:
    click.echo(given)


def test_defaults_and_values() -> None:
    run = CliRunner().invoke
    unset = {"max_new_tokens": 256, "temperature": 0.0, "seed": 0, "prompts": "pack", "raw": False, "thinking": None}
    assert eval(run(show).output) == unset
    given = "--prompts a.jsonl --raw --no-thinking --max-new-tokens 8 --seed 3 --temperature 0.5"
    assert eval(run(show, shlex.split(given)).output) == {
        "max_new_tokens": 8,
        "temperature": 0.5,
        "seed": 3,
        "prompts": "a.jsonl",
        "raw": True,
        "thinking": False,
    }


@pytest.mark.parametrize(
    "given", ["--max-new-tokens 0", "--seed -1", "--temperature -1", "--temperature nan", "--temperature inf"]
)
def test_what_is_refused(given: str) -> None:
    assert CliRunner().invoke(show, shlex.split(given)).exit_code == 2
