"""Options of the shape of a round, and lists of whole numbers as they are written."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., object])
Callback = Callable[[click.Context, click.Parameter, str | None], tuple[int, ...]]


def listed(what: str, example: str) -> Callback:
    """click's callback of an option that takes a list of whole numbers from 1 on, such as `1-10`, `3` or `1,3,5-8`:
    rising, and empty where it is not given."""

    def callback(context: click.Context, param: click.Parameter, text: str | None) -> tuple[int, ...]:
        if text is None:
            return ()
        try:
            ends = [[int(end) for end in part.split("-")] for part in text.split(",")]
        except ValueError:
            ends = [[0]]
        if any(len(part) > 2 or part[0] < 1 or part[0] > part[-1] for part in ends):
            raise click.BadParameter(f"{text!r} is no list of {what}: write {example}", context, param)
        return tuple(sorted({count for part in ends for count in range(part[0], part[-1] + 1)}))

    return callback


def shape_options(command: Command) -> Command:
    """--topk and --num-draft-tokens of one shape, in the words of engines."""
    for option in (_NUM_DRAFT_TOKENS, _TOPK):
        command = option(command)
    return command


def swept_shapes_options(command: Command) -> Command:
    """The same as lists."""
    for option in (_MANY_TOKENS, _TOPKS):
        command = option(command)
    return command


_TOPK = click.option(
    "--topk",
    metavar="N",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="1: drafts are a chain. Above: a tree of so many beams, as EAGLE-2 grows it.",
)
_NUM_DRAFT_TOKENS = click.option(
    "--num-draft-tokens",
    metavar="N",
    type=click.IntRange(min=1),
    help="Tokens that a round verifies, as SGLang counts, the last emitted one included. A tree needs it; a chain "
    "verifies steps + 1.",
)
_TOPKS = click.option(
    "--topk",
    "topks",
    metavar="LIST",
    default="1",
    show_default=True,
    callback=listed("beams", "1, or 1,4,8"),
    help="1: chains. Above: trees of so many beams. 1,4,8 sweeps all of them.",
)
_MANY_TOKENS = click.option(
    "--num-draft-tokens",
    metavar="LIST",
    callback=listed("numbers of tokens", "16, or 8,16,32"),
    help="Tokens that a round verifies: of trees, which need it. A chain verifies steps + 1.",
)
