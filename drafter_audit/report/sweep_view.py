"""What `sweep` measured: accept_len at each shape of a round, what a step more brings, and which is worth most."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from drafter_audit.decode.sweep_result import SweepResult, SweepRow
from drafter_audit.report.document import Block, Document, Lines, Table
from drafter_audit.report.numbers import NOTHING, count, figure, interval, raw
from drafter_audit.report.provenance import TIES, answers, measured_with, places

Cell = Callable[[SweepRow], str]


def sweep_document(result: SweepResult) -> Document:
    """The table, what it comes to, and with what it was measured."""
    return Document(tuple(_blocks(result)), _csv(result))


def _blocks(result: SweepResult) -> Iterator[Block]:
    yield _table(result)
    yield Lines(tuple(_conclusions(result)), "Best step count")
    yield Lines((*answers(result.acceptances[-1], result.coverage), *places(TIES, result.ties)), "Answers")
    yield measured_with(result.provenance)
    if result.notes:
        yield Lines(result.notes, "Notes")


_COLUMNS: tuple[tuple[str, Cell], ...] = (
    ("steps", lambda row: str(row.acceptance.steps)),
    ("accept_len", lambda row: figure(row.acceptance.accept_len)),
    ("95% interval", lambda row: interval(row.interval)),
    ("gain a step", lambda row: f"{row.gain:+.3f}"),
    ("ceiling", lambda row: figure(row.ceiling)),
    ("rounds", lambda row: count(row.acceptance.rounds)),
    ("accepted", lambda row: count(row.acceptance.accepted)),
    ("drafted", lambda row: count(row.acceptance.drafted)),
    ("cycle ms", lambda row: figure(row.cycle_ms)),
    ("tokens/s", lambda row: figure(row.tokens_per_s, 1)),
)


_SHAPES: tuple[tuple[str, Cell], ...] = (
    ("top-k", lambda row: str(row.acceptance.topk)),
    ("verified", lambda row: count(row.acceptance.num_draft_tokens)),
)


def _table(result: SweepResult) -> Table:
    """Columns that no row fills are left out, and those of trees where all are chains."""
    columns = (*_SHAPES, *_COLUMNS) if any(row.acceptance.topk > 1 for row in result.rows) else _COLUMNS
    filled = [(name, cell) for name, cell in columns if any(cell(row) != NOTHING for row in result.rows)]
    if result.best is not None:
        filled.append(("", lambda row: "best" if row is result.best else ""))
    rows = tuple(tuple(cell(row) for _, cell in filled) for row in result.rows)
    title = f"{result.provenance.drafter.ref}: accept_len by steps"
    return Table(tuple(name for name, _ in filled), rows, title, frozenset(i for i, (n, _) in enumerate(filled) if n))


def _conclusions(result: SweepResult) -> Iterator[str]:
    best, costs = result.best, result.costs
    if best is None or costs is None:
        yield "not told: what a verification and a draft step cost was neither measured nor given"
        return
    steps, topk, verified = best.acceptance.steps, best.acceptance.topk, best.acceptance.num_draft_tokens
    tree = "" if topk == 1 else f" of a tree, top-k {topk}, {count(verified)} tokens verified"
    yield f"{steps} step{'' if steps == 1 else 's'}{tree}: {figure(best.tokens_per_s, 1)} tokens/s"
    source = f" ({result.costs_from})" if result.costs_from else ""
    yield f"a cycle is {costs.verify_ms:g} ms and {costs.draft_ms:g} ms a draft step{source}"


def _csv(result: SweepResult) -> Table:
    """A row for each step count, as in the JSON, the interval in two columns."""
    told = [row.to_dict() for row in result.rows]
    for row in told:
        row["accept_len_low"], row["accept_len_high"] = row.pop("interval") or (None, None)
        row["best"] = result.best is not None and row is told[result.rows.index(result.best)]
    return Table(tuple(told[0]), tuple(tuple(map(raw, row.values())) for row in told))
