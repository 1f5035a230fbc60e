"""What the profile of acceptance alone points to: evidence beside the verdict, never the verdict.

The profiles and their causes are those that public reports of slow drafters have in common, with three steps or more,
greedy: issues of vLLM, SGLang and their trainers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from drafter_audit.wiring.profile import Group, Profile

_NEVER, _SELDOM, _OFTEN = 0.01, 0.12, 0.4
_FALLS_BY = 0.5
"""The share of accepted drafts that is lost past a position, or in a category beside the best one, to be remarkable."""
_LEAST_STARTS = 100
_STEADY = 0.15
"""Rates of acceptance that differ by less from step to step decay smoothly."""


@dataclass(frozen=True)
class Sign:
    """A profile that was seen, and what it most likely comes from."""

    seen: str
    points_to: str

    def to_dict(self) -> dict[str, Any]:
        return {"seen": self.seen, "points_to": self.points_to}


def signs(profile: Profile) -> tuple[Sign, ...]:
    """Every sign that the profile shows, of its rounds first."""
    return tuple(Sign(seen, points_to) for look, points_to in _SIGNS if (seen := look(profile)) is not None)


def _no_draft(profile: Profile) -> str | None:
    first = profile.free_running[0] or 0.0
    return f"the first draft is accepted in {first:.1%} of rounds" if first < _NEVER else None


def _few_drafts(profile: Profile) -> str | None:
    first = profile.free_running[0] or 0.0
    return f"the first draft is accepted in {first:.1%} of rounds" if _NEVER <= first <= _SELDOM else None


def _first_alone(profile: Profile) -> str | None:
    first, *later = [rate or 0.0 for rate in profile.free_running]
    if not later or first < _OFTEN or later[0] > first / 4:
        return None
    return f"the first draft is accepted in {first:.1%} of rounds, the second after it in {later[0]:.1%}"


def _long_texts(profile: Profile) -> str | None:
    return next(_steps_down([g for g in profile.positions if g.starts >= _LEAST_STARTS]), None)


def _steps_down(groups: list[Group]) -> Iterator[str]:
    for before, after in pairwise(groups):
        if after.accept_len - 1 < (1 - _FALLS_BY) * (before.accept_len - 1):
            was, now = (f"{group.accept_len:.2f} at positions {group.name}" for group in (before, after))
            yield f"accept_len falls from {was} to {now}"


def _categories(profile: Profile) -> str | None:
    groups = sorted((g for g in profile.categories if g.starts >= _LEAST_STARTS), key=lambda g: g.accept_len)
    if len(groups) < 2 or groups[0].accept_len - 1 > (1 - _FALLS_BY) * (groups[-1].accept_len - 1):
        return None
    worst, best = (f"{group.accept_len:.2f} on {group.name!r}" for group in (groups[0], groups[-1]))
    return f"accept_len is {worst} and {best}"


def _smooth(profile: Profile) -> str | None:
    rates = [rate for rate in profile.free_running if rate is not None]
    if len(rates) < 2 or not _SELDOM < rates[0] < _FEW or max(rates) - min(rates) > _STEADY:
        return None
    return f"each draft is accepted about as often as the one before: {', '.join(f'{rate:.1%}' for rate in rates)}"


_FEW = 0.7  # what trained drafters' first drafts are accepted in, or more, on prompts like those of training

_SIGNS: tuple[tuple[Callable[[Profile], str | None], str], ...] = (
    (_no_draft, "a head, embedding or layer at random, or a wrong scale"),
    (_few_drafts, "a vocabulary map that is lost, or wrong boundaries"),
    (_first_alone, "the feedback path: a norm, a position, or training on one step alone"),
    (_long_texts, "the draft's max positions, or rope scaling"),
    (_categories, "prompts unlike those of training, or another template or mode of thinking"),
    (_smooth, "where no wiring helps: too little training, or a target that changed since"),
)
