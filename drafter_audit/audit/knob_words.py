"""A knob's value as people read it, and as JSON has it."""

from __future__ import annotations

from drafter_audit.drafter.boundaries import spelled


def in_words(value: object) -> str:
    """One knob's value for a sentence or a cell.

    >>> in_words((0, 30, 58)), in_words(None), in_words(1e6), in_words((("factor", 8.0), ("type", "yarn")))
    ('[0 (embedding output), 30, 58]', 'none', '1000000', 'factor 8.0, type yarn')
    """
    if isinstance(value, tuple):
        ids = all(isinstance(item, int) for item in value)
        return spelled(value) if ids else ", ".join(f"{key} {item}" for key, item in value)
    return "none" if value is None else f"{value:.12g}" if isinstance(value, float) else str(value)


def in_json(value: object) -> object:
    """Boundaries as a list, a rope's settings as an object."""
    if isinstance(value, tuple):
        return list(value) if all(isinstance(item, int) for item in value) else dict(value)
    return value
