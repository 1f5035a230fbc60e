"""What a drafter is given, checked at the door: behind it every tensor has its shape, its type and its device."""

from __future__ import annotations

import operator
from collections.abc import Sequence

import torch
from torch import Tensor

from drafter_audit.errors import InputsError

Ids = Tensor | Sequence[int]

_WHOLE = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


def token_ids(ids: Ids, rows: int, device: torch.device, where: str) -> Tensor:
    """Token ids [T] below `rows`, as int64 on `device`. Raises InputsError."""
    found = _whole_numbers(ids, "token ids", device, where)
    outside = found[(found < 0) | (found >= rows)]
    if len(outside):
        raise InputsError(f"the token id {int(outside[0])}", where, f"pass ids from 0 to {rows - 1}")
    return found


def positions_of(positions: Ids | None, tokens: int, device: torch.device, where: str) -> Tensor:
    """Positions [tokens] for rope, any whole numbers; 0.. where they are not given. Raises InputsError."""
    if positions is None:
        return torch.arange(tokens, device=device)
    found = _whole_numbers(positions, "positions", device, where)
    if len(found) != tokens:
        raise InputsError(f"{len(found)} positions for {tokens} tokens", where, "pass a position for each token")
    return found


def step_count(steps: int, where: str) -> int:
    """`steps`, a whole number from one on. Raises InputsError."""
    try:
        found = operator.index(steps)
    except TypeError:
        found = 0
    if found < 1:
        raise InputsError(f"{steps!r} steps", where, "pass a whole number, 1 or more")
    return found


def beam_count(topk: int, most: int, where: str) -> int:
    """`topk`, a whole number from one to the `most` tokens that are drafted from. Raises InputsError."""
    found = step_count(topk, where)
    if found > most:
        raise InputsError(f"a top-k of {found}", where, f"pass {most} or less: so many tokens it drafts from")
    return found


def states_of(states: object, shape: tuple[int, int, int], like: Tensor, where: str) -> Tensor:
    """States of that shape [slots, T, width] in the dtype and on the device of `like`. Raises InputsError for another
    shape or type, and for values that are no finite numbers: they would spread to positions that do not see them."""
    slots, tokens, width = shape
    mend = f"pass real numbers [{slots}, {tokens}, {width}]: {slots} slots, each state {width} wide"
    given = as_tensor(states, "states", where)
    if tuple(given.shape) != shape or given.is_complex() or given.layout != torch.strided or given.is_meta:
        what = f"states of shape {list(given.shape)} and type {given.dtype} for {tokens} tokens"
        raise InputsError(what, where, mend)
    found = given.to(device=like.device, dtype=like.dtype)
    bad = (~found.isfinite()).sum(dim=-1).sum(dim=0)  # by position
    if bool(bad.any()):
        first = int(bad.nonzero()[0, 0])
        what = f"{int(bad.sum())} values of the states are no finite numbers in {like.dtype}, the first at {first}"
        raise InputsError(what, where, "record them again, or load the drafter in a wider dtype")
    return found


def _whole_numbers(values: object, what: str, device: torch.device, where: str) -> Tensor:
    """A list or vector of whole numbers as int64 [T]."""
    mend = "pass whole numbers [T], without a batch axis"
    found = as_tensor(values, what, where)
    if found.shape == (0,):
        return torch.zeros(0, dtype=torch.int64, device=device)
    if found.dim() != 1 or found.dtype not in _WHOLE or found.is_meta or found.layout != torch.strided:
        raise InputsError(f"{what} of shape {list(found.shape)} and type {found.dtype}", where, mend)
    return found.to(device=device, dtype=torch.int64)


def as_tensor(values: object, what: str, where: str) -> Tensor:
    """A tensor, an array or nested lists of numbers as a tensor without a gradient. Raises InputsError."""
    try:
        return torch.as_tensor(values).detach()
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        told = f"{what} that make no tensor ({type(values).__name__}: {error})"
        raise InputsError(told, where, "pass a tensor, an array or a list of numbers") from error
