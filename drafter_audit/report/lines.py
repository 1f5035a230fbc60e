"""Where in a file a key stands, for annotations: parsers of TOML and JSON keep no lines."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence

_HEADER = re.compile(r"\s*(\[\[?)\s*(?:tool\.drafter-audit\.)?([\w.-]+)\s*\]\]?\s*(?:#.*)?")
_KEY = re.compile(r"\s*([\w-]+)\s*=")


def bar_line(text: str, drafter: str, key: str) -> int | None:
    """The line of a project file, from 1, on which the drafter's own table sets `key`, else `[check]` does, else on
    which the drafter is listed; None where none is found, as for other ways to write a table."""
    own, shared, listed, mine = None, None, None, ""
    for number, table, found, line in _keys(text):
        if found == "path" and _DRAFTER.fullmatch(table) and _path(line) == drafter:
            listed, mine = number, table
        elif found == key and table == "[check]":
            shared = number
        elif found == key and mine and table == f"{mine} check":
            own = number
    return own or shared or listed


_DRAFTER = re.compile(r"\[\[drafter\]\] \d+")


def _keys(text: str) -> Iterator[tuple[int, str, str | None, str]]:
    """Of a project file each line with a header or a key: its number from 1, its table as errors call it, such as
    "[[drafter]] 2 check", the key, None in a header's, and the line."""
    table, counts = "the file", Counter[str]()
    for number, line in enumerate(text.splitlines(), 1):
        if header := _HEADER.fullmatch(line):
            table = _table(header[2], header[1] == "[[", counts)
            yield number, table, None, line
        elif key := _KEY.match(line):
            yield number, table, key[1], line


def _table(name: str, several: bool, counts: Counter[str]) -> str:
    """`counts` are the tables seen of those that may be several."""
    outer, _, inner = name.partition(".")
    if not inner:
        counts[name] += several
        return f"[[{name}]] {counts[name]}" if several else f"[{name}]"
    within = f"[[{outer}]] {counts[outer]} {inner}"
    counts[within] += several
    return f"{within} {counts[within]}" if several else within


def _path(line: str) -> object:
    try:
        return tomllib.loads(line).get("path")
    except tomllib.TOMLDecodeError:
        return None


def key_line(text: str, keys: Sequence[str]) -> int:
    """The line of a JSON file, from 1, on which the last of nested `keys` stands, as far as they are found.

    >>> key_line('{\\n "a": {\\n  "b": 1}}', ["a", "b"])
    3
    """
    at = 0
    for key in keys:
        found = re.compile(rf'"{re.escape(key)}"\s*:').search(text, at)
        at = found.start() if found else at
    return text.count("\n", 0, at) + 1


def error_line(text: str, what: str, place: str) -> int:
    """The line of a project file, from 1, that an error about it speaks of: the one it names, else of its key in the
    table `place`, else of that table, else of the first such key."""
    if named := re.search(r"at line (\d+)", what):
        return int(named[1])
    words = re.match(r"(?:unknown key )?'?([\w-]+)", what)
    lines = list(_keys(text))
    here = [(number, key) for number, table, key, _ in lines if table == place]
    anywhere = [(number, key) for number, _, key, _ in lines]
    found = (number for number, key in here or anywhere if words and key == words[1])
    return next(found, here[0][0] if here else 1)
