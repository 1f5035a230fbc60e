"""The beams of trees, run through a drafter's network: the steps that trees.py lets grow. What queries see is told by
memory.py, one way beside a text that is read, another for all places of a recorded one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from drafter_audit.model.layers import Attend
from drafter_audit.model.network import Network
from drafter_audit.model.trees import Likeliest, likeliest

_ROWS = 256
"""Positions whose logits are held at a time."""

Branch = Callable[[Tensor], Callable[[int], Attend]]
"""`branch` of memory.py: rows of the step before -> each layer's `attend`."""


@dataclass(frozen=True)
class Drafting:
    """A network whose draft ids `mapped` makes the target's; `reads_newest` says whether a step reads the token drafted
    last or the one before it (`token_shift` 1 or 0)."""

    network: Network
    mapped: Callable[[Tensor], Tensor]
    reads_newest: bool

    def likeliest(self, read: Tensor, count: int) -> Likeliest:
        """Of what the head reads [rows, hidden], some rows at a time."""
        parts = [
            likeliest(self.network.head(read[start : start + _ROWS]).float(), count)
            for start in range(0, len(read), _ROWS)
        ]
        ids, *rest = (torch.cat(each) for each in zip(*((p.ids, p.log_probs, p.gaps) for p in parts), strict=True))
        return Likeliest(self.mapped(ids), *rest)


class Beams:
    """An `Advance` for n starts. Each has read a text up to the token `newest` [n] and goes on from a hidden input
    `hidden` [n, width], its next step turning by `places` [n]. Rows of the network are one beam after another."""

    def __init__(self, drafting: Drafting, newest: Tensor, hidden: Tensor, places: Tensor, branch: Branch) -> None:
        self._drafting, self._branch = drafting, branch
        self._newest, self._hidden, self._places = newest, hidden, places

    def __call__(self, tokens: Tensor, origins: Tensor) -> Likeliest:
        starts, topk = tokens.shape
        rows = (origins.T * starts + torch.arange(starts, device=tokens.device)).flatten()
        before, self._newest = self._newest[rows], tokens.T.flatten()
        ids = self._newest if self._drafting.reads_newest else before
        places = self._places.repeat(topk)
        read, self._hidden = self._drafting.network.step(ids, self._hidden[rows], places, self._branch(rows))
        self._places = self._places + 1
        found = self._drafting.likeliest(read, topk)
        ids, log_probs = (each.reshape(topk, starts, topk).transpose(0, 1) for each in (found.ids, found.log_probs))
        return Likeliest(ids, log_probs, found.gaps.reshape(topk, starts).T)
