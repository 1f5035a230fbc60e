"""The commands by name. Each is a file beside this one, which is loaded when that command is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import click

_LINES = {
    "bench": "Measure a serving engine, attached to or started",
    "check": "Hold drafters to bars, as a gate before they are served",
    "compare": "Set drafters side by side, and say what differs",
    "decode": "Measure accept_len, live or from a recording",
    "lint": "Say what is wrong with a drafter, engine by engine",
    "models": "List the published drafters and targets that are known",
    "params": "Count parameters: trainable, frozen, borrowed",
    "record": "Record a target once, to replay drafters on it",
    "sweep": "Find the best step count or tree, replayed or served",
    "wiring": "Find what is wrong with the wiring, and the edit",
}


class _Listed(click.Command):
    """Stands for a command that is not loaded: click lists it, and guesses it where it is mistyped."""


class Commands(click.Group):
    """A group that knows its commands' names and lines, so that its help loads none of them."""

    def __init__(self, **settings: Any) -> None:  # noqa: ANN401 - click's own
        super().__init__(commands=[_Listed(name) for name in _LINES], **settings)

    def get_command(self, ctx: click.Context | None, cmd_name: str) -> click.Command | None:
        known = self.commands.get(cmd_name)
        return _loaded(cmd_name) if isinstance(known, _Listed) else known

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(_LINES.items()))


def every_command() -> dict[str, click.Command]:
    return {name: _loaded(name) for name in _LINES}


def _loaded(name: str) -> click.Command:
    found = getattr(import_module(f"drafter_audit.cli.{name}"), name)
    assert isinstance(found, click.Command)
    return found
