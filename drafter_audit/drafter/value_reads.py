"""Which of a drafter's tensors are read for their values, in which parts, and why others are not.

The most telling first, at most MOST_BYTES in all, by MOST_READS at most. Of usual sizes the map takes 0.4 MB, the norms
0.1 MB, each table 2 MB.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from drafter_audit.checkpoint.table import TensorInfo
from drafter_audit.drafter.roles import LEFTOVER
from drafter_audit.errors import AuditError, NetworkError

if TYPE_CHECKING:
    from drafter_audit.drafter.spec import DrafterSpec
    from drafter_audit.sources.base import Source

MOST_BYTES = 8_000_000
"""Read for one drafter: one on the Hub stays cheap."""

MOST_READS = 256
"""Ranges asked for: each is a request to the Hub, and a file may hold any number of norms. Usual drafters take 20."""

BLOCK_BYTES = 500_000
BLOCKS = 4
"""Of a table; one of up to BLOCKS * BLOCK_BYTES is read whole, as one block."""

HEAD, EMBEDDING, D2T, T2D = "lm_head.weight", "embed_tokens.weight", "d2t", "t2d"
TABLES, MAPS = (HEAD, EMBEDDING), (D2T, T2D)

_NORM = re.compile(r"(?:norm|layernorm)(?:\.\d+)?\.weight$")
_PARALLEL_READS = 8


@dataclass(frozen=True)
class Part:
    """Rows `[first, last)` of a tensor; of a vector they are its elements."""

    tensor: TensorInfo
    first: int
    last: int

    @property
    def nbytes(self) -> int:
        return (self.last - self.first) * (self.tensor.nbytes // self.tensor.shape[0])

    def read(self, source: Source) -> bytes | str:
        """The bytes, or why there are none. Raises NetworkError."""
        start = self.tensor.start + self.first * (self.tensor.nbytes // self.tensor.shape[0])
        try:
            data = source.read_range(self.tensor.file, start, start + self.nbytes)
        except NetworkError:
            raise
        except AuditError as error:
            return str(error)
        short = f"{self.tensor.file} ends early: {len(data)} of {self.nbytes} bytes from {start} on"
        return data if len(data) == self.nbytes else short


@dataclass
class Readings:
    """The bytes of each tensor, by canonical name, and the tensors without; filled by `read_parts`."""

    parts: dict[str, list[tuple[Part, bytes]]] = field(default_factory=dict)
    unread: dict[str, str] = field(default_factory=dict)
    spent: int = 0

    def whole(self, name: str) -> tuple[TensorInfo, bytes] | None:
        return next(((part.tensor, data) for part, data in self.parts.get(name, ())), None)


def _wanted(spec: DrafterSpec) -> Iterator[str]:
    """Canonical names, the most telling first: the bound is met at the end."""
    tensors = spec.clues.tensors
    leftovers = {tensor.name for tensor in spec.tensors if tensor.reason == LEFTOVER}
    yield from (name for name in MAPS if name in tensors)
    yield from (name for name, of in tensors.items() if is_norm(name) and of.name not in leftovers)
    yield from (name for name in TABLES if name in tensors)


def read_parts(spec: DrafterSpec) -> Readings:
    """Reads what can be and may be read. Raises NetworkError."""
    found = Readings()
    chosen: list[tuple[str, Part]] = []
    for name in _wanted(spec):
        tensor = spec.clues.tensors[name]
        why = _why_not(spec, name, tensor)
        parts = _parts(name, tensor) if why is None else ()
        cost = sum(part.nbytes for part in parts)
        if why is None and found.spent + cost > MOST_BYTES:
            why = f"with it more than {MOST_BYTES:,} bytes would be read"
        if why is None and len(chosen) + len(parts) > MOST_READS - _kept(name):
            why = f"with it more than {MOST_READS} reads would be made"
        if why is not None:
            found.unread[name] = why
            continue
        found.spent += cost
        chosen += [(name, part) for part in parts]
    with ThreadPoolExecutor(max_workers=_PARALLEL_READS) as pool:
        answers = list(pool.map(lambda each: each[1].read(spec.origin), chosen))
    for (name, part), answer in zip(chosen, answers, strict=True):
        if isinstance(answer, str):
            found.unread[name] = answer
        else:
            found.parts.setdefault(name, []).append((part, answer))
    return found


def _kept(name: str) -> int:
    """Reads that are left for the two tables, which come last."""
    return 0 if name in TABLES else BLOCKS * len(TABLES)


def _why_not(spec: DrafterSpec, name: str, tensor: TensorInfo) -> str | None:
    """Why the bytes of a tensor are not its values, one after another; None where they are."""
    from drafter_audit.drafter.target_weights import why_unreadable
    from drafter_audit.measure.closeness import DECODABLE, FLOATS

    table = name in TABLES
    if tensor.dtype not in (DECODABLE if name in MAPS else FLOATS):
        return f"{tensor.dtype} is packed or unknown"
    if len(tensor.shape) != (2 if table else 1) or not tensor.elements:
        return f"it has the shape {list(tensor.shape)}"
    return why_unreadable(tensor, spec.table or ()) if table or tensor.strides is not None else None


def _parts(name: str, tensor: TensorInfo) -> tuple[Part, ...]:
    """A vector whole; of a table blocks of neighbouring rows, spread evenly from the first row to the last."""
    rows, row_bytes = tensor.shape[0], tensor.nbytes // tensor.shape[0]
    length = max(1, BLOCK_BYTES // row_bytes)
    if name not in TABLES or rows <= BLOCKS * length:
        return (Part(tensor, 0, rows),)
    starts = [(rows - length) * place // (BLOCKS - 1) for place in range(BLOCKS)]
    return tuple(Part(tensor, start, start + length) for start in starts)


def is_norm(name: str) -> bool:
    """Whether a canonical name is that of a norm's weight, `fc_norm.0.weight` among them."""
    return _NORM.search(name) is not None
