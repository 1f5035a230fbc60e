"""A token drawn from weights: on every machine the same one for the same number."""

from __future__ import annotations

import torch
from torch import Tensor

from drafter_audit.errors import CannotRunError


def drawn(weights: Tensor, at: float) -> Tensor:
    """The token int64 [1], on the CPU, at that part, 0 <= at < 1, of the summed weights [vocab]; none of weight 0."""
    summed = weights.cumsum(0, dtype=torch.float64)
    return torch.searchsorted(summed, summed[-1:] * at, right=True).cpu()


def check_logits(highest: Tensor, where: str) -> None:
    """`highest` logit of each position. Raises CannotRunError for one that is not finite."""
    if not bool(highest.isfinite().all()):
        mend = "load the target in another dtype (bfloat16, float32), or check its weights"
        raise CannotRunError("the target's logits are not finite", where, mend)
