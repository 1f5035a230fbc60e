"""The tensor table: what a checkpoint's headers say, no weight loaded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import NamedTuple


class TensorInfo(NamedTuple):  # a target has some 100,000 of them, and a dataclass takes twice the time to make
    """One stored tensor, from its header entry.

    `start` is the absolute byte offset in `file`; `nbytes` the stored size in bytes.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: str
    start: int
    nbytes: int

    @property
    def elements(self) -> int:
        """Stored elements: the product of the shape, 1 for a scalar."""
        return prod(self.shape)


@dataclass(frozen=True)
class TensorTable:
    """Every tensor of a checkpoint, sorted by name, and the files they lie in.

    `index` is the name of the shard index that named the files, None for a single file. `metadata` is the headers'
    own `__metadata__`, merged.
    """

    tensors: tuple[TensorInfo, ...]
    files: tuple[str, ...]
    index: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)

    def __iter__(self) -> Iterator[TensorInfo]:
        return iter(self.tensors)

    def __len__(self) -> int:
        return len(self.tensors)

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def __getitem__(self, name: str) -> TensorInfo:
        return self._by_name[name]

    def get(self, name: str) -> TensorInfo | None:
        return self._by_name.get(name)

    @cached_property
    def _by_name(self) -> dict[str, TensorInfo]:
        return {tensor.name: tensor for tensor in self.tensors}
