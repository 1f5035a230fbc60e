"""The loops that ours are measured against: the models' own forwards, and nothing around them.

Target and drafter are the very modules that our loops run, called directly: no taps, no checks, no bookkeeping.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from transformers import DynamicCache

from benchmarks.bounds import cpu_seconds
from benchmarks.pairs import Pair
from drafter_audit.decode.settings import Settings
from drafter_audit.model.drafter import Drafter
from drafter_audit.model.memory import KeyValues
from drafter_audit.model.target.model import TargetModel
from drafter_audit.model.target.parts import Untyped


def read_on(model: Untyped, ids: Tensor, cache: DynamicCache, **more: int) -> Tensor:
    """Logits [1, T, vocab]. The cache goes by its place: its name differs by release of transformers."""
    logits: Tensor = model(ids, None, None, cache, use_cache=True, **more).logits
    return logits


class Alone:
    """A target and its drafter beside one text, each with a cache; `seconds` of processor time in their forwards."""

    def __init__(self, pair: Pair) -> None:
        self._model, self._drafter = pair.target.model, pair.drafter
        self._cache, self._memory = DynamicCache(config=pair.target.model.config), KeyValues()
        self._states = torch.zeros(pair.drafter.states_shape[0], 1, pair.drafter.states_shape[1])
        self.seconds = 0.0

    def verify(self, tokens: int, kept: int) -> None:
        """The target reads so many tokens, of which the first `kept` stay."""
        ids = torch.ones((1, tokens), dtype=torch.int64)
        self.seconds += cpu_seconds(lambda: read_on(self._model, ids, self._cache))
        if kept < tokens:
            self._cache.crop(kept - tokens)

    def prefill(self, tokens: int) -> None:
        ids = torch.ones((1, tokens), dtype=torch.int64)
        self.seconds += cpu_seconds(lambda: read_on(self._model, ids, self._cache, logits_to_keep=1))

    def draft(self, tokens: int, steps: int) -> None:
        """The drafter reads so many true states, and drafts as many `steps`, the first of which needs no step of its
        own."""
        states, ids = self._states.expand(-1, tokens, -1), torch.ones(tokens, dtype=torch.int64)
        length = self._memory.length
        self.seconds += cpu_seconds(lambda: self._drafted(ids, states, steps))
        self._memory.length = length + tokens

    def _drafted(self, ids: Tensor, states: Tensor, steps: int) -> None:
        network, memory = self._drafter.network, self._memory
        hidden = network.fuse(states)
        for _ in range(steps):
            places = torch.arange(memory.length, memory.length + len(ids))
            read, hidden = network.step(ids, hidden, places, memory.of)
            network.head(read[-1:])
            memory.length += len(ids)
            ids, hidden = ids[-1:], hidden[-1:]


@torch.no_grad()
def forwards_alone(pair: Pair, rounds: Sequence[Sequence[int]], steps: int) -> float:
    """Seconds of processor time of the forwards that the live loop makes for `rounds`, the accepted drafts of each of
    each prompt, and for the round that it decodes first and does not count."""
    texts = [(pair.prompts[0], rounds[0][:1]), *zip(pair.prompts, rounds, strict=True)]
    seconds = 0.0
    for prompt, accepted in texts:
        alone = Alone(pair)
        alone.prefill(len(prompt.ids))
        alone.draft(len(prompt.ids), steps)
        for place, count in enumerate(accepted):
            alone.verify(steps + 1, count + 1)
            alone.draft(count + 1, steps if place + 1 < len(accepted) else 1)
        seconds += alone.seconds
    return seconds


@torch.no_grad()
def without_caches(pair: Pair, asked: Settings) -> list[tuple[int, ...]]:
    """The accepted drafts of each round of each prompt, where every forward reads the whole text anew.

    So ModelOpt's AcceptanceRateValidation decodes (modelopt/torch/speculative/utils.py). Its `validate_online` runs the
    target twice a round, and `validate` once, beside an answer decoded before; here it is once, for drafts and states.
    """
    ends = frozenset(() if asked.ignore_end else pair.target.end_ids)
    return [_without_caches(pair, list(prompt.ids), ends, asked) for prompt in pair.prompts]


def _without_caches(pair: Pair, text: list[int], ends: frozenset[int], asked: Settings) -> tuple[int, ...]:
    whole, rounds, drafts = len(text) + asked.max_new_tokens, list[int](), list[int]()
    while True:
        logits, states = pair.target.forward_with_taps([*text, *drafts], pair.drafter.wiring.boundaries or ())
        own = logits[len(text) - 1 :].argmax(-1).tolist()
        right = next((place for place, draft in enumerate(drafts) if draft != own[place]), len(drafts))
        if drafts:
            rounds.append(right)
        text = [*text, *own[: right + 1]]
        if len(text) >= whole or not ends.isdisjoint(own[: right + 1]):
            return tuple(rounds)
        drafts = _drafts(pair.drafter, torch.tensor(text[1:]), states[:, : len(text) - 1], asked.steps)


def _drafts(drafter: Drafter, ids: Tensor, states: Tensor, steps: int) -> list[int]:
    """Each step reads the whole text and the drafts before it."""
    network, hidden, drafts = drafter.network, drafter.network.fuse(states), list[int]()
    while True:
        read, after = network.step(ids, hidden, torch.arange(len(ids)), KeyValues().of)
        drafts.append(int(drafter.target_ids(network.head(read[-1:]).argmax(-1))))
        if len(drafts) == steps:
            return drafts
        ids, hidden = torch.cat((ids, torch.tensor(drafts[-1:]))), torch.cat((hidden, after[-1:]))


@torch.no_grad()
def plain_generation(target: TargetModel, ids: Sequence[int], new: int) -> None:
    """`new` likeliest tokens, one at a time with a cache."""
    cache, given = DynamicCache(config=target.model.config), torch.tensor([ids])
    for _ in range(new):
        given = read_on(target.model, given, cache, logits_to_keep=1)[:, -1].argmax(-1, keepdim=True)


@torch.no_grad()
def one_prefill(target: TargetModel, tokens: int) -> None:
    target.model(input_ids=torch.ones((1, tokens), dtype=torch.int64), use_cache=False, logits_to_keep=1)
