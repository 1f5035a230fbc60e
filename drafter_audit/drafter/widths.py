"""Which width the weights of a packed container have, from what is declared and how many scales a row has."""

from __future__ import annotations

from math import ceil
from typing import NamedTuple

from drafter_audit.drafter.quantization import Scheme

WIDTHS = (1, 2, 3, 4, 5, 6, 7, 8)
_GROUPS = (32, 64, 128)  # those that quantisers offer, tried where none is declared


class Width(NamedTuple):
    """Bits of a weight, weights in a row, and what that follows from."""

    bits: int
    columns: int
    told_by: str


def width_of(words: int, container: int, groups: int | None, schemes: tuple[Scheme, ...]) -> Width | None:
    """The one width that `words` containers of `container` bits a row and `groups` scales a row allow, else None."""
    fits = {fit for scheme in schemes for fit in _fits(words, container, groups, scheme)}
    by_bits = {fit.bits: fit for fit in sorted(fits)}
    return next(iter(by_bits.values())) if len(by_bits) == 1 else None


def _fits(words: int, container: int, groups: int | None, scheme: Scheme) -> list[Width]:
    """Widths that one scheme allows: the declared one if the scales agree, else those that whole groups leave."""
    if scheme.bits is not None:
        columns = _columns(words, container, scheme.bits, groups, scheme.group_size)
        return [] if columns is None else [Width(scheme.bits, columns, "the declared bits")]
    if not groups or groups == 1:
        return []
    sizes = [groups * size for size in ((scheme.group_size,) if scheme.group_size else _GROUPS)]
    pairs = [(bits, columns) for columns in sizes for bits in WIDTHS if words * container == columns * bits]
    return [Width(bits, columns, "the scales' groups") for bits, columns in pairs]


def _columns(words: int, container: int, bits: int, groups: int | None, group_size: int | None) -> int | None:
    """Weights in a row of `words` containers; None where the number of scales contradicts it.

    Where a row does not fill its last container only the scales tell its exact length; without them it is rounded up.
    Older exports leave bits unused in each container (32 // 3 = 10 weights of 3 bits), newer ones pack without gaps.
    """
    held = words * container // bits
    if not groups or groups == 1 or not group_size:
        return held
    exact = groups * group_size
    if words in (ceil(exact * bits / container), ceil(exact / max(1, container // bits))):
        return exact
    return held if ceil(held / group_size) == groups else None
