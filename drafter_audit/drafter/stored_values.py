"""What the drafter's own values say, no target needed: its vocabulary map, its norms, sampled rows of its two tables.

Reads weights by range, at most MOST_BYTES of them, so that a drafter on the Hub stays cheap. numpy is imported where
values are measured, and is not needed to hold the result.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from drafter_audit.checkpoint.table import TensorInfo
from drafter_audit.drafter.roles import LEFTOVER
from drafter_audit.errors import AuditError, NetworkError

if TYPE_CHECKING:
    from drafter_audit.drafter.spec import DrafterSpec
    from drafter_audit.measure.tables import Block, Norm
    from drafter_audit.measure.vocabulary import Ids, Marks, VocabularyMap
    from drafter_audit.sources.base import Source

MOST_BYTES = 8_000_000
"""Read for one drafter. Of usual sizes the map takes 0.4 MB, the norms 0.1 MB and each table 2 MB."""

BLOCK_BYTES = 500_000
BLOCKS = 4
"""Of a table; one of up to BLOCKS * BLOCK_BYTES is read whole, as one block."""

HEAD, EMBEDDING, D2T, T2D = "lm_head.weight", "embed_tokens.weight", "d2t", "t2d"

_NORM = re.compile(r"(?:norm|layernorm)(?:\.\d+)?\.weight$")
_PARALLEL_READS = 8


@dataclass(frozen=True)
class Table:
    """Sampled rows of one table: `name` as stored, `rows` and `width` of the whole of it."""

    name: str
    file: str
    dtype: str
    rows: int
    width: int
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class StoredValues:
    """Figures of what was read. `map` is None without a readable d2t, `head` and `embedding` without such a table.

    `unread` are the tensors, by stored name, that could not be read, and why: a tensor that is not stored is not among
    them. `bytes_read` is what all of it took.
    """

    map: VocabularyMap | None = None
    norms: tuple[Norm, ...] = ()
    head: Table | None = None
    embedding: Table | None = None
    unread: tuple[tuple[str, str], ...] = ()
    bytes_read: int = 0

    @property
    def tables(self) -> tuple[Table, ...]:
        return tuple(table for table in (self.head, self.embedding) if table is not None)

    @property
    def not_checked(self) -> tuple[str, ...]:
        """What is left open, one sentence for each reason."""
        reasons: dict[str, list[str]] = {}
        for name, why in self.unread:
            reasons.setdefault(why, []).append(name)
        return tuple(f"the values of {', '.join(names)} were not checked: {why}" for why, names in reasons.items())


@dataclass(frozen=True)
class _Part:
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
class _Readings:
    """The bytes of each tensor, by canonical name, and the tensors without; filled by `_read`."""

    parts: dict[str, list[tuple[_Part, bytes]]] = field(default_factory=dict)
    unread: dict[str, str] = field(default_factory=dict)
    spent: int = 0

    def whole(self, name: str) -> tuple[TensorInfo, bytes] | None:
        return next(((part.tensor, data) for part, data in self.parts.get(name, ())), None)


def with_values(spec: DrafterSpec) -> DrafterSpec:
    """`spec` with what its own values say. Raises NetworkError."""
    return replace(spec, values=read_values(spec))


def read_values(spec: DrafterSpec) -> StoredValues | None:
    """Figures of the drafter's map, norms and sampled rows; None where there are no weights to read.

    What cannot be read is named in `unread`. Raises NetworkError: what another try may read is not left unread.
    """
    if spec.table is None:
        return None
    if not spec.is_drafter:
        return StoredValues(unread=(("all tensors", "this is no known drafter"),))
    found = _read(spec, _wanted(spec))
    d2t, t2d = _offsets(found), _marks(found)
    return StoredValues(
        map=_map(spec, d2t, t2d),
        norms=tuple(_norms(found)),
        head=_table(found, HEAD, d2t),
        embedding=_table(found, EMBEDDING, None),
        unread=tuple((spec.clues.tensors[name].name, why) for name, why in found.unread.items()),
        bytes_read=found.spent,
    )


def _wanted(spec: DrafterSpec) -> Iterator[str]:
    """Canonical names, the most telling first: the bound is met at the end."""
    tensors = spec.clues.tensors
    leftovers = {tensor.name for tensor in spec.tensors if tensor.reason == LEFTOVER}
    yield from (name for name in (D2T, T2D) if name in tensors)
    yield from (name for name, of in tensors.items() if _NORM.search(name) and of.name not in leftovers)
    yield from (name for name in (HEAD, EMBEDDING) if name in tensors)


def _read(spec: DrafterSpec, names: Iterator[str]) -> _Readings:
    """Reads what can be and may be read. Raises NetworkError."""
    found, chosen = _Readings(), []
    for name in names:
        tensor = spec.clues.tensors[name]
        why = _why_not(spec, name, tensor)
        parts = _parts(name, tensor) if why is None else ()
        cost = sum(part.nbytes for part in parts)
        if why is None and found.spent + cost > MOST_BYTES:
            why = f"with it more than {MOST_BYTES:,} bytes would be read"
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


def _why_not(spec: DrafterSpec, name: str, tensor: TensorInfo) -> str | None:
    """Why the bytes of a tensor are not its values, one after another; None where they are."""
    from drafter_audit.drafter.target_weights import why_unreadable
    from drafter_audit.measure.closeness import DECODABLE, FLOATS

    table = name in (HEAD, EMBEDDING)
    if tensor.dtype not in (DECODABLE if name in (D2T, T2D) else FLOATS):
        return f"{tensor.dtype} is packed or unknown"
    if len(tensor.shape) != (2 if table else 1) or not tensor.elements:
        return f"it has the shape {list(tensor.shape)}"
    return why_unreadable(tensor, spec.table or ()) if table or tensor.strides is not None else None


def _parts(name: str, tensor: TensorInfo) -> tuple[_Part, ...]:
    """A vector whole; of a table blocks of neighbouring rows, spread evenly from the first row to the last."""
    rows, row_bytes = tensor.shape[0], tensor.nbytes // tensor.shape[0]
    length = max(1, BLOCK_BYTES // row_bytes)
    if name not in (HEAD, EMBEDDING) or rows <= BLOCKS * length:
        return (_Part(tensor, 0, rows),)
    starts = [(rows - length) * place // (BLOCKS - 1) for place in range(BLOCKS)]
    return tuple(_Part(tensor, start, start + length) for start in starts)


def _offsets(found: _Readings) -> Ids | None:
    """d2t as whole numbers; one in floats is taken for them where each is whole."""
    from drafter_audit.measure.closeness import FLOATS, decode, integers

    read = found.whole(D2T)
    if read is None:
        return None
    tensor, data = read
    if tensor.dtype not in FLOATS:
        return integers(data, tensor.dtype)
    values = decode(data, tensor.dtype)
    if (abs(values) < 2**53).all() and (values == values.round()).all():
        return values.astype("int64")
    found.unread[D2T] = "it holds numbers that are not whole"
    return None


def _marks(found: _Readings) -> Marks | None:
    from drafter_audit.measure.closeness import decode

    read = found.whole(T2D)
    if read is None:
        return None
    tensor, data = read
    values = decode(data, tensor.dtype)
    if ((values == 0) | (values == 1)).all():
        marks: Marks = values == 1
        return marks
    found.unread[T2D] = "it holds other numbers than 0 and 1, so it is no mask"
    return None


def _map(spec: DrafterSpec, d2t: Ids | None, t2d: Marks | None) -> VocabularyMap | None:
    from drafter_audit.measure.vocabulary import measure_map

    if d2t is None:
        return None
    vocabulary = spec.target.vocab_size or spec.architecture.vocab_size or (None if t2d is None else len(t2d))
    return measure_map(d2t, t2d, vocabulary, absolute=spec.dialect.name == "gguf")


def _norms(found: _Readings) -> Iterator[Norm]:
    from drafter_audit.measure.tables import measure_norm

    for name, parts in found.parts.items():
        if _NORM.search(name):
            yield from (measure_norm(data, part.tensor.dtype, name=part.tensor.name, file=part.tensor.file)
                        for part, data in parts)  # fmt: skip


def _table(found: _Readings, name: str, d2t: Ids | None) -> Table | None:
    """The blocks of one table that were read; `d2t` is the map of its rows."""
    from drafter_audit.measure.tables import measure_block
    from drafter_audit.measure.vocabulary import repeats

    read = found.parts.get(name)
    if not read:
        return None
    tensor = read[0][0].tensor
    pairs = repeats(d2t) if d2t is not None and len(d2t) == tensor.shape[0] else None
    blocks = tuple(
        measure_block(
            data,
            tensor.dtype,
            first=part.first,
            width=tensor.shape[1],
            repeats=None if pairs is None else pairs[part.first : part.last - 1],
        )
        for part, data in read
    )
    rows, width = tensor.shape
    return Table(tensor.name, tensor.file, tensor.dtype, rows, width, blocks)
