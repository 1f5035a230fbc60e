"""Whether drafting changed the text: greedy answers with the drafter against those of the target alone."""

from __future__ import annotations

from collections.abc import Sequence

from drafter_audit.decode.answer import Answer
from drafter_audit.decode.result import Lossless, Tie
from drafter_audit.model.target.model import TargetModel
from drafter_audit.prompts.prompt import TokenPrompt


def compared(
    target: TargetModel,
    prompts: Sequence[TokenPrompt],
    answers: Sequence[Answer],
    plain: Sequence[Answer],
    epsilon: float,
) -> tuple[Lossless, tuple[Tie, ...]]:
    """Token by token, up to where a prompt's two answers part: past that they say nothing of each other.

    Also returns those places. The gap there is how far the worse of the two tokens' logits lies below the highest, as
    the target gives them for the text up to there; below `epsilon` it is a tie, else a mismatch. Every rank calls it.
    """
    parted, checked = [], 0
    for prompt, one, other in zip(prompts, answers, plain, strict=True):
        same = _same(one.tokens, other.tokens)
        checked += min(same + 1, len(one.tokens))
        if one.tokens != other.tokens:
            parted.append(Tie(prompt.id, same, _gap(target, prompt.ids, one.tokens, other.tokens, same)))
    ties = sum(parting.gap < epsilon for parting in parted)
    return Lossless(checked, len(parted) - ties, ties, epsilon), tuple(parted)


def _same(one: Sequence[int], other: Sequence[int]) -> int:
    """How many tokens the two begin with in common."""
    return next((i for i, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), len(one))


def _gap(target: TargetModel, prompt: Sequence[int], one: Sequence[int], other: Sequence[int], at: int) -> float:
    logits, _ = target.forward_with_taps([*prompt, *one[:at]], (), logits_to_keep=1)
    last = logits[-1].float()
    return float(last.max() - last[[one[at], other[at]]].min())
