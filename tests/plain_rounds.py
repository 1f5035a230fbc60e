"""Greedy chain drafting as a plain loop over a text that is known: what quicker ways to count are held to.

Each round starts anew, with no cache from the round before: all of the text so far goes through the drafter again.
"""

from __future__ import annotations

from torch import Tensor

from drafter_audit import Drafter


def drafted(drafter: Drafter, sequence: Tensor, states: Tensor, length: int, steps: int) -> list[int]:
    """The target ids that a round of `steps` drafts after token `length` of `sequence` [T].

    `states` [n_slots, T', hidden], T' >= length, in slot order: those of the first `length` tokens are read.
    """
    cache = drafter.start()
    logits = drafter.extend(cache, sequence[1 : length + 1], states[:, :length])[-1]
    tokens: list[int] = []
    for _ in range(steps):
        tokens.append(int(drafter.target_ids(logits.argmax()[None])))
        if len(tokens) < steps:
            logits = drafter.draft(cache, tokens[-1])
    return tokens


def accepted_by_round(
    drafter: Drafter, sequence: Tensor, states: Tensor, prompt: int, answer: int, steps: int
) -> list[int]:
    """How many drafts each round accepts, on the way through an answer of `answer` tokens after `prompt` tokens.

    `sequence` goes `steps` tokens past the answer: a round counts whole, also past the end. The target's first token
    comes with the prompt's own forward, before the first round.
    """
    length, counts = prompt, []
    while length < prompt + answer - 1:
        drafts = drafted(drafter, sequence, states, length, steps)
        right = [draft == int(token) for draft, token in zip(drafts, sequence[length + 1 :], strict=False)]
        counts.append(([*right, False]).index(False))
        length += counts[-1] + 1
    return counts
