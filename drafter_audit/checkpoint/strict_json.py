"""Hooks for `json.loads` that refuse what the JSON grammar or the file formats forbid and Python lets pass."""

from __future__ import annotations

from collections import Counter
from typing import Any, NoReturn


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
