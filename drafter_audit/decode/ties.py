"""How close two logits of a target must stand for rounding to decide between them."""

from __future__ import annotations

TIE = 1e-4
"""In float32: some 50 units in the last place of logits about 20. Reading a text one token at a time and four at a time
moved the gap between the two likeliest tokens of the reference target by up to 2e-5."""

_HALF_SIZED = {"float16": 2.0**-10, "bfloat16": 2.0**-7}
"""The step from 1 to the next number, by torch's name of the dtype."""


def tie_below(dtype: str) -> float:
    """The gap below which a choice by logits of that dtype is a tie.

    For half-sized dtypes two units in the last place of logits between 16 and 32, where the largest lie: a unit is
    what one rounding moves. In bfloat16 the reference target's gaps moved by up to 1.5 of them.

    >>> tie_below("float32"), tie_below("float16"), tie_below("bfloat16")
    (0.0001, 0.03125, 0.25)
    """
    return max(TIE, 2 * 16 * _HALF_SIZED.get(dtype, 0.0))
