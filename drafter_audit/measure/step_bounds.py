"""What an accept_len measured at one number of draft steps says about another.

For chains, accept_len = 1 + the sum of the unconditional acceptance rates over positions 1..k, and those rates do
not rise with position: a token is accepted only if all before it were. So the mean of the first k' rates is at least
the mean of all k, for k' < k, and each further rate is at most that mean.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Bounds:
    """The interval that an accept_len must lie in, tokens per round."""

    low: float
    high: float


def bound_accept_len(low: float, high: float, *, steps: int, to_steps: int) -> Bounds:
    """Bounds at `to_steps` of an accept_len between `low` and `high` at `steps`; both step counts at least 1.

    Fewer steps: 1 + (k'/k)(al - 1) <= al' <= min(al, 1 + k'). More steps: al <= al' <= min(1 + (k'/k)(al - 1), 1 + k').

    >>> bound_accept_len(3.165, 3.490, steps=3, to_steps=2)
    Bounds(low=2.4433333333333334, high=3.0)
    """
    ratio, most = to_steps / steps, 1.0 + to_steps
    scaled_low, scaled_high = 1 + ratio * (low - 1), 1 + ratio * (high - 1)
    if to_steps <= steps:
        return Bounds(scaled_low, min(high, most))
    return Bounds(low, min(scaled_high, most))


def break_even(accept_len: float, tokens_per_s: float, plain_tokens_per_s: float) -> float:
    """The accept_len at which drafting gains nothing.

    A round takes `accept_len / tokens_per_s` seconds, in which plain decoding emits that many times
    `plain_tokens_per_s` tokens.
    """
    return accept_len * plain_tokens_per_s / tokens_per_s


def tokens_per_s_at(accept_len: float, *, measured: float, tokens_per_s: float) -> float:
    """Throughput at another accept_len if a round takes as long as it was measured to take."""
    return tokens_per_s * accept_len / measured
