"""A target's answer to one prompt, token by token with a cache: what it said, thought of saying, and its states.

The states are tapped in the very steps that decode the answer, so they are what a live loop sees; each leaves its
device before the next layer runs.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from drafter_audit.errors import UsageError
from drafter_audit.measure.loops import loops
from drafter_audit.model.target.drawing import check_logits, drawn
from drafter_audit.model.target.model import TargetModel
from drafter_audit.prompts.prompt import TokenPrompt
from drafter_audit.recording.recording import RecordedPrompt

_BATCH = 64
"""Positions whose logits are ranked at a time: a GPU is then asked once for many."""


@dataclass(frozen=True)
class Settings:
    """How answers are made and what of them is kept. Raises UsageError.

    The likeliest token each time, or where `temperature` is above 0 one drawn from the softmax of logits / temperature,
    by `seed` and the prompt's place in the set. An answer ends with an end token, or with `max_new_tokens`; `lookahead`
    more are said beyond. `boundaries` are kept of every prompt, and all of the first ones, until those have
    `all_tokens` states. `top` logits are kept for each answer token, all where the vocabulary is smaller.
    """

    boundaries: tuple[int, ...]
    max_new_tokens: int = 256
    temperature: float = 0.0
    seed: int = 0
    all_tokens: int = 0
    lookahead: int = 16
    top: int = 256

    def __post_init__(self) -> None:
        for name, least in (("max_new_tokens", 1), ("seed", 0), ("all_tokens", 0), ("lookahead", 0), ("top", 2)):
            if getattr(self, name) < least:
                raise UsageError(f"{name} {getattr(self, name)}", "record", f"give {least} or more")
        if not 0 <= self.temperature < float("inf"):
            raise UsageError(f"temperature {self.temperature}", "record", "give 0 for greedy, or a positive number")


def recorded_answer(
    target: TargetModel, prompt: TokenPrompt, boundaries: tuple[int, ...], settings: Settings, seed: int
) -> RecordedPrompt:
    """The answer to `prompt` with its states at `boundaries`. Every rank calls it; rank 0 alone keeps states.

    Raises what `TargetModel.forward_into` raises.
    """
    states, thought = _States(target, boundaries), _Thought(min(settings.top, target.vocab_size))
    sink = states.take if target.ranks.first else _drop
    generator = torch.Generator().manual_seed(seed)
    past, given, said, length = target.new_cache(), torch.tensor(prompt.ids), list[int](), 0
    while not length or len(said) < length + settings.lookahead:
        logits = target.forward_into(given, () if length else boundaries, sink, past, 1)[-1].float()
        given = target.ranks.same(_chosen(logits, settings.temperature, generator, target.ref), logits.device)
        thought.add(logits)
        said.append(int(given))
        if not length and (said[-1] in target.end_ids or len(said) == settings.max_new_tokens):
            length = len(said)
    top_logits, top_ids, logsumexp = thought.tables(length)
    return RecordedPrompt(
        id=prompt.id,
        category=prompt.category,
        prompt_length=len(prompt.ids),
        answer_length=length,
        tokens=torch.tensor([*prompt.ids, *said]),
        boundaries=boundaries,
        states=states.whole(),
        top_ids=top_ids,
        top_logits=top_logits,
        logsumexp=logsumexp,
        gaps=thought.gaps(),
        capped=said[length - 1] not in target.end_ids,
        degenerate=loops(said[:length]),
        last_normed=states.last_normed(),
    )


def _chosen(logits: Tensor, temperature: float, source: torch.Generator, where: str) -> Tensor:
    """One token [1] by logits float32 [vocab]."""
    highest, likeliest = logits.max(-1)
    check_logits(highest, where)
    if not temperature:
        return likeliest[None]
    return drawn((logits / temperature).softmax(-1), float(torch.rand((), generator=source, dtype=torch.float64)))


class _States:
    """A sink that keeps each state in memory, piece by piece; that of boundary L behind the final norm too, as
    drafters read it that have no other state."""

    def __init__(self, target: TargetModel, boundaries: tuple[int, ...]) -> None:
        self._norm, self._last, self._boundaries = target.parts.norm, target.num_layers, boundaries
        self._pieces: list[list[Tensor]] = [[] for _ in boundaries]
        self._normed: list[Tensor] = []

    def take(self, slot: int, state: Tensor) -> None:
        self._pieces[slot].append(state.to("cpu", copy=True))
        if self._boundaries[slot] == self._last:
            self._normed.append(self._norm(state[None])[0].to("cpu", copy=True))

    def last_normed(self) -> Tensor | None:
        """[T, hidden], None where boundary L is not kept."""
        return torch.cat(self._normed) if self._normed else None

    def whole(self) -> Tensor:
        """[boundaries, T, hidden]; pieces are let go one boundary after another, so that no second copy is held."""
        if not any(self._pieces):
            return torch.empty(0)
        first = self._pieces[0]
        rows = sum(map(len, first))
        states = first[0].new_empty((len(self._pieces), rows, first[0].shape[1]))
        for slot, pieces in enumerate(self._pieces):
            torch.cat(pieces, out=states[slot])
            pieces.clear()
        return states


def _drop(_: int, __: Tensor) -> None:
    """The sink of a rank that keeps nothing."""


class _Thought:
    """The `top` logits of each step with their ids and the logsumexp, on the CPU; logits wait for a batch."""

    def __init__(self, top: int) -> None:
        self._top, self._waiting = top, list[Tensor]()
        self._ranked: list[tuple[Tensor, Tensor, Tensor]] = []

    def add(self, logits: Tensor) -> None:
        self._waiting.append(logits)
        if len(self._waiting) == _BATCH:
            self._rank()

    def tables(self, length: int) -> tuple[Tensor, Tensor, Tensor]:
        """Logits [length, top] descending, their ids, and logsumexp [length]."""
        values, ids, logsumexp = (table[:length] for table in self._all())
        return values, ids, logsumexp

    def gaps(self) -> Tensor:
        values = self._all()[0]
        return values[:, 0] - values[:, 1]

    def _all(self) -> tuple[Tensor, Tensor, Tensor]:
        if self._waiting:
            self._rank()
        values, ids, logsumexp = (torch.cat(tables) for tables in zip(*self._ranked, strict=True))
        return values, ids, logsumexp

    def _rank(self) -> None:
        logits = torch.stack(self._waiting)
        self._waiting.clear()
        values, ids = logits.topk(self._top)
        self._ranked.append((values.cpu(), ids.cpu(), logits.logsumexp(-1).cpu()))
