"""Answers that measure nothing: those that repeat themselves for ever, and those cut off."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

COPIES = 4
LEAST = 32  # tokens
"""An answer loops where it ends in at least four copies of one piece, 32 tokens or more in all.

Three equal lines at the end of what was cut off happen in honest text (closing braces, rows of zeros, a refrain); four
that also fill 32 tokens do not, unless the text is about nothing else. The tail alone is looked at: repetition that an
answer has left again, as the rule of a table does, is no loop.
"""

MOST = 0.5
"""The share of answers, capped or looping, above which acceptance is that of the cap or of the loop."""


class Ended(Protocol):
    """An answer: whether the cap ended it, and whether it ends in a loop."""

    @property
    def capped(self) -> bool: ...
    @property
    def degenerate(self) -> bool: ...


def loops(tokens: Sequence[int]) -> bool:
    """Whether an answer, `tokens` through its end token or the cap, ends in a loop of any period.

    Quadratic in the length at worst, linear for text: most periods fail at the last token.

    >>> loops([5, 6, 7] * 11), loops([5, 6, 7] * 11 + [0]), loops(range(64))
    (True, False, False)
    """
    return any(_tail(tokens, period) >= max(COPIES * period, LEAST) for period in range(1, len(tokens) // COPIES + 1))


def _tail(tokens: Sequence[int], period: int) -> int:
    """How many tokens at the end have this period."""
    at = len(tokens) - 1
    while at >= period and tokens[at] == tokens[at - period]:
        at -= 1
    return len(tokens) - 1 - at + period


def why_not_measured(answers: Sequence[Ended]) -> str | None:
    """Why the answers are no measure of a drafter, in words, None where they are.

    They are none where more than half hit the cap or loop: the figures are then those of cut or degenerate text. Such a
    result is shown, and ends with exit code 3.
    """
    capped = sum(answer.capped for answer in answers)
    looping = sum(answer.degenerate for answer in answers)
    either = sum(answer.capped or answer.degenerate for answer in answers)
    if either <= MOST * len(answers):
        return None
    return f"{either} of {len(answers)} answers are no whole text: {capped} hit the cap, {looping} loop"
