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


class Commands(click.Group):
    """A group that knows its commands' names and lines, so that its help loads none of them. `commands` holds names
    alone, from which click lists them and says which was meant."""

    def __init__(self, **settings: Any) -> None:  # noqa: ANN401 - click's own
        super().__init__(commands=[click.Command(name) for name in _LINES], **settings)

    def get_command(self, ctx: click.Context | None, cmd_name: str) -> click.Command | None:
        return command(cmd_name) if cmd_name in _LINES else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(_LINES.items()))


def command(name: str) -> click.Command:
    """Raises KeyError for a name that is none."""
    _LINES[name]
    found = getattr(import_module(f"drafter_audit.cli.{name}"), name)
    assert isinstance(found, click.Command)
    return found


def every_command() -> dict[str, click.Command]:
    return {name: command(name) for name in _LINES}
