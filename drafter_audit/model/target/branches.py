"""Tokens that branch off a text, read in one forward: each sees the text and the tokens that lead to it, no others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from drafter_audit.errors import CannotRunError
from drafter_audit.model.target import cache
from drafter_audit.model.target.self_check import plain_ids

if TYPE_CHECKING:
    from drafter_audit.model.target.model import TargetModel

_REPLAY = (
    "measure trees on a recording of it: `drafter-audit record`, then `decode --recording`, which needs no branches"
)

_APART, _APART_ROUNDED = 1e-3, 5e-2
"""Of the largest logit: what float32, and half-sized dtypes through many layers, may differ by. A branch that sees
another differs by far more."""


def branching(parents: Tensor, length: int, dtype: torch.dtype, device: torch.device) -> dict[str, Any]:
    """What a forward of transformers takes for T tokens that branch off a text of `length`: positions, and a mask of
    four axes, which it uses as it is (5.24 masking_utils.py, `_preprocess_mask_arguments`), in the form that all
    attention takes, numbers to add. `parents` int64 [T] is the number of the token that each follows, a smaller one, or
    -1 for the text itself."""
    leading = _leading(parents)
    seen = torch.cat((torch.ones((len(leading), length), dtype=torch.bool), leading), dim=1)
    mask = torch.zeros(seen.shape, dtype=dtype).masked_fill_(~seen, torch.finfo(dtype).min)
    positions = length + leading.sum(dim=1) - 1
    return {"attention_mask": mask[None, None].to(device), "position_ids": positions[None].to(device)}


def depth_of(parents: Tensor) -> int:
    """How many tokens the longest branch has."""
    return int(_leading(parents).sum(dim=1).max())


def _leading(parents: Tensor) -> Tensor:
    """bool [T, T]: which tokens lead to each, itself included."""
    found = torch.eye(len(parents), dtype=torch.bool)
    for place, parent in enumerate(parents.tolist()):
        if parent >= 0:
            found[place] |= found[parent]
    return found


def check_branches(target: TargetModel) -> None:
    """Raises CannotRunError where `target` cannot read branches: without full attention in all layers, or where it says
    something else after one than after the same tokens alone. Every rank calls it."""
    if not cache.keeps_each_token(target.new_cache()):
        raise CannotRunError("a tree of drafts on layers that are not all of full attention", target.ref, _REPLAY)
    ids = plain_ids(target)
    half, past = len(ids) // 2, target.new_cache(whole=True)
    text, branch, other = ids[:half], ids[half:], ids[:half].flip(0)
    target.forward_with_taps(text, (), past=past)
    parents = torch.tensor([-1, *range(half - 1), -1, *range(half, len(ids) - 1)])
    found, _ = target.forward_with_taps(torch.cat((other, branch)), (), past=past, parents=parents)
    alone, _ = target.forward_with_taps(ids, ())
    apart = (found[half:].float() - alone[half:].float()).abs().max() / alone.abs().max()
    if not float(apart) < (_APART if alone.dtype == torch.float32 else _APART_ROUNDED):
        raise CannotRunError("a tree of drafts, which it reads otherwise than each path alone", target.ref, _REPLAY)
