"""Options that several commands take."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., object])

FORMATS = ("table", "json", "markdown", "csv")


def output_options(command: Command) -> Command:
    """--format and -o."""
    command = click.option("-o", "--output", metavar="FILE", help="Write to FILE instead of stdout.")(command)
    return click.option(
        "--format",
        "style",
        type=click.Choice(FORMATS),
        default="table",
        show_default=True,
        help="How to show the result.",
    )(command)


def target_option(command: Command) -> Command:
    """--target."""
    return click.option(
        "--target", metavar="REF", help="The target model, where no file names it or to override them."
    )(command)
