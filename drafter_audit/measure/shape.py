"""The shape of a round, in the words that SGLang is started with: a chain of drafts, or a tree of them.

A tree grows as EAGLE-2's does (Li et al. 2024, arXiv 2406.16858). Step 1 drafts the `topk` likeliest tokens. Each later
step drafts the `topk` likeliest after each of `topk` beams, the likeliest paths so far. Of all that was drafted the
likeliest paths are verified, `num_draft_tokens` with the last emitted token, which is verified with them. EAGLE's own
`depth` leaves the first step out: it is `steps` - 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from drafter_audit.errors import UsageError


@dataclass(frozen=True, order=True)
class Shape:
    """Make it by `shape_of`, which knows what a chain verifies. `topk` 1 is a chain. Raises UsageError for what is no
    shape."""

    topk: int
    num_draft_tokens: int
    steps: int

    def __post_init__(self) -> None:
        for name in ("steps", "topk"):
            if getattr(self, name) < 1:
                raise UsageError(f"{getattr(self, name)} {name}", f"--{name}", "give a whole number from 1 on")
        if self.topk == 1 and self.num_draft_tokens != self.steps + 1:
            what = f"{self.num_draft_tokens} tokens to verify in a chain of {self.steps} steps"
            raise UsageError(what, "--num-draft-tokens", f"give {self.steps + 1}, or leave it out")
        if not 2 <= self.num_draft_tokens <= self.most_tokens:
            what = f"{self.num_draft_tokens} tokens to verify in a tree of {self.steps} steps, top-k {self.topk}"
            raise UsageError(what, "--num-draft-tokens", f"give 2 to {self.most_tokens}, the last emitted one included")

    @property
    def is_chain(self) -> bool:
        return self.topk == 1

    @property
    def most_tokens(self) -> int:
        """As many as can be verified: all that the steps draft, and the last emitted token."""
        return 1 + drafted_by(self.steps, self.topk)

    @property
    def deepest(self) -> int:
        """The most drafts that a round can accept."""
        return min(self.steps, self.num_draft_tokens - 1)


def drafted_by(steps: int, topk: int) -> int:
    """How many tokens so many steps draft.

    >>> drafted_by(5, 1), drafted_by(5, 4)
    (5, 68)
    """
    return topk + (steps - 1) * topk**2


def shape_of(steps: int, topk: int = 1, num_draft_tokens: int | None = None) -> Shape:
    """A chain verifies `steps` + 1 tokens; of a tree the number must be given. Raises UsageError."""
    if num_draft_tokens is None:
        if topk > 1:
            most = 1 + drafted_by(steps, topk)
            what = f"a tree of top-k {topk} whose number of tokens to verify is not said"
            raise UsageError(what, "--num-draft-tokens", f"give 2 to {most}, the last emitted one included")
        num_draft_tokens = steps + 1
    return Shape(topk, num_draft_tokens, steps)


def shapes_of(
    steps: Sequence[int], topks: Sequence[int], num_draft_tokens: Sequence[int]
) -> tuple[tuple[Shape, ...], tuple[str, ...]]:
    """All shapes of these, and a sentence on those that cannot be: trees of more tokens than are drafted. Of chains the
    steps tell the number of tokens. Raises UsageError where numbers are given without trees, or trees without them, and
    where no shape is left."""
    wide = [topk for topk in topks if topk > 1]
    if num_draft_tokens and not wide:
        mend = "leave it out, or ask for trees by --topk"
        raise UsageError("chains alone, which verify steps + 1 tokens", "--num-draft-tokens", mend)
    if wide and not num_draft_tokens:
        shape_of(steps[-1], wide[0])
    cells = [(count, topk, tokens) for topk in wide for tokens in num_draft_tokens for count in steps]
    fit = [cell for cell in cells if 2 <= cell[2] <= 1 + drafted_by(cell[0], cell[1])]
    chains = [shape_of(count) for count in steps if 1 in topks]
    if not fit and not chains:
        shape_of(*cells[-1])
    apart = [
        f"{tokens} at {count} steps, top-k {topk}" for count, topk, tokens in cells if (count, topk, tokens) not in fit
    ]
    notes = (f"left out, as fewer tokens are drafted than would be verified: {'; '.join(apart)}",) if apart else ()
    return (*chains, *(shape_of(*cell) for cell in fit)), notes
