"""Which tensor of one checkpoint answers to which of the other: by canonical name."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from drafter_audit.checkpoint.table import TensorInfo, TensorTable
from drafter_audit.drafter.names import canonical


@dataclass(frozen=True)
class Match:
    """`both` are pairs (theirs, ours) by canonical name; the rest are the tensors that one side alone stores.

    A canonical name comes twice where both sides hold the same two spellings of it.
    """

    both: tuple[tuple[TensorInfo, TensorInfo], ...]
    only_theirs: tuple[TensorInfo, ...]
    only_ours: tuple[TensorInfo, ...]


def match(theirs: TensorTable, ours: TensorTable) -> Match:
    """By stored name, then by canonical name: midlayer.*, layers.0.* and model.layers.0.* are one.

    Where a side holds two spellings of a name and neither is the other side's, nothing says which is meant: none is
    matched.
    """
    both = [(tensor, ours[tensor.name]) for tensor in theirs if tensor.name in ours]
    same = {canonical(tensor.name) for tensor, _ in both}
    first = _named(tensor for tensor in theirs if tensor.name not in ours)
    last = _named(tensor for tensor in ours if tensor.name not in theirs)
    for name in first.keys() & last.keys():
        if len(first[name]) == len(last[name]) == 1 and name not in same:
            both.append((first[name][0], last[name][0]))
    matched = {tensor.name for pair in both for tensor in pair}
    return Match(
        tuple(sorted(both, key=lambda pair: (canonical(pair[1].name), pair[1].name))),
        tuple(tensor for tensor in theirs if tensor.name not in matched),
        tuple(tensor for tensor in ours if tensor.name not in matched),
    )


def _named(tensors: Iterable[TensorInfo]) -> dict[str, list[TensorInfo]]:
    found: dict[str, list[TensorInfo]] = {}
    for tensor in tensors:
        found.setdefault(canonical(tensor.name), []).append(tensor)
    return found
