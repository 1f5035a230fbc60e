"""Recordings in memory, for tests: of tokens and states that are given, or written so that drafts come true."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from drafter_audit import Drafter
from drafter_audit.recording.manifest import Manifest
from drafter_audit.recording.recording import RecordedPrompt, Recording

LOOKAHEAD = 16

MANIFEST = Manifest(
    target="target",
    revision=None,
    dtype="float32",
    num_layers=8,
    hidden_size=32,
    vocab_size=60,
    prompts_name="given",
    prompts_sha256="0" * 64,
    max_new_tokens=64,
    lookahead=LOOKAHEAD,
    top=0,
    temperature=0.0,
    seed=0,
)


@dataclass(frozen=True)
class Held(Recording):
    """A recording whose prompts are in memory."""

    held: tuple[RecordedPrompt, ...] = ()

    def prompts(self, boundaries: Sequence[int] | None = None) -> Iterator[RecordedPrompt]:
        yield from self.held


def held(prompts: Sequence[RecordedPrompt], **told: Any) -> Held:
    return Held(Path("memory"), replace(MANIFEST, **told), tuple(prompts))


def recorded(
    name: str,
    prompt_length: int,
    answer_length: int,
    tokens: torch.Tensor,
    boundaries: tuple[int, ...],
    states: torch.Tensor,
    gaps: torch.Tensor | None = None,
) -> RecordedPrompt:
    """A prompt as a recording holds it, but for the target's distribution, which replay does not read."""
    after = answer_length + LOOKAHEAD
    none = torch.zeros((answer_length, 0))
    return RecordedPrompt(
        id=name,
        category=None,
        prompt_length=prompt_length,
        answer_length=answer_length,
        tokens=tokens[: prompt_length + after].long(),
        boundaries=boundaries,
        states=states[:, : prompt_length + answer_length - 1],
        top_ids=none.long(),
        top_logits=none,
        logsumexp=torch.zeros(answer_length),
        gaps=torch.ones(after) if gaps is None else gaps[:after],
        capped=False,
        degenerate=False,
    )


def written(
    drafter: Drafter, boundaries: tuple[int, ...], *, steps: int, answer: int, seed: int, prompt: int = 5
) -> tuple[RecordedPrompt, list[int]]:
    """A prompt on random states whose answer takes up, in each round of `steps`, a random number of the drafts that the
    drafter makes step by step, and then a token that was not drafted; and those numbers."""
    made = torch.Generator().manual_seed(seed)
    slots, width = drafter.states_shape
    length = prompt + answer + LOOKAHEAD + steps + 1
    states = torch.randn((len(boundaries), length, width), generator=made)
    own = states[[boundaries.index(b) for b in drafter.wiring.boundaries or ()]]
    assert len(own) == slots
    tokens = torch.randint(1, 60, (prompt + 1,), generator=made).tolist()
    taken: list[int] = []
    while len(tokens) < length:
        chain = drafted(drafter, tokens, own, steps)
        count = int(torch.randint(0, steps + 1, (), generator=made))
        other = int(torch.randint(1, 60, (), generator=made))
        refused = chain[count] if count < steps else None
        tokens += [*chain[:count], other if other != refused else other % 59 + 1]
        taken.append(count)
    rounds = next(n for n in range(len(taken) + 1) if 1 + sum(taken[:n]) + n >= answer)
    return recorded("written", prompt, answer, torch.tensor(tokens), boundaries, states), taken[:rounds]


def drafted(drafter: Drafter, tokens: Sequence[int], states: torch.Tensor, steps: int) -> list[int]:
    """A chain of target ids after `tokens`, from scratch: nothing is kept from an earlier round."""
    cache = drafter.start()
    logits = drafter.extend(cache, list(tokens[1:]), states[:, : len(tokens) - 1])[-1]
    chain = [int(drafter.target_ids(logits.argmax(-1)))]
    while len(chain) < steps:
        chain.append(int(drafter.target_ids(drafter.draft(cache, chain[-1]).argmax(-1))))
    return chain
