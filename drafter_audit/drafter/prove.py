"""Sampled rows of a drafter's embedding and head against the target's: proof of what is frozen.

Reads weights, so it is done only where the user names the target. At most MOST_BYTES for each drafter, never a table.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from drafter_audit.checkpoint.table import TensorInfo
from drafter_audit.drafter.evidence import Evidence, TargetTable, weigh
from drafter_audit.drafter.names import canonical
from drafter_audit.drafter.roles import TensorRole
from drafter_audit.drafter.spec import DrafterSpec
from drafter_audit.drafter.target_weights import (
    EMBEDDING,
    HEAD,
    CountedSource,
    Found,
    TargetWeights,
    counterpart,
    spellings,
    why_unreadable,
)
from drafter_audit.errors import AuditError, CheckpointError, NetworkError, escape
from drafter_audit.sources.names import is_weight_name
from drafter_audit.sources.open import open_source

if TYPE_CHECKING:
    from drafter_audit.drafter.row_sample import Ids, Run

MOST_BYTES = 7_500_000
"""Read for one drafter: its config, card, index and headers, the target's, the vocabulary map, and rows of both. Leaves
room below 8 MB for the lists of files that the Hub sends."""

_MAP = "d2t"
_PARALLEL_READS = 8


class _NotComparableError(Exception):
    """Why two tensors cannot be set against each other."""


class _OutsideError(_NotComparableError):
    """The vocabulary map leads outside the target's table."""


@dataclass(frozen=True)
class _Side:
    """One table: its entry, the source it lies in, and the size of a row."""

    source: CountedSource
    tensor: TensorInfo

    @property
    def rows(self) -> int:
        return self.tensor.shape[0]

    @property
    def width(self) -> int:
        return self.tensor.shape[1]

    @property
    def row_bytes(self) -> int:
        return self.tensor.nbytes // self.rows

    def range_of(self, first: int, last: int) -> tuple[str, int, int]:
        start = self.tensor.start + first * self.row_bytes
        return self.tensor.file, start, start + (last - first) * self.row_bytes


def with_evidence(spec: DrafterSpec, source: CountedSource, target: str) -> DrafterSpec:
    """`spec` with the evidence that the target's weights give, and its roles overridden by it.

    `source` is the drafter's, by which all of it was read, `target` the reference the user named. Where there is no
    evidence `evidence_none` says why: that a target's weights are no weights, or not for this user, is no failure of
    the counts, which rest on rules then. Raises NetworkError: what another try may prove is not left unproved.
    """
    nothing = _nothing_to_compare(spec)
    return replace(spec, evidence_none=nothing) if nothing else _with_rows(spec, source, _weights(source, target))


def with_headers(spec: DrafterSpec, source: CountedSource, target: str, *, rows: bool) -> DrafterSpec:
    """`spec` with the shapes of the target's embedding and head, and evidence too where `rows` says so.

    Where there are no headers `headers_none` says why; of a target that is a config.json alone nothing more is said.
    Raises NetworkError.
    """
    weights, nothing = _weights(source, target), _nothing_to_compare(spec)
    spec = _with_tables(spec, weights)
    if not rows or isinstance(weights, Weightless):
        return spec
    if nothing:
        return replace(spec, evidence_none=nothing)
    return _with_rows(spec, source, weights)


class Weightless(str):
    """Why a target has no weights although all of it can be read: it is a config.json alone, or a bundled record."""

    __slots__ = ()


def _nothing_to_compare(spec: DrafterSpec) -> str | None:
    """Why a drafter has no rows to set against a target's, None where it has."""
    if spec.table is None:
        return "no weights of the drafter were read"
    if spec.table.gguf:  # its rows may be quantised in blocks, and its d2t holds ids where others hold offsets
        return "rows of a GGUF file are not compared: name what it was converted from"
    if not spec.is_drafter:
        return "it is no drafter"
    return None if _stored_parts(spec) else "the drafter stores neither embedding nor head"


def _stored_parts(spec: DrafterSpec) -> list[str]:
    return [name for name in (EMBEDDING, HEAD) if _stored(spec, name)]


def _weights(source: CountedSource, target: str) -> TargetWeights | str:
    """The target's weights, on the drafter's account, or why there are none. Raises NetworkError."""
    try:
        theirs = open_source(target)
        if theirs.kind == "bundled":
            return Weightless(f"{target} is a bundled record, which has no weights: name the repository")
        if not any(map(is_weight_name, theirs.files())):
            return Weightless(f"{target} has no weight files")
    except NetworkError:
        raise
    except AuditError as error:
        return str(error)
    return TargetWeights(source.up_to(MOST_BYTES).beside(theirs))


def _with_tables(spec: DrafterSpec, weights: TargetWeights | str) -> DrafterSpec:
    if isinstance(weights, str):
        return replace(spec, headers_none=weights)
    try:
        found = {name: counterpart(weights, name) for name in (EMBEDDING, HEAD)}
    except NetworkError:
        raise
    except AuditError as error:
        return replace(spec, headers_none=str(error))
    tables = tuple(_table(name, one) for name, one in found.items() if one is not None)
    none = None if tables else "the target stores no embedding and no head under a known name"
    return replace(spec, target_tables=tables, headers_none=none)


def _table(part: str, found: Found) -> TargetTable:
    shape = found.tensor.shape
    rows, width = shape if len(shape) == 2 and found.packed is None else (None, None)
    return TargetTable(part, found.tensor.name, found.tensor.dtype, rows, width)


def _with_rows(spec: DrafterSpec, source: CountedSource, weights: TargetWeights | str) -> DrafterSpec:
    if isinstance(weights, str):
        return replace(spec, evidence_none=weights)
    evidence = tuple(_gather(spec, source.up_to(MOST_BYTES), weights, _stored_parts(spec)))
    none = None if evidence else f"{escape(weights.source.ref)} stores no embedding and no head under a known name"
    return replace(spec, evidence=evidence, evidence_none=none, tensors=weigh(spec.tensors, evidence))


def _stored(spec: DrafterSpec, name: str) -> TensorInfo | None:
    return next((tensor for each in spellings(name) if (tensor := spec.clues.tensors.get(each))), None)


def _gather(
    spec: DrafterSpec, ours: CountedSource, weights: TargetWeights, stored: Sequence[str]
) -> Iterator[Evidence]:
    """One entry for each of the drafter's two tables that the target has too, or may have. Raises NetworkError."""
    same_tokens = False  # an embedding that agrees proves it for the head
    for place, name in enumerate(stored):
        tensor, before = _stored(spec, name), ours.spent
        rule = next(role for role in spec.tensors if tensor and role.name == tensor.name)
        theirs: Found | None = None
        try:
            theirs = counterpart(weights, name)
            if tensor is None or theirs is None:
                continue
            sides = _Side(ours, tensor), _Side(weights.source, theirs.tensor)
            _check(spec, *sides, theirs.packed)
            evidence = _compare(spec, *sides, rule, shares=len(stored) - place)
            if evidence.kind != "unrelated":
                same_tokens = True
            elif not same_tokens and not evidence.is_broken:
                _check_vocabulary(spec, sides[1])
        except NetworkError:
            raise
        except (_NotComparableError, AuditError) as why:
            found, outside = theirs.tensor.name if theirs else None, isinstance(why, _OutsideError)
            evidence = Evidence(rule.name, found, None, 0, 0, rule, reason=str(why), map_leads_outside=outside)
        yield replace(evidence, bytes_read=ours.spent - before)


def _compare(spec: DrafterSpec, ours: _Side, theirs: _Side, rule: TensorRole, *, shares: int) -> Evidence:
    """Reads and compares rows, for one of `shares` equal parts of what may still be read.

    Raises _NotComparableError, AuditError.
    """
    from drafter_audit.drafter.row_sample import choose_runs, row_numbers
    from drafter_audit.measure.closeness import compare_rows

    targets = _target_rows(spec, ours, theirs)
    budget = (ours.source.limit - ours.source.spent) // shares  # after the map was read
    runs = choose_runs(targets, row_bytes=ours.row_bytes, target_row_bytes=theirs.row_bytes, budget=budget)
    if not runs:
        raise _NotComparableError(f"no row of {ours.width} elements fits into the {budget} bytes left to read")
    a, b = _read_theirs(theirs, runs, targets), b"".join(_read(ours, [(run.start, run.stop) for run in runs]))
    closeness = compare_rows(a, theirs.tensor.dtype, b, ours.tensor.dtype, width=ours.width)
    if closeness.zero_rows == closeness.rows:
        raise _NotComparableError("all sampled rows are zero on both sides")
    differing = row_numbers(runs, closeness.differing)
    return Evidence(ours.tensor.name, theirs.tensor.name, closeness, closeness.rows, 0, rule, differing)


def _check_vocabulary(spec: DrafterSpec, theirs: _Side) -> None:
    """Raises _NotComparableError where rows may differ because they are those of other tokens.

    Sizes differ by padding too, and then rows agree: so this is asked where they do not.
    """
    vocabulary, of_target = spec.architecture.vocab_size, spec.target.vocab_size or theirs.rows
    if vocabulary not in (None, of_target, theirs.rows):
        sizes = f"vocab_size is {vocabulary}, the target's {of_target}"
        raise _NotComparableError(f"the rows differ, but may be those of other tokens: {sizes}")


def _check(spec: DrafterSpec, ours: _Side, theirs: _Side, packed: str | None) -> None:
    """Raises _NotComparableError unless both are plain tables of one width."""
    from drafter_audit.measure.closeness import FLOATS

    sides = {"the drafter's": why_unreadable(ours.tensor, spec.table or ()), "the target's": packed}
    for (whose, why), side in zip(sides.items(), (ours, theirs), strict=True):
        if why is not None:
            raise _NotComparableError(f"{whose} {why}")
        if side.tensor.dtype not in FLOATS:
            raise _NotComparableError(f"{whose} {side.tensor.name} is {side.tensor.dtype}, packed or unknown")
        if len(side.tensor.shape) != 2 or 0 in side.tensor.shape:
            raise _NotComparableError(f"{whose} {side.tensor.name} has the shape {list(side.tensor.shape)}")
    if ours.width != theirs.width:
        raise _NotComparableError(f"the drafter's rows are {ours.width} wide and the target's {theirs.width}")


def _target_rows(spec: DrafterSpec, ours: _Side, theirs: _Side) -> Ids:
    """The target row of each draft row: itself, or `i + d2t[i]` for a head over a reduced vocabulary.

    Without a map both tables are the whole vocabulary, one of them padded perhaps: the rows that both have.
    """
    import numpy as np

    from drafter_audit.measure.closeness import integers

    rows = np.arange(ours.rows, dtype=np.int64)
    mapped = canonical(ours.tensor.name) == HEAD
    d2t = spec.clues.tensors.get(_MAP) if mapped else None
    if d2t is None:
        vocabulary = spec.architecture.vocab_size
        if mapped and vocabulary is not None and ours.rows < min(vocabulary, theirs.rows):
            raise _NotComparableError(f"no d2t says which of the target's rows the {ours.rows} draft rows are")
        return rows[: theirs.rows]
    if d2t.shape != (ours.rows,) or d2t.dtype not in ("I64", "I32"):
        raise _NotComparableError(f"d2t is {d2t.dtype} of shape {list(d2t.shape)} for {ours.rows} draft rows")
    (data,) = _ranges(ours.source, [(d2t.file, d2t.start, d2t.start + d2t.nbytes)])
    targets = rows + integers(data, d2t.dtype)
    outside = np.flatnonzero((targets < 0) | (targets >= theirs.rows))
    if outside.size:
        first = int(outside[0])
        raise _OutsideError(
            f"{outside.size} entries of d2t lead outside the target's {theirs.rows} rows, such as row {first} to "
            f"{int(targets[first])}"
        )
    return targets


def _read_theirs(theirs: _Side, runs: Sequence[Run], targets: Ids) -> bytes:
    from drafter_audit.drafter.row_sample import pick_rows

    parts = _read(theirs, [(run.low, run.high) for run in runs])
    return b"".join(pick_rows(part, run, targets, theirs.row_bytes) for part, run in zip(parts, runs, strict=True))


def _read(side: _Side, spans: Sequence[tuple[int, int]]) -> list[bytes]:
    return _ranges(side.source, [side.range_of(first, last) for first, last in spans])


def _ranges(source: CountedSource, wanted: Sequence[tuple[str, int, int]]) -> list[bytes]:
    """The byte ranges (file, start, stop), in order, several at a time. Raises CheckpointError where one is short."""
    with ThreadPoolExecutor(max_workers=_PARALLEL_READS) as pool:
        parts = list(pool.map(lambda span: source.read_range(*span), wanted))
    for part, (file, start, stop) in zip(parts, wanted, strict=True):
        if len(part) != stop - start:
            what = f"cut short: {len(part)} of the {stop - start} bytes from {start} on"
            raise CheckpointError(what, f"{source.name}/{file}", "download the real file")
    return parts
