"""What a target's forward is given, held to what it can take."""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from typing import TypeAlias

import torch
from torch import Tensor

from drafter_audit.errors import InputsError

Ids: TypeAlias = Tensor | Sequence[int]


def text_ids(given: Ids, vocab_size: int, where: str) -> Tensor:
    """int64 [T], T >= 1. Raises InputsError for what is no text of tokens below `vocab_size`."""
    mend = f"give one text of at least one token, ids below {vocab_size}"
    try:
        ids = torch.as_tensor(given)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputsError(f"tokens in a {type(given).__name__} that are no numbers", where, mend) from error
    if ids.dim() != 1 or not len(ids) or int(ids.min()) < 0 or int(ids.max()) >= vocab_size:
        raise InputsError(f"tokens of shape {list(ids.shape)}", where, mend)
    if ids.dtype == torch.bool or ids.is_floating_point():  # a cast would cut them, and say nothing
        raise InputsError(f"tokens of {ids.dtype}", where, mend)
    return ids.long()


def whole_number(given: object, least: int, what: str, where: str) -> int:
    """Raises InputsError unless it is a whole number, numpy's and torch's too, of `least` or more."""
    try:
        number = index(given)  # type: ignore[arg-type]
    except TypeError as error:
        raise InputsError(f"{given!r} {what}", where, "give a whole number") from error
    if number < least:
        raise InputsError(f"{number} {what}", where, f"give at least {least}")
    return number


def check_length(length: int, longest: int | None, where: str) -> None:
    """Raises InputsError for a text that has more tokens than the target has positions."""
    if longest is not None and length > longest:
        raise InputsError(
            f"a text of {length} tokens", where, f"the target has {longest} positions: give a shorter one"
        )
