"""Numbers and lists as people read them."""

from __future__ import annotations

from collections.abc import Sequence

from drafter_audit.errors import escape

NOTHING = "–"


def count(value: int | None) -> str:
    """An integer with thousands separators."""
    return NOTHING if value is None else f"{value:,}"


def size(nbytes: int) -> str:
    """Bytes in decimal units, as the Hub shows them."""
    value = float(nbytes)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.2f} {unit}"
        value /= 1000
    return f"{value:.2f} TB"


def plain(value: object) -> str:
    """Any field's value: lists in brackets, switches as on/off, nothing as a dash."""
    if value is None:
        return NOTHING
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, int):
        return f"{value:,}" if abs(value) >= 1_000_000 else str(value)
    if isinstance(value, float):
        return f"{value:g}" if abs(value) < 1e6 else f"{value:,.0f}"
    if isinstance(value, dict):
        return ", ".join(f"{key} {plain(item)}" for key, item in value.items())
    if isinstance(value, Sequence) and not isinstance(value, str):
        return f"[{', '.join(str(item) for item in value)}]"
    return escape(str(value))


def bar(part: float, width: int = 20) -> str:
    """A part of one as a bar of so many columns, to an eighth of a column."""
    whole, eighths = divmod(round(part * width * 8), 8)
    return "█" * whole + " ▏▎▍▌▋▊▉"[eighths].strip()


def share(value: float | None) -> str:
    """A part of one in per cent."""
    return NOTHING if value is None else f"{value:.1%}"


def figure(value: float | None, digits: int = 3) -> str:
    return NOTHING if value is None else f"{value:,.{digits}f}"


def interval(value: tuple[float, float] | None, digits: int = 3) -> str:
    return NOTHING if value is None else f"[{value[0]:.{digits}f}, {value[1]:.{digits}f}]"


def raw(value: object) -> str:
    """A value as CSV has it: no rounding, lists with blanks between, nothing as nothing."""
    if isinstance(value, list):
        return " ".join(map(raw, value))
    return "" if value is None else str(value)
