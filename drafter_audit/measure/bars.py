"""Whether a figure is above a bar, as far as its prompts can tell.

The bar is held to both ends of the 95% interval that is shown with the figure: above it where the lower end is, below
it where the upper end is. A good drafter is then called bad in about 1 case of 40 at the bar itself, and more rarely
further off. Between the ends the prompts do not tell, and that is said, with how many would. docs/ci.md has the
rates of both errors as they were measured.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

LEAST_PROMPTS = 8
"""Of fewer prompts the interval is little more than their own range: it cannot leave what was seen.
The wiring check asks for as many in each half."""

MIN_GAIN = 0.03
"""The least gain in KL for which the wiring check blames a wiring, as a share of the KL before it: the minima of a
drafter after 255 steps of training wander by half of that."""

Place = Literal["above", "below", "unsure"]


@dataclass(frozen=True)
class Standing:
    """Where a figure stands to a bar. `needed`: about how many such prompts would tell, None where that is settled, or
    where no number would: the figure is the bar's own."""

    place: Place
    needed: int | None = None


def standing(figure: float, interval: tuple[float, float] | None, bar: float, prompts: int) -> Standing:
    """Of a `figure` with its 95% `interval`, None for a single prompt, over `prompts`.

    >>> standing(2.5, (2.3, 2.7), 2.0, 40), standing(2.1, (1.9, 2.3), 2.0, 40)
    (Standing(place='above', needed=None), Standing(place='unsure', needed=160))
    """
    if prompts < LEAST_PROMPTS or interval is None:
        return Standing("unsure", LEAST_PROMPTS)
    low, high = interval
    if low >= bar:
        return Standing("above")
    if high < bar:
        return Standing("below")
    needed = prompts_to_tell(prompts, figure - low if figure > bar else high - figure, abs(figure - bar))
    return Standing("unsure", None if needed is None else max(prompts + 1, needed))


def prompts_to_tell(prompts: int, half: float, gap: float) -> int | None:
    """About how many prompts make an interval end within `gap` of its figure that ends `half` off it over `prompts`: it
    narrows with the root of their number. None where there is no gap.

    >>> prompts_to_tell(40, half=0.2, gap=0.1)
    160
    """
    return math.ceil(round(prompts * (half / gap) ** 2, 6)) if gap > 1e-9 else None
