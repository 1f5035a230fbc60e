"""The little Markdown that a model card needs: front matter, prose under its heading, pipe tables.

Every step is linear in the text, whatever the text, and every size is bounded: cards are strangers' writing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

MAX_CHARACTERS = 1 << 18
_MAX_LINE = 4000
_MAX_ROWS = 500

_FENCE = re.compile(r"\s{0,3}(```|~~~)")
_HEADING = re.compile(r"\s{0,3}#{1,6}\s+(\S.*)")
_BULLET = re.compile(r"\s*(?:[-*+]|\d{1,3}[.)])\s+")
_RULE = re.compile(r"\s*:?-+:?\s*")
_LINK = re.compile(r"!?\[([^\[\]]{0,300})\]\([^()\s]{0,500}\)")
_TAG = re.compile(r"<[^<>]{1,300}>")
_MARKS = re.compile(r"\*+|`+|(?<!\w)_+|_+(?!\w)")


@dataclass(frozen=True)
class Paragraph:
    """Prose, or one list item, on one line without its markup, and the heading it stands under."""

    heading: str
    text: str


@dataclass(frozen=True)
class Table:
    """A pipe table; all cells without markup. `lead` is the paragraph before it, "" where none is between."""

    heading: str
    lead: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass
class _Reader:
    heading: str = ""
    lead: str = ""
    lines: list[str] = field(default_factory=list)

    def flush(self) -> Iterator[Paragraph]:
        text = plain(" ".join(self.lines))
        self.lines.clear()
        if text:
            self.lead = text
            yield Paragraph(self.heading, text)


def split_front_matter(text: str) -> tuple[str, str]:
    """The YAML between two `---` lines at the top ("" where there is none), and the rest."""
    lines = text.removeprefix("\ufeff").splitlines()
    if lines and lines[0].rstrip() == "---":
        for number, line in enumerate(lines[1:], 1):
            if line.rstrip() == "---":
                return "\n".join(lines[1:number]), "\n".join(lines[number + 1 :])
    return "", "\n".join(lines)


def blocks(body: str) -> Iterator[Paragraph | Table]:
    """Paragraphs and tables in order; code blocks are left out."""
    reader, lines, number = _Reader(), _outside_code(body), 0
    while number < len(lines):
        if size := _table_size(lines, number):
            yield from reader.flush()
            yield _table(lines[number : number + size], reader)
            number += size
        else:
            yield from _prose(lines[number], reader)
            number += 1
    yield from reader.flush()


def plain(text: str) -> str:
    """`text` without links, tags, emphasis and code marks, white space squeezed.

    >>> plain("**[GSM8K](https://example.org)** (`Math`)")
    'GSM8K (Math)'
    """
    return " ".join(_MARKS.sub("", _TAG.sub(" ", _LINK.sub(r"\1", text))).split())


def _outside_code(body: str) -> list[str]:
    lines, fenced = [], False
    for line in body.splitlines():
        if _FENCE.match(line):
            fenced = not fenced
            lines.append("")
        elif not fenced:
            lines.append(line)
    return lines


def _prose(line: str, reader: _Reader) -> Iterator[Paragraph]:
    heading = _HEADING.match(line[:_MAX_LINE])
    bullet = _BULLET.match(line)
    if heading or bullet or not line.strip():
        yield from reader.flush()
    if heading:
        reader.heading, reader.lead = plain(heading[1]), ""
    elif line.strip():
        reader.lines.append(line[bullet.end() :] if bullet else line)


def _table_size(lines: list[str], start: int) -> int:
    """How many lines of a table start here, 0 where none does: a header, a row of dashes as wide, then rows."""
    if start + 1 >= len(lines) or not _is_row(lines[start]) or not _is_row(lines[start + 1]):
        return 0
    dashes = _cells(lines[start + 1])
    if len(dashes) != len(_cells(lines[start])) or not all(_RULE.fullmatch(cell) for cell in dashes):
        return 0
    stop = start + 2
    while stop < len(lines) and _is_row(lines[stop]):
        stop += 1
    return stop - start


def _table(lines: list[str], reader: _Reader) -> Table:
    header = tuple(plain(cell) for cell in _cells(lines[0]))
    rows = (tuple(plain(cell) for cell in _cells(line)) for line in lines[2 : 2 + _MAX_ROWS])
    return Table(reader.heading, reader.lead, header, tuple(row for row in rows if len(row) == len(header)))


def _is_row(line: str) -> bool:
    return "|" in line and len(line) <= _MAX_LINE


def _cells(line: str) -> list[str]:
    inner = line.strip().removeprefix("|").removesuffix("|")
    return [cell.replace("\0", "|") for cell in inner.replace("\\|", "\0").split("|")]
