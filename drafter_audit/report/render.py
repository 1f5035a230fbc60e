"""Documents as text: a table for people, Markdown for pages, CSV for spreadsheets. Text from files is escaped here."""

from __future__ import annotations

import textwrap

from drafter_audit.errors import escape
from drafter_audit.report.document import Document, Lines, Table

FORMATS = ("table", "json", "markdown", "csv")
_CELL_WIDTH = 52  # characters before a cell wraps: two drafters beside their labels fit 132 columns


def render(document: Document, style: str) -> str:
    """The document in one of FORMATS but json, ending in a newline."""
    if style == "csv":
        return _csv(document.csv)
    block = _markdown if style == "markdown" else _plain
    return "\n\n".join(block(part) for part in document.blocks) + "\n"


def _plain(block: Table | Lines) -> str:
    title = [escape(block.title), "-" * len(escape(block.title))] if block.title else []
    if isinstance(block, Lines):
        wrapped = [
            textwrap.fill(escape(line), 118, subsequent_indent="  ", break_on_hyphens=False) for line in block.lines
        ]
        return "\n".join(title + wrapped)
    wrapped_rows = [[_wrap(cell) for cell in row] for row in block.rows]
    headers = [escape(header) for header in block.headers]
    return "\n".join([*title, _tabulate(block, headers, wrapped_rows, "simple")])


def _markdown(block: Table | Lines) -> str:
    title = [f"### {_markdown_text(block.title)}", ""] if block.title else []
    if isinstance(block, Lines):
        return "\n".join(title + [f"- {_markdown_text(line)}" for line in block.lines])
    rows = [[_markdown_text(cell) for cell in row] for row in block.rows]
    headers = [_markdown_text(header) for header in block.headers]
    return "\n".join([*title, _tabulate(block, headers, rows, "github")])


def _tabulate(block: Table, headers: list[str], rows: list[list[str]], style: str) -> str:
    from tabulate import tabulate

    align = tuple("right" if column in block.numeric else "left" for column in range(len(block.headers)))
    return tabulate(
        rows, headers, tablefmt=style, colalign=align if rows else None, disable_numparse=True, preserve_whitespace=True
    )


def _wrap(cell: str) -> str:
    """A cell's own line breaks are kept, text from files has had its own escaped when the cell was made."""
    lines = (textwrap.wrap(escape(line), _CELL_WIDTH, break_on_hyphens=False) for line in cell.split("\n"))
    return "\n".join(piece for line in lines for piece in line or [""])


def _markdown_text(text: str) -> str:
    """Pipes, backticks, angle brackets and emphasis from a file must not become markup."""
    safe = "<br>".join(escape(line) for line in text.split("\n"))
    for mark in "\\|`*_[]":
        safe = safe.replace(mark, f"\\{mark}")
    return safe.replace("<br>", "\0").replace("<", "&lt;").replace("\0", "<br>")


def _csv(table: Table) -> str:
    import csv
    import io

    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([escape(header) for header in table.headers])
    writer.writerows([escape(cell) for cell in row] for row in table.rows)
    return out.getvalue()
