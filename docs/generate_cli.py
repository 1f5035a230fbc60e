"""Writes docs/cli.md: the help of every command, as the command line prints it at a width of 100 columns.

Run it after a change to a command: `python docs/generate_cli.py`. tests/test_docs.py tells when it was forgotten.
"""

from __future__ import annotations

from pathlib import Path

import click

from drafter_audit.cli.commands import every_command
from drafter_audit.cli.main import cli

PAGE = Path(__file__).with_name("cli.md")
WIDTH = 100
PROGRAM = "drafter-audit"

HEAD = """\
# The command line

This page is generated from `--help` by `python docs/generate_cli.py`. Do not edit it.
What the exit codes mean, what a REF may be and how to complete commands in a shell: [README](../README.md).
"""


def page() -> str:
    """The text of docs/cli.md."""
    parts = [HEAD, _section(f"## `{PROGRAM}`", _help(cli, PROGRAM))]
    for name, command in sorted(every_command().items()):
        parts.append(_section(f"## `{PROGRAM} {name}`", _help(command, f"{PROGRAM} {name}")))
    return "\n".join(parts)


def _section(heading: str, text: str) -> str:
    return f"{heading}\n\n```text\n{text}\n```\n"


def _help(command: click.Command, path: str) -> str:
    settings = {**cli.context_settings, "terminal_width": WIDTH, "max_content_width": WIDTH}
    return command.get_help(click.Context(command, info_name=path, **settings))


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
