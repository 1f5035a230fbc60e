"""Which tensor of one checkpoint answers to which of the other: by canonical name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
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
    """midlayer.*, layers.0.* and model.layers.0.* are one name. Where a side holds two spellings of one name, both keep
    theirs as stored: nothing says which is meant."""
    first, last = _named(theirs), _named(ours)
    return Match(
        {name: (first[name], last[name]) for name in first if name in last},
        tuple(tensor for name, tensor in first.items() if name not in last),
        tuple(tensor for name, tensor in last.items() if name not in first),
    )


def _named(table: TensorTable) -> dict[str, TensorInfo]:
    spellings = Counter(canonical(tensor.name) for tensor in table)
    return {name if spellings[name := canonical(tensor.name)] == 1 else tensor.name: tensor for tensor in table}
