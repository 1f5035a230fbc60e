"""Which options the command line gives, and the refusal of those that would be ignored."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import click
from click.core import ParameterSource

from drafter_audit.errors import UsageError


def given(context: click.Context, names: Iterable[str]) -> Iterator[str]:
    """Those of the options that the command line gives."""
    return (name for name in names if context.get_parameter_source(name) is ParameterSource.COMMANDLINE)


def _spelled(context: click.Context, name: str) -> str:
    """An option, or an argument, as users read it."""
    parameter = next(p for p in context.command.params if p.name == name)
    return parameter.opts[0] if isinstance(parameter, click.Option) else parameter.make_metavar(context).strip("[].")


def refuse(context: click.Context, names: Iterable[str], why: str, mend: str) -> None:
    """Raises UsageError for the first of these options that the command line gives."""
    for name in given(context, names):
        raise UsageError(f"{_spelled(context, name)} {why}", context.command_path, mend)
