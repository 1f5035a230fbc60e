"""Where in a file a key stands, for annotations: parsers of TOML and JSON keep no lines."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence

_HEADER = re.compile(r"\s*\[\[?\s*(?:tool\.drafter-audit\.)?([\w.-]+)\s*\]\]?\s*(?:#.*)?")
_KEY = re.compile(r"\s*([\w-]+)\s*=")


def bar_line(text: str, drafter: str, key: str) -> int | None:
    """The line of a project file, from 1, on which the drafter's own table sets `key`, else `[check]` does, else on
    which the drafter is listed; None where none is found, as for other ways to write a table."""
    own, shared, listed, section, mine = None, None, None, "", False
    for number, line in enumerate(text.splitlines(), 1):
        if header := _HEADER.fullmatch(line):
            section = header[1]
            mine = mine and section != "drafter"  # the next one begins
        elif (found := _KEY.match(line)) is None:
            continue
        elif section == "drafter" and found[1] == "path":
            mine = _path(line) == drafter
            listed = number if mine else listed
        elif found[1] == key and section == "check":
            shared = number
        elif found[1] == key and section == "drafter.check" and mine:
            own = number
    return own or shared or listed


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


def error_line(text: str, what: str) -> int:
    """The line of a project file, from 1, that an error about it speaks of: the one it names, else of its key."""
    if named := re.search(r"at line (\d+)", what):
        return int(named[1])
    key = re.match(r"(?:unknown key ')?([\w-]+)", what)
    found = re.search(rf"^\s*{re.escape(key[1])}\s*=", text, re.MULTILINE) if key else None
    return text.count("\n", 0, found.end()) + 1 if found else 1
