"""What `check` found: the verdict first, then every row, failures with their reasons."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from drafter_audit.check.row import Outcome, Result, Row
from drafter_audit.errors import escape
from drafter_audit.report.document import Block, Document, Lines, Table, once
from drafter_audit.report.numbers import NOTHING, figure, interval, plain, raw

_VERDICTS = {"pass": "PASS", "fail": "FAIL", "unmeasured": "NOT MEASURED"}


def check_document(result: Result) -> Document:
    return Document(tuple(_blocks(result)), _csv(result))


def _blocks(result: Result) -> Iterator[Block]:
    yield Lines((verdict_of(result),))
    yield rows_table(result.rows)


def rows_table(rows: Sequence[Row]) -> Table:
    headers = ("drafter", "check", "outcome", "observed", "bound", "reason")
    return Table(headers, once(tuple(map(_row, rows))))


def _row(row: Row) -> tuple[str, ...]:
    return escape(row.drafter), row.check, row.outcome, _observed(row), _bound(row), row.reason


def verdict_of(result: Result) -> str:
    """The outcome and how many rows had which, in a line."""
    counts = Counter(row.outcome for row in result.rows)
    told = ", ".join(f"{counts[each]} {word}" for each, word in _COUNTED.items() if counts[each])
    return f"{_VERDICTS[result.outcome]}: {told}"


_COUNTED: dict[Outcome, str] = {"fail": "failed", "unmeasured": "not measured", "pass": "passed"}


def _observed(row: Row) -> str:
    if isinstance(row.observed, float):
        return figure(row.observed) + ("" if row.interval is None else f" {interval(row.interval)}")
    return plain(row.observed)


def _bound(row: Row) -> str:
    return NOTHING if row.bound is None else plain(row.bound)


def _csv(result: Result) -> Table:
    told = [row.to_dict() for row in result.rows]
    for row in told:
        row["low"], row["high"] = row.pop("interval") or (None, None)
        del row["details"]
    return Table(tuple(told[0]), tuple(tuple(map(raw, row.values())) for row in told))
