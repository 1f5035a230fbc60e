"""From a reference to a drafter that runs. Every tensor of the file is accounted for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from drafter_audit.checkpoint.table import TensorInfo
from drafter_audit.drafter.expected import Shapes, stand_ins
from drafter_audit.drafter.names import canonical
from drafter_audit.drafter.open import open_drafter
from drafter_audit.drafter.roles import TensorRole
from drafter_audit.drafter.spec import DrafterSpec
from drafter_audit.drafter.value_reads import is_norm
from drafter_audit.drafter.wiring import Wiring, declared_wiring
from drafter_audit.errors import CannotRunError, CheckpointError, UsageError
from drafter_audit.model.borrow import borrow, has_weights, lender
from drafter_audit.model.drafter import Drafter
from drafter_audit.model.needs import (
    EMBEDDING,
    HEAD,
    MAP,
    STATE_NORM,
    biases,
    check_runnable,
    check_states,
    check_told,
    check_values,
    reads_no_token,
    states_shape,
    tensors_needed,
    why_left_out,
)
from drafter_audit.model.network import build_network
from drafter_audit.model.place import Place, cast, non_finite, place_of
from drafter_audit.model.reading import read_tensor, rows_of
from drafter_audit.model.report import Borrowed, LoadReport


def load_drafter(
    ref: str, *, wiring: Wiring | None = None, target: str | None = None, dtype: str = "float32", device: str = "cpu"
) -> Drafter:
    """The drafter `ref`, ready to run under `wiring`, or under the wiring that it declares.

    `target` names the model that embedding and head are borrowed from where the wiring says so; one that the drafter's
    files name is taken where it may be read. `dtype` is a torch name ("float32", "bfloat16", "float16", "float64").
    Weights are read through the reference's source and cast. Raises CannotRunError for a kind, format or setting that
    is not run, CheckpointError for tensors that are missing or of another shape, UsageError for an unknown dtype or
    device, and what opening a reference raises.
    """
    if wiring is not None and not isinstance(wiring, Wiring):
        raise UsageError(
            f"a wiring of type {type(wiring).__name__}", "load_drafter", "pass a drafter_audit.drafter.wiring.Wiring"
        )
    variants = open_variants(ref, target=target, dtype=dtype, device=device)
    wired = declared_wiring(variants.spec) if wiring is None else wiring
    if wired is None:
        raise CannotRunError(f"no wiring is known for kind {variants.spec.kind.name}", variants.spec.name, "pass one")
    return variants.under(wired)


@dataclass
class _Kept:
    """What was read of one drafter, so that it is read, cast and counted once for all its wirings."""

    stored: dict[tuple[str, tuple[int, ...]], Tensor] = field(default_factory=dict)
    lent: dict[tuple[str, tuple[int, ...], tuple[int, ...] | None], tuple[Tensor, Borrowed]] = field(
        default_factory=dict
    )
    ones: set[str] = field(default_factory=set)
    bad: dict[int, int] = field(default_factory=dict)
    zero: dict[int, bool] = field(default_factory=dict)
    lends: bool | None = None

    def non_finite(self, tensor: Tensor) -> int:
        if id(tensor) not in self.bad:
            self.bad[id(tensor)] = non_finite(tensor)
        return self.bad[id(tensor)]

    def all_zero(self, tensor: Tensor) -> bool:
        if id(tensor) not in self.zero:
            self.zero[id(tensor)] = not bool(tensor.any())
        return self.zero[id(tensor)]


@dataclass(frozen=True)
class Variants:
    """One drafter under any number of wirings, which share their tensors. `target` is whom it borrows from, `named`
    whether the user said so, `dtype` and `place` what it computes in."""

    spec: DrafterSpec
    target: str | None
    named: bool
    dtype: str
    place: Place
    _kept: _Kept = field(default_factory=_Kept, repr=False)

    def under(self, wiring: Wiring) -> Drafter:
        """The drafter under `wiring`. Raises as `load_drafter`."""
        spec = self.spec
        check_told(wiring, spec.name)
        check_values(wiring)
        check_states(spec, wiring)
        loading = _Loading(spec, wiring, self.place, self.target, self.named, self._kept)
        weights = loading.read()
        report = loading.report(weights, self.dtype)
        d2t = weights.pop(MAP, None) if wiring.vocab_map != "identity" else None
        network = build_network(weights, spec.architecture, spec.kind.name, wiring)
        _check_map(spec, d2t, network.head.weight.shape[0])
        return Drafter(spec, wiring, report, network, d2t, states_shape(spec))


def open_variants(ref: str, *, target: str | None = None, dtype: str = "float32", device: str = "cpu") -> Variants:
    """The drafter `ref`, of which no weight is read before `under` needs it. Arguments and errors as `load_drafter`."""
    place = place_of(dtype, device)
    spec = open_drafter(ref, target=target)
    check_runnable(spec)
    return Variants(spec, lender(spec, target), target is not None, dtype, place)


@dataclass
class _Loading:
    """One drafter's tensors while they are read. Each is cast to `place` before the next is read. `target` is whom to
    borrow from, `named` whether the user said so; `kept` is what other wirings have read already."""

    spec: DrafterSpec
    wiring: Wiring
    place: Place
    target: str | None
    named: bool
    kept: _Kept
    used: set[str] = field(default_factory=set)
    borrowed: list[Borrowed] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    all_ones: list[str] = field(default_factory=list)

    def read(self) -> dict[str, Tensor]:
        """Canonical name -> tensor, of all that the network reads. Raises AuditError."""
        needed = tensors_needed(self.spec, self.wiring)
        needed |= biases(self.spec, needed)
        ones = self._ones(needed)
        tables = {EMBEDDING: needed.pop(EMBEDDING), HEAD: needed.pop(HEAD)}
        wanted = needed | {name: tables[name] for name in self._own_tables()}
        self._check_stored(wanted)
        self._check_none_lost(wanted)
        weights = {name: self._stored(name, shape) for name, shape in needed.items()}
        weights |= ones | self._tables(tables, weights.get(MAP))
        self._note_map(weights)
        if reads_no_token(self.spec):
            self.notes.append("its first layer reads the state alone: which tokens it is given changes nothing")
        return weights

    def _ones(self, needed: Shapes) -> dict[str, Tensor]:
        """The norm that engines give weights of one where a drafter without aux states stores none; no longer needed of
        the file."""
        stored = any(name in self.spec.clues.tensors for name in (STATE_NORM, *stand_ins(STATE_NORM)))
        if self.spec.kind.name != "eagle3_noaux" or STATE_NORM not in needed or stored:
            return {}
        self.notes.append(f"{STATE_NORM} is not stored: weights of one stand for it")
        self.all_ones.append(STATE_NORM)
        dtype, device = self.place
        return {STATE_NORM: torch.ones(needed.pop(STATE_NORM), dtype=dtype, device=device)}

    def report(self, weights: dict[str, Tensor], dtype: str) -> LoadReport:
        table = self.spec.table or ()
        bad = {name: self.kept.non_finite(tensor) for name, tensor in weights.items()}
        return LoadReport(
            wiring=self.wiring,
            dtype=dtype,
            device=str(self.place[1]),
            used=tuple(sorted(self.used)),
            ignored=tuple((role.name, self._why(role) or "") for role in self._left_out()),
            borrowed=tuple(self.borrowed),
            notes=tuple(self.notes),
            non_finite=tuple((name, count) for name, count in bad.items() if count),
            all_ones=tuple(self.all_ones),
            all_zero=tuple(name for name in weights if name.endswith("weight") and self.kept.all_zero(weights[name])),
            stored_dtypes=tuple(sorted({tensor.dtype for tensor in table if tensor.name in self.used})),
        )

    def _own_tables(self) -> list[str]:
        own = {EMBEDDING: self.wiring.embedding == "own", HEAD: self.wiring.head == "own"}
        return [name for name, is_own in own.items() if is_own]

    def _check_stored(self, needed: Shapes) -> None:
        """Raises CheckpointError, naming all that is missing."""
        stored = self.spec.clues.tensors
        missing = [name for name in needed if name not in stored and not any(n in stored for n in stand_ins(name))]
        if missing:
            names = ", ".join(missing[:8]) + (f" and {len(missing) - 8} more" if len(missing) > 8 else "")
            mend = "save them too, or pass a wiring that does without"
            raise CheckpointError(f"the wiring needs tensors that are not stored: {names}", self.spec.name, mend)

    def _stored(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """One tensor of the file, cut out of a fused one if need be. Raises CheckpointError for another shape."""
        info = next(self._sources({name: shape}))
        self.used.add(info.name)
        if (name, shape) not in self.kept.stored:
            self.kept.stored[name, shape] = self._read(info, name, shape)
        if name in self.kept.ones:
            self.all_ones.append(name)
        return self.kept.stored[name, shape]

    def _read(self, info: TensorInfo, name: str, shape: tuple[int, ...]) -> Tensor:
        part = info if canonical(info.name) == name or is_norm(name) else _cut(info, name, self.spec)
        if part.shape != shape:
            what = f"{info.name} has the shape {list(info.shape)} where {list(shape)} is needed for {name}"
            raise CheckpointError(what, f"{self.spec.name}/{info.file}", "make config.json agree with the weights")
        tensor = read_tensor(self.spec.origin, part)
        if is_norm(name) and bool((tensor == 1).all()):
            self.kept.ones.add(name)
        return cast(tensor, name, self.place, f"{self.spec.name}/{info.file}")

    def _tables(self, shapes: Shapes, d2t: Tensor | None) -> dict[str, Tensor]:
        """Embedding and head, from where the wiring says."""
        embedding = self._table(EMBEDDING, self.wiring.embedding, shapes[EMBEDDING], None)
        if self.wiring.head == "embedding":
            return {EMBEDDING: embedding, HEAD: embedding}
        rows = _target_rows(d2t, self.wiring) if self.wiring.head == "target_rows" and d2t is not None else None
        return {EMBEDDING: embedding, HEAD: self._table(HEAD, self.wiring.head, shapes[HEAD], rows)}

    def _table(self, name: str, source: str | None, shape: tuple[int, ...], rows: list[int] | None) -> Tensor:
        copy = name in self.spec.clues.tensors and name == EMBEDDING
        if source == "own":
            return self._stored(name, shape)
        if copy and not (self.named and self._lends()):
            self.notes.append(f"{name} is the file's copy, taken for the target's: no target with weights was named")
            return self._stored(name, shape)
        key = (name, shape, None if rows is None else tuple(rows))
        if key not in self.kept.lent:
            tensor, borrowed = borrow(self.spec, name, self.target, shape, rows)
            self.kept.lent[key] = cast(tensor, name, self.place, borrowed.target), borrowed
        self.borrowed.append(self.kept.lent[key][1])
        return self.kept.lent[key][0]

    def _lends(self) -> bool:
        if self.kept.lends is None:
            self.kept.lends = self.target is not None and has_weights(self.target)
        return self.kept.lends

    def _left_out(self) -> list[TensorRole]:
        return [role for role in self.spec.tensors if role.dtype is not None and role.name not in self.used]

    def _why(self, role: TensorRole) -> str | None:
        return why_left_out(canonical(role.name), role.role, role.reason)

    def _check_none_lost(self, wanted: Shapes) -> None:
        """Raises CannotRunError where a trained tensor would be read by nothing: the numbers would be others."""
        read = {info.name for info in self._sources(wanted)}
        lost = [role.name for role in self._left_out() if role.name not in read and self._is_lost(role, wanted)]
        if lost:
            what = f"no network here reads {', '.join(lost[:4])}"
            raise CannotRunError(what, self.spec.name, "a drafter with such parts cannot be run yet")

    def _is_lost(self, role: TensorRole, wanted: Shapes) -> bool:
        """A bias is lost where its weight is read, whatever knob would leave out both."""
        name = canonical(role.name)
        of_a_read_weight = name.endswith(".bias") and name.removesuffix("bias") + "weight" in wanted
        return name not in wanted and (of_a_read_weight or self._why(role) is None)

    def _sources(self, wanted: Shapes) -> Iterator[TensorInfo]:
        """The stored tensors that hold the wanted ones, fused ones among them."""
        stored = self.spec.clues.tensors
        for name in wanted:
            spelled = name if name in stored else next(other for other in stand_ins(name) if other in stored)
            yield stored[spelled]

    def _note_map(self, weights: dict[str, Tensor]) -> None:
        if self.wiring.vocab_map == "identity" or MAP not in weights:
            return
        ids, rows = torch.tensor(_target_rows(weights[MAP].cpu(), self.wiring)), weights[EMBEDDING].shape[0]
        outside = int(((ids < 0) | (ids >= rows)).sum())
        if outside:
            self.notes.append(f"{outside} of {len(ids)} draft ids lead outside the target's {rows}: d2t is no such map")


def _cut(fused: TensorInfo, name: str, spec: DrafterSpec) -> TensorInfo:
    """The rows of one projection in a fused one: q, k, v one after another, or gate and up. Raises CheckpointError
    where their sizes do not add up to the fused one's."""
    arch, size = spec.architecture, spec.architecture.head_dim or 0
    keys, inner = (arch.num_key_value_heads or 0) * size, arch.intermediate_size or 0
    sizes = {"q_proj": (arch.num_attention_heads or 0) * size, "k_proj": keys, "v_proj": keys}
    wanted = name.split(".")[-2]
    sizes = sizes if wanted in sizes else {"gate_proj": inner, "up_proj": inner}
    if not fused.shape or sum(sizes.values()) != fused.shape[0]:
        what = f"{fused.name} has the shape {list(fused.shape)} where its parts have {list(sizes.values())} rows"
        raise CheckpointError(what, f"{spec.name}/{fused.file}", "make config.json agree with the weights")
    start = sum(list(sizes.values())[: list(sizes).index(wanted)])
    return rows_of(fused, start, start + sizes[wanted])


def _target_rows(d2t: Tensor, wiring: Wiring) -> list[int]:
    rows = d2t.long() + (0 if wiring.vocab_map == "absolute" else torch.arange(len(d2t)))
    return [int(row) for row in rows]


def _check_map(spec: DrafterSpec, d2t: Tensor | None, rows: int) -> None:
    if d2t is not None and d2t.shape != (rows,):
        what = f"a head of {rows} rows under a vocabulary map of {list(d2t.shape)}"
        raise CannotRunError(what, spec.name, "pass a wiring whose head or vocab_map fits the other")
