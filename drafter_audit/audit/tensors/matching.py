"""Which tensor of one checkpoint answers to which of the other: by canonical name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from drafter_audit.checkpoint.table import TensorInfo, TensorTable
from drafter_audit.drafter.names import canonical


@dataclass(frozen=True)
class Match:
    """`both` maps a canonical name to (theirs, ours); the rest are the tensors that one side alone stores."""

    both: Mapping[str, tuple[TensorInfo, TensorInfo]]
    only_theirs: tuple[TensorInfo, ...]
    only_ours: tuple[TensorInfo, ...]


def match(theirs: TensorTable, ours: TensorTable) -> Match:
    """By stored name, then by canonical name: midlayer.*, layers.0.* and model.layers.0.* are one.

    Where a side holds two spellings of a name and neither is the other side's, nothing says which is meant: none is
    matched.
    """
    both = {canonical(tensor.name): (tensor, ours[tensor.name]) for tensor in theirs if tensor.name in ours}
    first = _named(tensor for tensor in theirs if tensor.name not in ours)
    last = _named(tensor for tensor in ours if tensor.name not in theirs)
    for name in first.keys() & last.keys():
        if len(first[name]) == len(last[name]) == 1 and name not in both:
            both[name] = (first[name][0], last[name][0])
    matched = {tensor.name for pair in both.values() for tensor in pair}
    return Match(
        dict(sorted(both.items())),
        tuple(tensor for tensor in theirs if tensor.name not in matched),
        tuple(tensor for tensor in ours if tensor.name not in matched),
    )


def _named(tensors: Iterable[TensorInfo]) -> dict[str, list[TensorInfo]]:
    found: dict[str, list[TensorInfo]] = {}
    for tensor in tensors:
        found.setdefault(canonical(tensor.name), []).append(tensor)
    return found
