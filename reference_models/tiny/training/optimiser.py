"""Muon for the matrices inside, AdamW for tables and norms, one learning-rate curve for both.

Muon (Jordan et al. 2024): momentum, made orthogonal by a few Newton–Schulz steps. A small model needs about half
as many steps with it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable

import torch
from torch import Tensor, nn

_COEFFICIENTS = (3.4445, -4.7750, 2.0315)


class Optimiser:
    """`rate` is Muon's, and `table_rate` AdamW's, at the top of a curve that warms up and falls to 2% by `steps`."""

    def __init__(self, named: Iterable[tuple[str, nn.Parameter]], rate: float, table_rate: float, steps: int) -> None:
        parameters = [(name, each) for name, each in named if each.requires_grad]
        shapes = defaultdict(list)
        for name, each in parameters:
            if each.ndim == 2 and not name.endswith(("embed_tokens.weight", "lm_head.weight")):
                shapes[each.shape].append(each)
        inside = {each for group in shapes.values() for each in group}
        self._groups = [(group, torch.zeros(len(group), *shape)) for shape, group in shapes.items()]
        self._others = torch.optim.AdamW(
            [each for _, each in parameters if each not in inside], lr=table_rate, betas=(0.9, 0.95), weight_decay=0.0
        )
        self._all = [each for _, each in parameters]
        self._rate, self._table_rate, self._steps, self._done = rate, table_rate, steps, 0

    def step(self, loss: Tensor) -> None:
        """One step down `loss`."""
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self._all, 1.0)
        share = self._share()
        for group, momentum in self._groups:
            _turn(group, momentum, self._rate * share)
        for each in self._others.param_groups:
            each["lr"] = self._table_rate * share
        self._others.step()
        for parameter in self._all:
            parameter.grad = None
        self._done += 1

    def _share(self) -> float:
        warm, done = max(1, self._steps // 25), self._done + 1
        return min(1.0, done / warm) * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * done / self._steps)))


@torch.no_grad()
def _turn(group: list[nn.Parameter], momentum: Tensor, rate: float) -> None:
    gradient = torch.stack([each.grad for each in group if each.grad is not None])
    momentum.mul_(0.95).add_(gradient)
    update = _orthogonal(gradient + 0.95 * momentum) * max(1.0, momentum.shape[1] / momentum.shape[2]) ** 0.5
    for each, change in zip(group, update, strict=True):
        each.mul_(1 - 0.05 * rate).add_(change, alpha=-rate)


def _orthogonal(matrices: Tensor) -> Tensor:
    """Each of [n, rows, columns] with its singular values near one."""
    tall = matrices.shape[1] > matrices.shape[2]
    x: Tensor = matrices.mT if tall else matrices
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    a, b, c = _COEFFICIENTS
    for _ in range(5):
        square = x @ x.mT
        x = a * x + (b * square + c * square @ square) @ x
    return x.mT if tall else x
