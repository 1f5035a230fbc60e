"""Options that several commands take."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import click
from click.shell_completion import CompletionItem

Command = TypeVar("Command", bound=Callable[..., object])

FORMATS = ("table", "json", "markdown", "csv")


def complete_reference(context: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Bundled names where some fit what was typed, else files: a shell takes one or the other from one answer."""
    names = complete_bundled(context, param, incomplete) if incomplete else []
    return names or [CompletionItem(incomplete, type="file")]


def complete_bundled(context: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The bundled names that begin with what was typed."""
    from drafter_audit.facts import registry

    return [CompletionItem(name) for name in registry.names() if name.startswith(incomplete)]


def output_options(command: Command) -> Command:
    """--format and -o."""
    command = click.option(
        "-o", "--output", metavar="FILE", type=click.Path(dir_okay=False), help="Write to FILE instead of stdout."
    )(command)
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
        "--target",
        metavar="REF",
        shell_complete=complete_reference,
        help="The target model, over what files say; rows of its weights prove what is frozen (at most 8 MB read).",
    )(command)
