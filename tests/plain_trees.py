"""EAGLE-2's trees in plain Python, path by path: what quicker ways to grow them are held to.

A path is a tuple of tokens. Nothing is shared between paths: each is scored from its first token on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

import torch

from drafter_audit import Drafter

Path = tuple[int, ...]
Next = Callable[[Path], Mapping[int, float]]
"""The log-probability of each token that may follow a path."""


def tree_of(after: Next, steps: int, topk: int, size: int) -> list[Path]:
    """The `size` paths that are verified, each path behind the one it goes on from."""

    @cache
    def children(path: Path) -> tuple[tuple[int, float], ...]:
        ranked = sorted(after(path).items(), key=lambda item: -item[1])
        return tuple(ranked[:topk])

    beams: list[tuple[float, Path]] = [(0.0, ())]
    drafted: list[tuple[float, Path]] = []
    for _ in range(steps):
        level = [(worth + more, (*path, token)) for worth, path in beams for token, more in children(path)]
        drafted += level
        beams = sorted(level, key=lambda item: -item[0])[:topk]  # Python's sort keeps the order of equal ones
    kept = sorted(range(len(drafted)), key=lambda place: -drafted[place][0])[:size]
    return [drafted[place][1] for place in sorted(kept)]


def paths_of(tokens: list[int], parents: list[int]) -> list[Path]:
    """The path to each node of a tree as `Trees` holds it."""
    paths: list[Path] = [()]
    for token, parent in zip(tokens, parents, strict=True):
        paths.append((*paths[parent], token))
    return paths[1:]


def drafting(drafter: Drafter, tokens: list[int], states: torch.Tensor) -> Next:
    """What `drafter` gives after a text of `tokens`, `states` [slots, len(tokens) - 1, width] read: one chain for each
    path, from an empty cache on."""
    ids = drafter.target_ids(range(len(drafter.network.head.weight))).tolist()

    def after(path: Path) -> Mapping[int, float]:
        seen = drafter.start()
        logits = drafter.extend(seen, tokens[1:], states)[-1]
        for token in path:
            logits = drafter.draft(seen, token)
        return dict(zip(ids, logits.double().log_softmax(-1).tolist(), strict=True))

    return after


def accepted_of(paths: list[Path], own: list[int]) -> int:
    """How many drafts of a tree the target's `own` tokens bear out."""
    return max((len(path) for path in paths if path == tuple(own[: len(path)])), default=0)
