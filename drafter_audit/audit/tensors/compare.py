"""`compare --weights`: each earlier checkpoint against the last, tensor by tensor."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext

from drafter_audit.audit.config_keys import config_keys
from drafter_audit.audit.tensors.difference import compare_tensor, is_of_unknown_order, is_packed
from drafter_audit.audit.tensors.matching import Match, match
from drafter_audit.audit.tensors.reading import Stored
from drafter_audit.audit.tensors.vocabulary import Shared, UnknownMap, read_tokens, set_against
from drafter_audit.audit.weights import (
    SEVERITY,
    ConfigKey,
    Plan,
    TensorDifference,
    Vocabulary,
    Watch,
    WeightsComparison,
)
from drafter_audit.checkpoint.table import TensorInfo, TensorTable
from drafter_audit.drafter.names import canonical
from drafter_audit.drafter.spec import DrafterSpec
from drafter_audit.errors import CheckpointError

_HEAD = "lm_head.weight"


def compare_weights(specs: Sequence[DrafterSpec], watch: Watch | None = None) -> tuple[WeightsComparison, ...]:
    """Each earlier one of `specs` against the last. All values are read, memory stays at a few pieces of a tensor.

    Raises CheckpointError for a checkpoint without weights, before anything is read; what its source raises.
    """
    *others, ours = specs
    matches = [match(_table(theirs), _table(ours)) for theirs in others]
    plan = _plan([(theirs, found) for theirs, found in zip(others, matches, strict=True)], ours)
    with watch(plan) if watch else nullcontext(lambda _: None) as on_read:
        pairs = [_Pair(theirs, ours, found, on_read) for theirs, found in zip(others, matches, strict=True)]
        return tuple(pair.compare() for pair in pairs)


def _table(spec: DrafterSpec) -> TensorTable:
    if spec.table is None:
        instead = f"name the repository itself, hf://{spec.name}," if spec.source == "bundled" else "name the weights"
        raise CheckpointError("no weights to compare", spec.ref, f"{instead} or leave --weights out")
    if spec.table.gguf:  # weights in blocks, rows of q and k in another order, ids in d2t
        raise CheckpointError("weights of a GGUF file are not compared", spec.ref, "name what it was converted from")
    return spec.table


def _plan(pairs: Iterable[tuple[DrafterSpec, Match]], ours: DrafterSpec) -> Plan:
    total = remote = 0
    for theirs, found in pairs:
        for first, last in found.both:
            if (first.shape == last.shape or canonical(last.name) == _HEAD) and not (first.strides or last.strides):
                for spec, tensor in ((theirs, first), (ours, last)):
                    total += tensor.nbytes
                    remote += tensor.nbytes if spec.source == "hub" else 0
    return Plan(total, remote)


def _notes_of(tensors: Sequence[TensorDifference]) -> Iterator[str]:
    packed = [tensor.name for tensor in tensors if tensor.kind == "bytes_differ" and is_packed(tensor)]
    if packed:
        yield f"Compared byte by byte, for their values are packed or integers: {', '.join(packed)}."
    unordered = [tensor.name for tensor in tensors if is_of_unknown_order(tensor)]
    if unordered:
        yield f"Too many rows to tell whether they are the same in another order: {', '.join(unordered)}."


class _Pair:
    """Two checkpoints, their matching tensors, and what was read of them."""

    def __init__(self, theirs: DrafterSpec, ours: DrafterSpec, found: Match, on_read: Callable[[int], None]) -> None:
        self._theirs, self._ours, self._match = theirs, ours, found
        self._on_read = on_read
        self._bytes_read = 0
        self._notes: list[str] = []
        self._head_dims = frozenset(
            dim for spec in (theirs, ours) if (dim := spec.architecture.head_dim) is not None and dim > 1
        )

    def compare(self) -> WeightsComparison:
        vocabulary, shared = self._vocabulary()
        tensors = [self._tensor(*pair, shared) for pair in self._match.both]
        self._notes += _notes_of(tensors)
        keys = self._config_keys()
        return WeightsComparison(
            against=self._theirs.ref,
            ours=self._ours.ref,
            tensors=tuple(sorted(tensors, key=lambda tensor: SEVERITY.index(tensor.kind))),
            only_theirs=tuple(tensor.name for tensor in self._match.only_theirs),
            only_ours=tuple(tensor.name for tensor in self._match.only_ours),
            vocabulary=vocabulary,
            config_keys=keys,
            notes=tuple(self._notes),
            bytes_read=self._bytes_read,
        )

    def _config_keys(self) -> tuple[ConfigKey, ...]:
        for spec in (self._theirs, self._ours):
            if not spec.config.raw:
                self._notes.append(f"Keys of config.json are not compared: {spec.ref} has none.")
                return ()
        return config_keys(self._theirs.config.raw, self._ours.config.raw)

    def _vocabulary(self) -> tuple[Vocabulary | None, Shared | None]:
        """What became of the draft vocabulary, and the rows to compare where it changed."""
        try:
            theirs, ours = (read_tokens(spec, self._count) for spec in (self._theirs, self._ours))
        except UnknownMap as reason:
            self._notes.append(f"lm_head is compared row by row and not by token: {reason}.")
            return None, None
        if theirs is None or ours is None:
            return None, None
        vocabulary, shared = set_against(theirs, ours)
        return vocabulary, None if vocabulary.same_map else shared

    def _tensor(self, first: TensorInfo, last: TensorInfo, shared: Shared | None) -> TensorDifference:
        theirs = Stored(self._theirs.origin, first, self._read)
        ours = Stored(self._ours.origin, last, self._read)
        return compare_tensor(theirs, ours, self._head_dims, shared if canonical(last.name) == _HEAD else None)

    def _count(self, nbytes: int) -> None:
        self._bytes_read += nbytes

    def _read(self, nbytes: int) -> None:
        self._count(nbytes)
        self._on_read(nbytes)
