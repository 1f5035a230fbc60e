"""The same answers by the target alone, one token at a time: what drafting is measured against, and must equal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from drafter_audit.decode.answer import Answer, ending_of, ends_of
from drafter_audit.decode.sampling import agreed, judge_of
from drafter_audit.decode.settings import Settings
from drafter_audit.decode.text import Text
from drafter_audit.decode.timing import Stopwatch, devices_of
from drafter_audit.model.target.model import TargetModel
from drafter_audit.prompts.prompt import TokenPrompt


@dataclass(frozen=True)
class Plain:
    """`tokens` decoded after each prompt's first, which the prefill gives, in `seconds`."""

    tokens: int
    seconds: float

    @classmethod
    def of(cls, answers: Sequence[Answer]) -> Plain:
        return cls(sum(len(each.tokens) - 1 for each in answers), sum(each.timing.rounds_s for each in answers))

    @property
    def tokens_per_s(self) -> float | None:
        """None where every answer was one token."""
        return self.tokens / self.seconds if self.tokens else None


@torch.no_grad()
def plain_answer(target: TargetModel, prompt: TokenPrompt, asked: Settings) -> Answer:
    """One prompt's answer under the same rule and ending as the live loop's. Raises what a forward raises."""
    judge, text, watch = (
        judge_of(asked, prompt.id),
        Text(target, ahead=False),
        Stopwatch(devices_of(target)),
    )
    none, emitted = torch.empty(0, dtype=torch.int64), list[int]()
    ends = ends_of(target, asked)
    with watch.phase("prefill"):
        logits, _ = text.read(torch.tensor(prompt.ids), logits_to_keep=1)
        emitted += (new := agreed(target, judge(logits, none), 1)).tolist()
    while (ending := ending_of(emitted, len(emitted) - 1, ends, asked.max_new_tokens)) is None:
        with watch.phase("verify"):
            logits, _ = text.read(new, logits_to_keep=1)
            emitted += (new := agreed(target, judge(logits, none), 1)).tolist()
    return Answer(tuple(emitted), (), ending, watch.timing())
