"""Options that several commands take."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from drafter_audit.errors import UsageError

Command = TypeVar("Command", bound=Callable[..., object])

_OFFLINE = "HF_HUB_OFFLINE"

MOST = 1e9
"""The largest number that an option takes, as of seconds: the system's clocks hold no more than some 9e9."""

FORMATS = ("table", "json", "markdown", "csv")


class Finite(click.FloatRange):
    """A finite number in a range: click's own lets NaN pass, with which every comparison is false, and infinity."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:  # noqa: ANN401
        number: float = super().convert(value, param, ctx)
        if not abs(number) <= MOST:
            self.fail(f"{number} is no finite number, or too large.", param, ctx)
        return number


def complete_reference(context: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Bundled names where some fit what was typed, else files: a shell takes one or the other from one answer."""
    names = complete_bundled(context, param, incomplete) + _of_the_pair(incomplete) if incomplete else []
    return names or [CompletionItem(incomplete, type="file")]


def named_engines(engines: Sequence[str]) -> list[str]:
    """The names of all --engine options. Raises UsageError for an empty one, as of an unset variable in a script."""
    named = [name.strip() for each in engines for name in each.split(",")]
    if not all(named):
        raise UsageError("an empty name", f"--engine {','.join(engines)!r}", "name an engine, or leave the option out")
    return named


def complete_bundled(context: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The bundled names that begin with what was typed."""
    from drafter_audit.facts import registry

    return [CompletionItem(name) for name in registry.names() if name.startswith(incomplete)]


def _of_the_pair(incomplete: str) -> list[CompletionItem]:
    from drafter_audit.facts import pair

    return [CompletionItem(name) for name in pair.NAMES if name.startswith(incomplete)]


def gathered(
    command: Callable[..., object], kind: type, name: str, options: Sequence[Any], but: Sequence[str] = ()
) -> Callable[..., object]:
    """The command with these click `options`, which it gets as one argument `name`: the dataclass `kind`, whose fields
    they are called by, `but` those that keep their defaults."""

    @wraps(command)
    def called(*arguments: object, **given: object) -> object:
        values = {field.name: given.pop(field.name) for field in fields(kind) if field.name not in but}
        return command(*arguments, **{name: kind(**values)}, **given)

    made: Callable[..., object] = called
    for option in reversed(options):
        made = option(made)
    return made


def output_options(command: Command) -> Command:
    """--format and -o."""
    command = click.option(
        "-o",
        "--output",
        metavar="FILE",
        type=click.Path(dir_okay=False),
        callback=_writable,
        help="Write to FILE instead of stdout.",
    )(command)
    return format_option(command)


def _writable(_: click.Context, __: click.Parameter, output: str | None) -> str | None:
    """Raises UsageError for a file that could not be written, before the hours that its result may take."""
    if output is None:
        return None
    if not output.strip():
        raise UsageError("no file name", "-o", "name the file to write")
    path = Path(output)
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        what = "cannot write: no folder there, or none that may be written to"
        raise UsageError(what, output, "choose another file for -o")
    return output


def format_option(command: Command) -> Command:
    """--format."""
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
        help="The target model, over what files say; rows of its weights prove what is frozen (at most 8 MB read for "
        "each drafter).",
    )(command)


def offline_option(command: Command) -> Command:
    """--offline."""
    return click.option(
        "--offline",
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_go_offline,
        help="Read only what lies on this machine, as with HF_HUB_OFFLINE=1.",
    )(command)


def _go_offline(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        context.with_resource(_offline())


@contextmanager
def _offline() -> Iterator[None]:
    """The Hub's client reads the variable when it is imported; where it is already, its own setting is turned too."""
    before = os.environ.get(_OFFLINE, "")
    os.environ[_OFFLINE] = "1"
    _tell_client(True)
    try:
        yield
    finally:
        os.environ[_OFFLINE] = before
        _tell_client(before not in ("", "0"))


def _tell_client(offline: bool) -> None:
    client = sys.modules.get("huggingface_hub.constants")
    if client is not None:
        setattr(client, _OFFLINE, offline)
