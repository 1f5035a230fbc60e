"""The target's own answers to held-out prompts, with its states at every boundary."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoTokenizer

from drafter_audit.model.target.model import TargetModel
from reference_models.tiny.training.answers import END, answer

LONGEST, BEYOND = 192, 16
"""Tokens of an answer, and tokens past its end, for the rounds that run over it."""


@dataclass(frozen=True)
class Recording:
    """One text: `tokens` [N] of which the first `prompt` are the prompt's and `answer` follow, its end included; the
    rest goes past the end. `states` [L + 1, N, hidden] and `logits` [N, vocab] are the target's."""

    category: str
    tokens: Tensor
    prompt: int
    answer: int
    states: Tensor
    logits: Tensor

    @property
    def ended(self) -> bool:
        """Whether the answer came to its end, and did not loop before."""
        return int(self.tokens[self.prompt + self.answer - 1]) == END and not self.loops

    @property
    def loops(self) -> bool:
        """Whether some stretch of 1 to 24 tokens is written three times running, 12 tokens in all or more."""
        text = self.tokens[self.prompt : self.prompt + self.answer].tolist()
        return any(_repeats(text, size) for size in range(1, 25))


def record(target: TargetModel, folder: Path, rows: Sequence[dict[str, object]]) -> list[Recording]:
    """Prompts in turn with a thought and without, by the chat template in `folder`."""
    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    prompts = [
        tokenizer.apply_chat_template(
            row["messages"], add_generation_prompt=True, return_dict=False, enable_thinking=place % 2 == 0
        )
        for place, row in enumerate(rows)
    ]
    texts = answer(target.model, prompts, LONGEST, BEYOND)
    return [_recording(target, str(row["category"]), *text) for row, text in zip(rows, texts, strict=True)]


def spread(path: Path, count: int) -> list[dict[str, object]]:
    """`count` rows of a JSONL file, evenly from all of it."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [rows[place * len(rows) // count] for place in range(count)]


def _repeats(text: list[int], size: int) -> bool:
    run, least = 0, max(2 * size, 12 - size)
    for one, other in zip(text, text[size:], strict=False):
        run = run + 1 if one == other else 0
        if run >= least:
            return True
    return False


def _recording(target: TargetModel, category: str, prompt: list[int], written: list[int]) -> Recording:
    tokens = torch.tensor(prompt + written)
    logits, states = target.forward_with_taps(tokens, range(target.num_layers + 1))
    stop = written.index(END) + 1 if END in written[:LONGEST] else min(len(written), LONGEST)
    return Recording(category, tokens, len(prompt), stop, states, logits.float())
