"""What the drafter's own values say, no target needed: its vocabulary map, its norms, sampled rows of its two tables.

value_reads.py reads them by range and within bounds. numpy is imported where values are measured, and is not needed to
hold the result.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from drafter_audit.drafter.value_reads import D2T, EMBEDDING, HEAD, T2D, Readings, is_norm, read_parts

if TYPE_CHECKING:
    from drafter_audit.drafter.spec import DrafterSpec
    from drafter_audit.measure.tables import Block, Norm
    from drafter_audit.measure.vocabulary import Ids, Marks, VocabularyMap


NOT_WHOLE = "it holds numbers that are not whole"
"""Why a d2t in floats is left unread."""


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
    def blank(self) -> bool:
        """Whether norms and sampled rows are all zero: a file that was laid out and never filled says nothing more."""
        norms, blocks = self.norms, [block for table in self.tables for block in table.blocks]
        zero = all(norm.is_all(0.0) for norm in norms) and all(block.zero_rows == block.rows for block in blocks)
        return bool(norms or blocks) and zero

    @property
    def not_checked(self) -> tuple[str, ...]:
        """What is left open, one sentence for each reason."""
        reasons: dict[str, list[str]] = {}
        for name, why in self.unread:
            reasons.setdefault(why, []).append(name)
        return tuple(f"the values of {', '.join(names)} were not checked: {why}" for why, names in reasons.items())


def with_values(spec: DrafterSpec) -> DrafterSpec:
    """`spec` with what its own values say. Raises NetworkError."""
    return replace(spec, values=read_values(spec))


def read_values(spec: DrafterSpec) -> StoredValues | None:
    """Figures of the drafter's map, norms and sampled rows; None without weights, and for a language model.

    What cannot be read is named in `unread`. Raises NetworkError: what another try may read is not left unread.
    """
    if spec.table is None or spec.kind.name == "lm":
        return None
    if not spec.is_drafter:
        return StoredValues(unread=(("all tensors", "this is no known drafter"),))
    found = read_parts(spec)
    d2t, t2d = _offsets(found), _marks(found)
    return StoredValues(
        map=_map(spec, d2t, t2d),
        norms=tuple(_norms(found)),
        head=_table(found, HEAD, d2t),
        embedding=_table(found, EMBEDDING, None),
        unread=tuple((spec.clues.tensors[name].name, why) for name, why in found.unread.items()),
        bytes_read=found.spent,
    )


def _offsets(found: Readings) -> Ids | None:
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
    found.unread[D2T] = NOT_WHOLE
    return None


def _marks(found: Readings) -> Marks | None:
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


def _norms(found: Readings) -> Iterator[Norm]:
    from drafter_audit.measure.tables import measure_norm

    for name, parts in found.parts.items():
        if is_norm(name):
            yield from (measure_norm(data, part.tensor.dtype, name=part.tensor.name, file=part.tensor.file)
                        for part, data in parts)  # fmt: skip


def _table(found: Readings, name: str, d2t: Ids | None) -> Table | None:
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
