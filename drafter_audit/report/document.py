"""What a command shows, before it is known in which format."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Table:
    """Rows of text cells under headers; numbers are formatted already, right-aligned where `numeric` says so."""

    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    title: str | None = None
    numeric: frozenset[int] = frozenset()


def once(rows: Iterable[tuple[str, ...]]) -> tuple[tuple[str, ...], ...]:
    """Rows whose first cell is shown once for a run of rows that share it."""
    shown, last = [], None
    for first, *rest in rows:
        shown.append(("" if first == last else first, *rest))
        last = first
    return tuple(shown)


@dataclass(frozen=True)
class Lines:
    """Sentences, one a line."""

    lines: tuple[str, ...]
    title: str | None = None


@dataclass(frozen=True)
class Code:
    """Text to be taken over as it stands, never wrapped; `language` is what Markdown calls it."""

    text: str
    language: str
    title: str | None = None


Block = Table | Lines | Code


@dataclass(frozen=True)
class Document:
    """Blocks in reading order, and the one table that stands for them as CSV (raw numbers, no thousands separators)."""

    blocks: tuple[Block, ...]
    csv: Table
