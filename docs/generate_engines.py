"""Writes docs/engines.md: every rule of every engine, with the releases it holds in, its proof and its source.

Run it after a change to an engine: `python docs/generate_engines.py`. tests/test_docs.py tells when it was forgotten.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from drafter_audit.engines import ENGINES
from drafter_audit.engines.base import Engine, Rule

PAGE = Path(__file__).with_name("engines.md")
FIGURES = Path(__file__).with_name("engines_run.json")

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
    return "\n".join([HEAD, *map(_section, ENGINES), _runs()])


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


RUNS = """\
## Runs of an engine

What `make test-engines ENGINE_FIGURES=docs/engines_run.json` saw of vLLM's CPU build with the reference pair: 16
prompts, up to 64 new tokens, greedy, float32, on two cores. The reference is the replay of a recording of the same
prompts under the wiring that the release claims. Speeds are that machine's, and those of one run: from run to run they
differ by as much as a half, so that they say nothing of which step count is the best.

"""
COLUMNS = (
    *("run", "steps", "rounds", "accepted", "accept_len", "reference", "difference"),
    *("cost of the claimed wiring", "verdict", "tokens/s"),
)


def _runs() -> str:
    kept = json.loads(FIGURES.read_text(encoding="utf-8"))
    rows = [(name, row) for name in sorted(kept) for row in kept[name]]
    lines = [COLUMNS, ["---"] * len(COLUMNS), *(_run(name, row) for name, row in rows)]
    return RUNS + "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _run(name: str, row: dict[str, Any]) -> list[str]:
    beside = row["reference"] or {}
    figures = (row["accept_len"], beside.get("accept_len"), beside.get("difference"), beside.get("claim_cost"))
    counts = ["" if row[key] is None else f"{row[key]:,}" for key in ("steps", "rounds", "accepted")]
    told = ["" if value is None else f"{value:.3f}" for value in figures]
    return [name, *counts, *told, row["verdict"] or "", f"{row['tokens_per_s']:.1f}"]


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
