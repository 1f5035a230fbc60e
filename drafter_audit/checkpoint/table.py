"""The tensor table: what a checkpoint's headers say, no weight loaded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Literal, NamedTuple

FaultKind = Literal["absent", "misplaced", "unlisted", "unread", "duplicate", "total"]


class TensorInfo(NamedTuple):  # a target has some 100,000 of them, and a dataclass takes twice the time to make
    """One stored tensor, from its header entry.

    `start` is the absolute byte offset in `file`; `nbytes` the stored size in bytes. `strides` are None where the
    elements lie one after another from `start` on, row by row; else, for a view in a pickled file, the distance in
    elements from one index to the next, for each dimension.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: str
    start: int
    nbytes: int
    strides: tuple[int, ...] | None = None

    @property
    def elements(self) -> int:
        """Stored elements: the product of the shape, 1 for a scalar."""
        return prod(self.shape)


@dataclass(frozen=True)
class IndexFault:
    """One way in which a shard index and its files disagree, and the names of all tensors (of files) it is true of.

    `said` tells the same for people, name by name. For `total`, `numbers` are the index's and the files' bytes.
    """

    kind: FaultKind
    names: tuple[str, ...] = ()
    said: tuple[str, ...] = ()
    numbers: tuple[object, int] | None = None


@dataclass(frozen=True)
class TensorTable:
    """Every tensor of a checkpoint, sorted by name, and the files they lie in.

    `index` is the name of the shard index that named the files, None for a single file. `metadata` is the headers'
    own `__metadata__`, merged. `index_faults` are where the index and the files disagree; `notes` what is to be known
    of pickled files beside their tensors; `ignored` the pickled weights that lie beside safetensors and are not read.
    """

    tensors: tuple[TensorInfo, ...]
    files: tuple[str, ...]
    index: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    index_faults: tuple[IndexFault, ...] = ()
    notes: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()

    @property
    def pickled(self) -> tuple[str, ...]:
        """The files that torch.save wrote."""
        return tuple(name for name in self.files if not name.lower().endswith((".safetensors", ".gguf")))

    @property
    def gguf(self) -> bool:
        """Whether it was read from a GGUF file: shapes are PyTorch's, the rows of q and k are not in its order."""
        return any(name.lower().endswith(".gguf") for name in self.files)

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
