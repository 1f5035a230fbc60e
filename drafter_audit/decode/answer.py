"""One prompt's answer: the tokens, where it ended, and what each round accepted."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from drafter_audit.decode.settings import Settings
from drafter_audit.decode.timing import Spent
from drafter_audit.measure.acceptance import PromptCounts
from drafter_audit.measure.costs import Timing
from drafter_audit.measure.loops import loops
from drafter_audit.model.target.model import TargetModel
from drafter_audit.prompts.prompt import TokenPrompt


@dataclass(frozen=True)
class Ending:
    """After `length` tokens: at the first end token, or at the limit (`capped`) where none came before."""

    length: int
    capped: bool


def ends_of(target: TargetModel, asked: Settings) -> frozenset[int]:
    """The tokens that end an answer."""
    return frozenset(() if asked.ignore_end else target.end_ids)


def ending_of(emitted: Sequence[int], since: int, ends: Collection[int], limit: int) -> Ending | None:
    """Where the answer ends, None if it goes on. Before `since` there is no end."""
    for index in range(since, min(len(emitted), limit)):
        if emitted[index] in ends:
            return Ending(index + 1, capped=False)
    return Ending(limit, capped=True) if len(emitted) >= limit else None


@dataclass(frozen=True)
class Answer:
    """`emitted` are all tokens, those of the last round past the end too; `accepted` drafts of each round."""

    emitted: tuple[int, ...]
    accepted: tuple[int, ...]
    ending: Ending
    spent: Spent

    @property
    def tokens(self) -> tuple[int, ...]:
        """Up to the end, the end token included."""
        return self.emitted[: self.ending.length]

    def counts(self, prompt: TokenPrompt, steps: int) -> PromptCounts:
        past, capped = len(self.emitted) - self.ending.length, self.ending.capped
        return PromptCounts.of(
            prompt.id,
            prompt.category,
            self.accepted,
            steps=steps,
            overshoot=past,
            capped=capped,
            degenerate=loops(self.tokens),
        )


def timing_of(answers: Sequence[Answer], plain: Sequence[Answer]) -> Timing | None:
    """Of all rounds, and of plain decoding after the prefills; None where no answer took a round."""
    if not any(each.accepted for each in answers):
        return None
    spent, alone = (sum((each.spent for each in every), Spent()) for every in (answers, plain))
    tokens = sum(len(each.tokens) - 1 for each in plain)
    rounds = (spent.verify_s, spent.draft_s, spent.extend_s, spent.other_s)
    plain_s, plain_tokens = (alone.decoding_s, tokens) if tokens else (None, None)
    return Timing(*rounds, plain_s, plain_tokens, spent.prefill_s)
