"""One conclusion, and the words that conclusions share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Conclusion:
    """A code from the closed list, a sentence, and the numbers it rests on. The last drafter is "ours"."""

    code: str
    text: str
    numbers: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        return {"code": self.code, "text": self.text, "numbers": dict(self.numbers)}


def short(count: int) -> str:
    """A parameter count in billions or millions."""
    return f"{count / 1e9:.3f}B" if count >= 1e9 else f"{count / 1e6:.1f}M" if count >= 1e6 else f"{count:,}"


def span(low: float, high: float, digits: int = 3) -> str:
    """One figure, or a range of two."""
    if low == high:
        return f"{low:.{digits}f}".rstrip("0").rstrip(".") if digits > 1 else f"{low:.{digits}f}"
    return f"{low:.{digits}f}–{high:.{digits}f}"


def listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def verb(names: Sequence[str], one: str, many: str) -> str:
    return one if len(names) == 1 else many
