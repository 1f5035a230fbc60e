"""The same answers by the target alone, one token at a time: what drafting is measured against, and must equal."""

from __future__ import annotations

import torch

from drafter_audit.decode.answer import Answer, ending_of, ends_of
from drafter_audit.decode.sampling import agreed, judge_of
from drafter_audit.decode.settings import Settings
from drafter_audit.decode.text import Text
from drafter_audit.decode.timing import Stopwatch, devices_of
from drafter_audit.model.target.model import TargetModel
from drafter_audit.prompts.prompt import TokenPrompt


@torch.no_grad()
def plain_answer(target: TargetModel, prompt: TokenPrompt, asked: Settings) -> Answer:
    """One prompt's, under the live loop's rule and ending. Raises what a forward raises."""
    judge, ends = judge_of(asked, prompt.id), ends_of(target, asked)
    text, watch, new = Text(target, ahead=False), Stopwatch(devices_of(target)), torch.tensor(prompt.ids)
    none, emitted, phase, ending = new[:0], list[int](), "prefill", None
    while ending is None:
        with watch.phase(phase):
            logits, _ = text.read(new, logits_to_keep=1)
            new = agreed(target, judge(logits, none), 1)
        emitted += new.tolist()
        phase, ending = "verify", ending_of(emitted, len(emitted) - 1, ends, asked.max_new_tokens)
    return Answer(tuple(emitted), (), ending, watch.spent())
