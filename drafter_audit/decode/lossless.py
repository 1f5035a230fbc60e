"""Whether drafting changed the text: greedy answers with the drafter against those of the target alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from drafter_audit.decode.answer import Answer
from drafter_audit.model.target.model import TargetModel
from drafter_audit.prompts.prompt import TokenPrompt


@dataclass(frozen=True)
class Parting:
    """Where a prompt's two answers part: `index` counts its tokens from 0, `gap` is how far the worse of the two
    tokens' logits lies below the highest."""

    prompt: str
    index: int
    gap: float
    tie: bool


@dataclass(frozen=True)
class Lossless:
    """`checked` prompts; the answers of those in `partings` part, at a tie or not."""

    checked: int
    partings: tuple[Parting, ...] = ()

    @property
    def ties(self) -> int:
        return sum(each.tie for each in self.partings)

    @property
    def mismatches(self) -> int:
        return len(self.partings) - self.ties

    def to_dict(self) -> dict[str, int]:
        return {"checked": self.checked, "mismatches": self.mismatches, "ties": self.ties}


def compared(
    target: TargetModel,
    prompts: Sequence[TokenPrompt],
    answers: Sequence[Answer],
    plain: Sequence[Answer],
    epsilon: float,
) -> Lossless:
    """Token for token up to the first difference; past it two texts say nothing of each other. It is a tie where both
    tokens' logits lie within `epsilon` of the highest, as the target gives them for the text up to there."""
    both = zip(prompts, answers, plain, strict=True)
    partings = [_parting(target, prompt, one.tokens, other.tokens, epsilon) for prompt, one, other in both]
    return Lossless(len(partings), tuple(each for each in partings if each is not None))


def _parting(
    target: TargetModel, prompt: TokenPrompt, one: Sequence[int], other: Sequence[int], epsilon: float
) -> Parting | None:
    if one == other:
        return None
    index = next(index for index, (mine, its) in enumerate(zip(one, other, strict=False)) if mine != its)
    text = torch.tensor((*prompt.ids, *one[:index]))
    logits, _ = target.forward_with_taps(text, (), logits_to_keep=1)
    last = logits[-1].float()
    gap = float(last.max() - last[[one[index], other[index]]].min())
    return Parting(prompt.id, index, gap, tie=gap < epsilon)
