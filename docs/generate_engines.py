"""Writes docs/engines.md: every rule of every engine, with the releases it holds in, its proof and its source.

Run it after a change to an engine: `python docs/generate_engines.py`. tests/test_docs.py tells when it was forgotten.
"""

from __future__ import annotations

from pathlib import Path

from drafter_audit.engines import ENGINES
from drafter_audit.engines.base import Engine, Rule

PAGE = Path(__file__).with_name("engines.md")

HEAD = """\
# Engines

This page is generated from the rules in `drafter_audit/engines/` by `python docs/generate_engines.py`. Do not edit it.

`drafter-audit lint` answers for an engine by these rules, each read in the engine's own source. A rule holds from the
release in the second column on, and no more from the one in the third; an empty cell is as far as is known. Proof is
"run" where the engine, or that function of it on its own, was seen to do it, "read" where its source says so, "deduced"
where it follows from what was read. A release that is newer than the newest one read is answered by the newest rules,
and `ENGINE-UNREAD` says so.
"""


def page() -> str:
    """The text of docs/engines.md."""
    return "\n".join([HEAD, *map(_section, ENGINES)])


def _section(engine: Engine) -> str:
    runners = [runner for runner in engine.runners(engine.newest) if runner]
    paths = f" Runners: {', '.join(runners)}, the default first." if runners else ""
    told = f"Releases {engine.oldest} to {engine.newest}.{paths}"
    if not engine.rules:
        return f"## {engine.name}\n\n{told} No rule is known yet.\n"
    head = "| rule | since | until | what it does | proof | source |\n|---|---|---|---|---|---|"
    return "\n".join([f"## {engine.name}\n\n{told}\n", head, *map(_row, engine.rules), ""])


def _row(rule: Rule) -> str:
    cells = (f"`{rule.name}`", rule.since or "", rule.until or "", rule.text, rule.proof, rule.source)
    return f"| {' | '.join(map(_cell, cells))} |"


def _cell(text: str) -> str:
    for mark in "|*_<":
        text = text if text.startswith("`") else text.replace(mark, f"\\{mark}")
    return text


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
