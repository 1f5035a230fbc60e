"""Targets with random weights beside drafters for them, to be decoded live."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from drafter_audit import Drafter, load_drafter, open_drafter
from drafter_audit.drafter.wiring import declared_wiring
from drafter_audit.model.drafter import DrafterCache
from drafter_audit.model.target.load import load_target
from drafter_audit.model.target.model import TargetModel
from drafter_audit.prompts.prompt import TokenPrompt
from tests.random_drafters import LLAMA, write_random
from tests.tiny_targets import VOCABULARY, write_family

PROMPTS = tuple(TokenPrompt(str(at), None, tuple(range(at, at + length))) for at, length in ((3, 5), (7, 17), (20, 30)))
"""Short of a window of 8, past it, and far past it."""

NARROW = 12
"""A vocabulary so small that a random drafter is right now and then."""


def narrow_prompts(count: int = 3) -> tuple[TokenPrompt, ...]:
    made = torch.Generator().manual_seed(5)
    ids = [torch.randint(3, NARROW, (6 + 7 * (at % 3),), generator=made).tolist() for at in range(count)]
    return tuple(TokenPrompt(str(at), None, tuple(each)) for at, each in enumerate(ids))


def random_drafter(
    folder: Path, boundaries: tuple[int, ...], vocabulary: int = VOCABULARY, kind: str = "eagle3", **config: Any
) -> Drafter:
    """It drafts from all of its vocabulary, under a theta that no target here has."""
    shape = {"vocab_size": vocabulary, "draft_vocab_size": vocabulary, "num_aux_hidden_states": len(boundaries)}
    ref, _ = write_random(folder, LLAMA | shape | config, kind)
    declared = declared_wiring(open_drafter(ref))
    assert declared is not None
    knobs = {"embedding": "own", "head": "own", "vocab_map": "identity", "boundaries": boundaries}
    return load_drafter(ref, wiring=replace(declared, **knobs))


def narrow_pair(folder: Path, family: str, boundaries: tuple[int, ...]) -> tuple[Drafter, TargetModel]:
    """No token is the padding: its row would be zeros, and a target of few tokens says it."""
    target = load_target(write_family(family, folder / family, vocab_size=NARROW, pad_token_id=None))
    return random_drafter(folder / "drafter", boundaries, NARROW), target


@dataclass(frozen=True, repr=False)
class Listening(Drafter):
    """Keeps what it drafted: the positions that it had seen, and the target ids."""

    drafted: list[tuple[int, list[int]]] = field(default_factory=list)

    def chain(self, cache: DrafterCache, steps: int) -> Tensor:
        made = super().chain(cache, steps)
        self.drafted.append((cache.length, made.tolist()))
        return made


@dataclass(frozen=True, repr=False)
class Knowing(Drafter):
    """Drafts what the target will say of `text`, but for the places in `wrong`."""

    text: tuple[int, ...] = ()
    wrong: frozenset[int] = frozenset()
    vocabulary: int = VOCABULARY

    def chain(self, cache: DrafterCache, steps: int) -> Tensor:
        places = range(cache.length + 1, cache.length + 1 + steps)
        return torch.tensor([(self.text[at] + (at in self.wrong)) % self.vocabulary for at in places])


def knowing(drafter: Drafter, prompt: Sequence[int], answer: Sequence[int], wrong: frozenset[int]) -> Knowing:
    """`answer` goes on past the end by as much as is drafted."""
    parts = {each.name: getattr(drafter, each.name) for each in fields(Drafter)}
    return Knowing(**parts, text=(*prompt, *answer), wrong=wrong)
