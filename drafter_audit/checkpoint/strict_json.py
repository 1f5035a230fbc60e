"""JSON without what the grammar or the file formats forbid and Python lets pass, nor what no later step survives."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from typing import Any, NoReturn

MAX_DEPTH = 100
"""Objects and lists in each other; what walks them later, on any Python, recurses."""

MAX_DIGITS = 300
"""Of a whole number: each still has a floating-point neighbour."""


class DuplicateKeyError(ValueError):
    """An object names one key twice; parsers differ in which they keep."""

    def __init__(self, key: str) -> None:
        self.key = key
        super().__init__(f"the key {key!r} stands in it twice")


def unique_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An `object_pairs_hook`. Raises DuplicateKeyError.

    >>> unique_object([("a", 1), ("b", 2)])
    {'a': 1, 'b': 2}
    """
    found = dict(pairs)
    if len(found) < len(pairs):
        (key, _), *_ = Counter(key for key, _ in pairs).most_common(1)
        raise DuplicateKeyError(key)
    return found


def refuse_constant(text: str) -> NoReturn:
    """A `parse_constant` hook: NaN and Infinity are not JSON. Raises ValueError."""
    raise ValueError(f"{text} is not a JSON number")


def finite_float(text: str) -> float:
    """A `parse_float` hook: 1e999 would be infinite, which no JSON can say again. Raises ValueError."""
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise ValueError(f"{text} is out of range")
    return value


def strict_loads(text: str | bytes) -> Any:  # noqa: ANN401 - it is JSON
    """The value that `text` writes. Raises ValueError, of which DuplicateKeyError is one, and RecursionError."""
    value = json.loads(
        text,
        object_pairs_hook=unique_object,
        parse_constant=refuse_constant,
        parse_float=finite_float,
        parse_int=_bounded_int,
    )
    _check_depth(value)
    return value


def _bounded_int(text: str) -> int:
    if len(text) > MAX_DIGITS:
        raise ValueError(f"a number of {len(text)} digits is out of range")
    return int(text)


def _check_depth(value: object) -> None:
    level, depth = [value], 0
    while level := [inner for item in level for inner in _inside(item) if isinstance(inner, dict | list)]:
        depth += 1
        if depth > MAX_DEPTH:
            raise ValueError(f"nested deeper than {MAX_DEPTH}")


def _inside(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()
