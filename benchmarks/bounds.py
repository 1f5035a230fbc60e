"""What the benchmarks share: their options, figures beside bounds, and how these are told."""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Row:
    """One figure of ours, the same of another's where there is one, and the bound of ours, if it has one: the most that
    it may be, or with `least` the least."""

    name: str
    ours: float
    theirs: float | None = None
    bound: float | None = None
    least: bool = False

    @property
    def ok(self) -> bool:
        return self.bound is None or (self.ours >= self.bound if self.least else self.ours <= self.bound)


def parser(description: str, default: int, least: int) -> argparse.ArgumentParser:
    """With the options that each benchmark has: `--runs`, not below `least`, and `--json`."""

    def runs(text: str) -> int:
        if int(text) < least:
            raise argparse.ArgumentTypeError(f"must be at least {least}, for the medians to mean something")
        return int(text)

    made = argparse.ArgumentParser(description=description)
    made.add_argument("--runs", type=runs, default=default, metavar="N", help=f"turns, at least {least}")
    made.add_argument("--json", action="store_true", help="print JSON instead of a table")
    return made


def tell(rows: Sequence[Row], options: argparse.Namespace, columns: Sequence[str], about: str) -> int:
    """Prints the rows, ours and theirs under `columns`, and what was measured. Returns the exit code: 1 when a bound is
    exceeded."""
    if options.json:
        told = [{**asdict(row), "ok": row.ok} for row in rows]
        print(json.dumps({"runs": options.runs, "machine": machine(), "rows": told}, indent=2))
    else:
        print(as_table(rows, columns))
        print(f"{about}, {options.runs} turns, {machine()}")
    return 0 if all(row.ok for row in rows) else 1


def as_table(rows: Sequence[Row], columns: Sequence[str]) -> str:
    """The rows for people; with one column ours alone."""
    body = [
        (row.name, *(number(row.ours), number(row.theirs))[: len(columns)], _bound(row), "yes" if row.ok else "NO")
        for row in rows
    ]
    lines = (("figure", *columns, "bound", "ok"), *body)
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)


def number(value: float | None) -> str:
    """Two digits behind the point, none for whole numbers, nothing for None."""
    return "" if value is None else f"{value:.2f}".removesuffix(".00")


def _bound(row: Row) -> str:
    return "" if row.bound is None else f"{'>=' if row.least else '<='} {number(row.bound)}"


def cpu_seconds(call: Callable[[], object]) -> float:
    """Seconds of processor time, of all threads: what other work on the machine changes least."""
    begun = time.process_time()
    call()
    return time.process_time() - begun


def machine() -> str:
    """The machine in general words."""
    return f"{os.cpu_count()} cores, {platform.python_implementation()} {platform.python_version()}"
