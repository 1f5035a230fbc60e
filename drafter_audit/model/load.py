"""From a reference to a drafter that runs. Every tensor of the file is accounted for."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

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
    check_runnable,
    check_told,
    optional,
    tensors_needed,
    why_left_out,
)
from drafter_audit.model.network import build_network
from drafter_audit.model.reading import read_tensor
from drafter_audit.model.report import Borrowed, LoadReport

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16, "float64": torch.float64}


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
    place = _place(dtype, device)
    spec = open_drafter(ref, target=target)
    check_runnable(spec)
    wired = wiring or declared_wiring(spec)
    if wired is None:
        raise CannotRunError(f"no wiring is known for kind {spec.kind.name}", spec.name, "pass one")
    check_told(wired, spec.name)
    loading = _Loading(spec, wired, lender(spec, target), target is not None)
    stored = loading.read()
    weights = {name: _cast(stored.pop(name), place) for name in tuple(stored)}  # each is let go as it is cast
    report = loading.report(weights, dtype, device)
    d2t = weights.pop(MAP, None) if wired.vocab_map != "identity" else None
    network = build_network(weights, spec.architecture, spec.kind.name, wired)
    _check_map(spec, d2t, network.head.weight.shape[0])
    return Drafter(spec, wired, report, network, d2t, _states_shape(spec))


@dataclass
class _Loading:
    """One drafter's tensors while they are read. `target` is whom to borrow from, `named` whether the user said so."""

    spec: DrafterSpec
    wiring: Wiring
    target: str | None
    named: bool
    used: set[str] = field(default_factory=set)
    borrowed: list[Borrowed] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def read(self) -> dict[str, Tensor]:
        """Canonical name -> tensor as stored, of all that the network reads. Raises AuditError."""
        needed = tensors_needed(self.spec, self.wiring)
        tables = {EMBEDDING: needed.pop(EMBEDDING), HEAD: needed.pop(HEAD)}
        self._check_stored(needed | {name: tables[name] for name in self._own_tables()})
        weights = {name: self._stored(name, shape) for name, shape in needed.items()}
        weights |= {name: self._stored(name, None) for name in self.spec.clues.tensors if optional(name)}
        self._check_none_lost(needed)
        return weights | self._tables(tables, weights.get(MAP))

    def report(self, weights: dict[str, Tensor], dtype: str, device: str) -> LoadReport:
        table = self.spec.table or ()
        bad = {name: _non_finite(tensor) for name, tensor in weights.items()}
        return LoadReport(
            wiring=self.wiring,
            dtype=dtype,
            device=device,
            used=tuple(sorted(self.used)),
            ignored=tuple((role.name, self._why(role) or "") for role in self._left_out()),
            borrowed=tuple(self.borrowed),
            notes=tuple(self.notes),
            non_finite=tuple((name, count) for name, count in bad.items() if count),
            all_ones=tuple(name for name, tensor in weights.items() if is_norm(name) and bool((tensor == 1).all())),
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

    def _stored(self, name: str, shape: tuple[int, ...] | None) -> Tensor:
        """One tensor of the file, cut out of a fused one if need be. Raises CheckpointError for another shape."""
        stored = self.spec.clues.tensors
        spelled = name if name in stored else next(other for other in stand_ins(name) if other in stored)
        info = stored[spelled]
        self.used.add(info.name)
        tensor = read_tensor(self.spec.origin, info)
        if spelled != name and not is_norm(spelled):
            tensor = _cut(tensor, name, self.spec)
        if shape is not None and tuple(tensor.shape) != shape:
            what = f"{info.name} has the shape {list(info.shape)} where {list(shape)} is needed for {name}"
            raise CheckpointError(what, f"{self.spec.name}/{info.file}", "make config.json agree with the weights")
        return tensor

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
        if copy and not (self.named and self.target is not None and has_weights(self.target)):
            self.notes.append(f"{name} is the file's copy, taken for the target's: no target with weights was named")
            return self._stored(name, shape)
        tensor, borrowed = borrow(self.spec, name, self.target, rows)
        if tensor.dim() != 2 or tensor.shape[1] != shape[1]:
            what = f"the target's {borrowed.tensor} has the shape {list(tensor.shape)}, rows of {shape[1]} are needed"
            raise CheckpointError(what, borrowed.target, "name the drafter's own target")
        self.borrowed.append(borrowed)
        return tensor

    def _left_out(self) -> list[TensorRole]:
        return [role for role in self.spec.tensors if role.dtype is not None and role.name not in self.used]

    def _why(self, role: TensorRole) -> str | None:
        return why_left_out(canonical(role.name), role.role, role.reason)

    def _check_none_lost(self, needed: Shapes) -> None:
        """Raises CannotRunError where a trained tensor would be read by nothing: the numbers would be others."""
        lost = [
            role.name for role in self._left_out() if canonical(role.name) not in needed and self._why(role) is None
        ]
        if lost:
            what = f"no network here reads {', '.join(lost[:4])}"
            raise CannotRunError(what, self.spec.name, "a drafter with such parts cannot be run yet")


def _cut(fused: Tensor, name: str, spec: DrafterSpec) -> Tensor:
    """The rows of one projection in a fused one: q, k, v one after another, or gate and up."""
    arch, size = spec.architecture, spec.architecture.head_dim or 0
    queries, keys = (arch.num_attention_heads or 0) * size, (arch.num_key_value_heads or 0) * size
    inner = arch.intermediate_size or 0
    rows = {"q_proj": (0, queries), "k_proj": (queries, queries + keys), "v_proj": (queries + keys, queries + 2 * keys)}
    rows |= {"gate_proj": (0, inner), "up_proj": (inner, 2 * inner)}
    start, stop = rows[name.split(".")[-2]]
    return fused[start:stop]


def _target_rows(d2t: Tensor, wiring: Wiring) -> list[int]:
    rows = d2t.long() + (0 if wiring.vocab_map == "absolute" else torch.arange(len(d2t)))
    return [int(row) for row in rows]


def _place(dtype: str, device: str) -> tuple[torch.dtype, torch.device]:
    if dtype not in _DTYPES:
        raise UsageError(f"dtype {dtype!r}", "load_drafter", f"name one of {', '.join(_DTYPES)}")
    try:
        return _DTYPES[dtype], torch.empty(0, device=device).device
    except (RuntimeError, AssertionError) as error:  # torch without CUDA asserts
        raise UsageError(f"device {device!r} ({error})", "load_drafter", "name one that torch has here") from error


def _cast(tensor: Tensor, place: tuple[torch.dtype, torch.device]) -> Tensor:
    dtype, device = place
    return tensor.to(device, dtype) if tensor.is_floating_point() else tensor.to(device, torch.int64)


def _non_finite(tensor: Tensor) -> int:
    """How many values are no numbers or infinite. Extremes tell whether any are, without a copy of the tensor."""
    if not tensor.numel() or all(bool(end.isfinite()) for end in tensor.aminmax()):
        return 0
    return int((~tensor.isfinite()).sum())


def _check_map(spec: DrafterSpec, d2t: Tensor | None, rows: int) -> None:
    if d2t is not None and d2t.shape != (rows,):
        what = f"a head of {rows} rows under a vocabulary map of {list(d2t.shape)}"
        raise CannotRunError(what, spec.name, "pass a wiring whose head or vocab_map fits the other")


def _states_shape(spec: DrafterSpec) -> tuple[int, int]:
    arch = spec.architecture
    if not spec.kind.traits.fuses:
        return 1, arch.hidden_size or 0
    return arch.num_aux_hidden_states or 0, arch.target_hidden_size or 0
