"""The target's own greedy answers, many prompts at a time."""

from __future__ import annotations

import torch
from torch import Tensor
from transformers import DynamicCache, LlamaForCausalLM

from reference_models.tiny.training.batches import Row

END = 2
ANSWERS, LONGEST = 2500, 160
"""Prompts that are answered for the drafter, and the tokens of an answer at most."""


@torch.no_grad()
def answer(target: LlamaForCausalLM, prompts: list[list[int]], longest: int, beyond: int = 0) -> list[Row]:
    """Each prompt with the target's answer: up to its end, at most `longest` tokens, and `beyond` tokens past that.

    Prompts of one length are answered together, so that nothing is padded.
    """
    by_length: dict[int, list[int]] = {}
    for place, prompt in enumerate(prompts):
        by_length.setdefault(len(prompt), []).append(place)
    found: dict[int, list[int]] = {}
    for places in by_length.values():
        ids = torch.tensor([prompts[place] for place in places])
        tokens = _greedy(target, ids, longest + beyond, beyond).tolist()
        found |= {place: _cut(row, longest, beyond) for place, row in zip(places, tokens, strict=True)}
    return [(prompt, found[place]) for place, prompt in enumerate(prompts)]


def _greedy(target: LlamaForCausalLM, ids: Tensor, longest: int, beyond: int) -> Tensor:
    """The likeliest tokens [n, at most `longest`]; ends `beyond` tokens after the last row has ended."""
    cache, given, since = DynamicCache(config=target.config), ids, 0
    made: list[Tensor] = []
    ended = torch.zeros(len(ids), dtype=torch.bool)
    while len(made) < longest and since <= beyond:
        given = target(input_ids=given, cache=cache, use_cache=True, logits_to_keep=1).logits[:, -1:].argmax(-1)
        made.append(given)
        ended |= given[:, 0] == END
        since += int(ended.all())
    return torch.cat(made, dim=1)


def _cut(tokens: list[int], longest: int, beyond: int) -> list[int]:
    stop = tokens.index(END) + 1 if END in tokens[:longest] else longest
    return tokens[: stop + beyond]
