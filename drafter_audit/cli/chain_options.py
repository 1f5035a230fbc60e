"""Options of the shape of a round, and step counts as they are written."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., object])


def step_counts(context: click.Context, param: click.Parameter, text: str) -> tuple[int, ...]:
    """`1-10`, `3`, or `1,3,5-8`: whole numbers from 1 on, as click's callback of an option. Rising."""
    try:
        ends = [[int(end) for end in part.split("-")] for part in text.split(",")]
    except ValueError:
        ends = [[0]]
    if any(len(part) > 2 or part[0] < 1 or part[0] > part[-1] for part in ends):
        raise click.BadParameter(f"{text!r} is no list of step counts: write 1-10, 3, or 1,3,5-8", context, param)
    return tuple(sorted({count for part in ends for count in range(part[0], part[-1] + 1)}))


def chain_options(command: Command) -> Command:
    """--topk and --num-draft-tokens, which say the shape of a chain in the words of engines."""
    for option in (_NUM_DRAFT_TOKENS, _TOPK):
        command = option(command)
    return command


def check_chain(topk: int, num_draft_tokens: int | None, steps: int) -> None:
    """Raises UsageError for what is no chain of `steps`."""
    from drafter_audit.errors import UsageError

    if topk != 1:
        raise UsageError(f"a tree of top-k {topk}", "--topk", "leave it at 1: chains alone are run")
    if num_draft_tokens not in (None, steps + 1):
        what = f"{num_draft_tokens} tokens to verify in a chain of {steps} steps"
        raise UsageError(what, "--num-draft-tokens", f"give {steps + 1}, or leave it out")


_TOPK = click.option(
    "--topk", metavar="N", type=click.IntRange(min=1), default=1, show_default=True, help="1: drafts are a chain."
)
_NUM_DRAFT_TOKENS = click.option(
    "--num-draft-tokens",
    metavar="N",
    type=click.IntRange(min=1),
    help="Tokens that a round verifies, as SGLang counts.  [default: steps + 1]",
)
