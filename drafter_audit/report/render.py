"""Documents as text: a table for people, Markdown for pages, CSV for spreadsheets. Text from files is escaped here."""

from __future__ import annotations

import shutil
import textwrap

from drafter_audit.errors import escape
from drafter_audit.report.document import Block, Code, Document, Lines, Table

FORMATS = ("table", "json", "markdown", "csv")
_WIDTH = 132  # columns where no terminal tells its own
_NARROWEST = 10  # columns that a wrapped cell keeps
_PADDING = 2  # columns that tabulate adds to a header
_LONGEST_LINE = 118  # columns of a sentence: longer ones are hard to read

_LONGEST_SHOWN = 10_000  # characters of a cell or sentence: wrapping takes time that grows with the square of a word


def render(document: Document, style: str) -> str:
    """The document in one of FORMATS but json, ending in a newline."""
    if style == "csv":
        return _csv(document.csv)
    block = _markdown if style == "markdown" else _plain
    return "\n\n".join(block(part) for part in document.blocks) + "\n"


def _plain(block: Block) -> str:
    width = shutil.get_terminal_size((_WIDTH, 24)).columns
    title = [escape(block.title), "-" * len(escape(block.title))] if block.title else []
    if isinstance(block, Code):
        return "\n".join([*title, *_verbatim(block)])
    if isinstance(block, Lines):
        line_width = min(width, _LONGEST_LINE)
        lines = (_fill(_shown(line), line_width, subsequent_indent="  ") for line in block.lines)
        return "\n".join([*title, *lines])
    headers = [_lines(header) for header in block.headers]
    rows = [[_lines(cell) for cell in row] for row in block.rows]
    natural = [[max(map(len, cell)) for cell in row] for row in rows]
    widths = _fit([[max(map(len, header)) + _PADDING for header in headers], *natural], width)
    wrapped = [[_wrap(cell, wide) for cell, wide in zip(row, widths, strict=True)] for row in rows]
    titles = [_wrap(header, wide - _PADDING) for header, wide in zip(headers, widths, strict=True)]
    return "\n".join([*title, _tabulate(block, titles, wrapped, "simple")])


def _fit(natural: list[list[int]], width: int) -> list[int]:
    """Widths of the columns, the widest ones narrowed until all fit `width` or none can be narrowed further."""
    most = max(width, _NARROWEST)  # at once: a tensor's name may have millions of characters
    widths = [min(most, max(column)) for column in zip(*natural, strict=True)]
    while sum(widths) + 2 * len(widths) > width and max(widths) > _NARROWEST:
        widths[widths.index(max(widths))] -= 1
    return widths


def _lines(cell: str) -> list[str]:
    """A cell's own lines; text from files has had its line breaks escaped when the cell was made."""
    return [_shown(line) for line in cell.split("\n")]


def _shown(line: str) -> str:
    """Escaped, and cut where a hostile name or shape has millions of characters; the other formats hold all of it."""
    rest = len(line) - _LONGEST_SHOWN
    return escape(line if rest <= 0 else f"{line[:_LONGEST_SHOWN]}... and {rest} characters more, see --format json")


def _wrap(lines: list[str], width: int) -> str:
    return "\n".join(_fill(line, max(width, 1)) for line in lines)


def _fill(line: str, width: int, *, subsequent_indent: str = "") -> str:
    return textwrap.fill(line, width, subsequent_indent=subsequent_indent, break_on_hyphens=False)


def _verbatim(block: Code) -> list[str]:
    return [_shown(line) for line in block.text.rstrip("\n").split("\n")]


def _markdown(block: Block) -> str:
    title = [f"### {markdown_text(block.title)}", ""] if block.title else []
    if isinstance(block, Code):
        return "\n".join([*title, f"```{block.language}", *_verbatim(block), "```"])
    if isinstance(block, Lines):
        return "\n".join(title + [f"- {markdown_text(line)}" for line in block.lines])
    rows = [[markdown_text(cell) for cell in row] for row in block.rows]
    headers = [markdown_text(header) for header in block.headers]
    return "\n".join([*title, _tabulate(block, headers, rows, "github")])


def _tabulate(block: Table, headers: list[str], rows: list[list[str]], style: str) -> str:
    from tabulate import tabulate

    align = tuple("right" if column in block.numeric else "left" for column in range(len(block.headers)))
    return tabulate(
        rows, headers, tablefmt=style, colalign=align if rows else None, disable_numparse=True, preserve_whitespace=True
    )


def markdown_text(text: str) -> str:
    """Nothing that a file holds becomes markup: no cell, code, emphasis, link (bare addresses too), formula, HTML."""
    safe = "<br>".join(escape(line) for line in text.split("\n"))
    for mark in "\\|`*_[]~$":
        safe = safe.replace(mark, f"\\{mark}")
    safe = safe.replace("&", "&amp;").replace("://", "\\://").replace("www.", "www\\.")
    return safe.replace("<br>", "\0").replace("<", "&lt;").replace("\0", "<br>")


def _csv(table: Table) -> str:
    import csv
    import io

    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([escape(header) for header in table.headers])
    writer.writerows([escape(cell) for cell in row] for row in table.rows)
    return out.getvalue()
