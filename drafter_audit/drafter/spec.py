"""DrafterSpec: all that is known of a drafter without running it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from drafter_audit.checkpoint.table import TensorTable
from drafter_audit.drafter.architecture import Architecture, Sizes
from drafter_audit.drafter.boundaries import AuxLayers
from drafter_audit.drafter.clues import Clues
from drafter_audit.drafter.config_view import ConfigView
from drafter_audit.drafter.dialects import Dialect
from drafter_audit.drafter.evidence import Evidence, TargetTable
from drafter_audit.drafter.expected import config_implied
from drafter_audit.drafter.kinds import Kind
from drafter_audit.drafter.roles import STORED_ROLES, TensorRole
from drafter_audit.drafter.stored_values import StoredValues
from drafter_audit.drafter.target import Target
from drafter_audit.facts.records import AcceptLen, Throughput, Training
from drafter_audit.sources.base import Source


@dataclass(frozen=True)
class Parameters:
    """Counts of parameters, packed ones as many as they stand for. `stored` = trainable + frozen + unknown; buffers
    are never parameters.

    `borrowed` are parameters taken from the target at load, None where their size is not known. `config_implied` is
    what the shape alone implies for the same modules, None for kinds without a described layout. `counted_from` is
    "headers", "config" where no weights were read, or "nothing" where the config of that kind implies no count either.
    `elements` and `nbytes` are all that the headers list, buffers included; None where no headers were read.
    """

    trainable: int
    frozen: int
    unknown: int
    buffers: int
    borrowed: int | None
    missing: int
    config_implied: int | None
    counted_from: str
    elements: int | None = None
    nbytes: int | None = None

    @property
    def stored(self) -> int:
        return self.trainable + self.frozen + self.unknown

    @property
    def counted(self) -> bool:
        return self.counted_from != "nothing"

    def to_dict(self) -> dict[str, Any]:
        roles = {"trainable": self.trainable, "frozen": self.frozen, "buffer": self.buffers, "unknown": self.unknown,
                 "borrowed": self.borrowed, "missing": self.missing}  # fmt: skip
        return {
            "stored": self.stored,
            "trainable": self.trainable,
            "frozen": self.frozen,
            "unknown": self.unknown,
            "buffers": self.buffers,
            "borrowed": self.borrowed,
            "by_role": roles,
            "config_implied": self.config_implied,
            "counted_from": self.counted_from,
            "elements": self.elements,
            "bytes": self.nbytes,
        }


@dataclass(frozen=True)
class DrafterSpec:
    """A drafter, or any checkpoint: where it comes from, what it is, and what is said of it.

    `ref` is the reference as written, `source` its kind (hub, local, bundled), `revision` the resolved commit, `origin`
    the files themselves, for who reads weights. `sizes` are what config and tensors say apart, `architecture` what is
    believed.
    `facts_disagree` tells of origins that contradict each other on one fact, `facts_unread` of those not readable.
    `evidence` are comparisons with the target's rows, made where the user named the target; `evidence_none` says why
    there are none although it was named. `values` are what its own map, norms and sampled rows say: None where they
    were not read, which is done for `lint` alone. `target_tables` are the target's embedding and head by their
    headers, read where a level was asked for; `headers_none` says why there are none.
    """

    ref: str
    source: str
    name: str
    revision: str | None
    config: ConfigView
    clues: Clues
    kind: Kind
    dialect: Dialect
    sizes: Sizes
    architecture: Architecture
    aux_layers: AuxLayers
    tensors: tuple[TensorRole, ...]
    target: Target
    training: Training | None
    accept_len: tuple[AcceptLen, ...]
    throughput: Throughput | None
    origin: Source
    facts_disagree: tuple[str, ...] = ()
    facts_unread: tuple[str, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    evidence_none: str | None = None
    values: StoredValues | None = None
    target_tables: tuple[TargetTable, ...] = ()
    headers_none: str | None = None

    @property
    def table(self) -> TensorTable | None:
        return self.clues.table

    @property
    def is_drafter(self) -> bool:
        return self.kind.traits.is_drafter

    @cached_property
    def parameters(self) -> Parameters:
        def total(role: str) -> int:
            return sum(tensor.logical for tensor in self.tensors if tensor.role == role)

        embedding = [tensor.role for tensor in self.tensors if tensor.name.endswith("embed_tokens.weight")]
        stores_embedding = any(role in STORED_ROLES for role in embedding)
        knows_loans = any(tensor.role == "borrowed" for tensor in self.tensors)
        implied = config_implied(self.architecture, self.kind.name, with_embedding=stores_embedding)
        return Parameters(
            trainable=total("trainable"),
            frozen=total("frozen"),
            unknown=total("unknown"),
            buffers=total("buffer"),
            borrowed=total("borrowed") if implied is not None or knows_loans or not self.is_drafter else None,
            missing=total("missing"),
            config_implied=implied,
            counted_from="headers" if self.table is not None else "config" if self.tensors else "nothing",
            elements=None if self.table is None else sum(tensor.elements for tensor in self.table),
            nbytes=None if self.table is None else sum(tensor.nbytes for tensor in self.table),
        )

    def to_dict(self) -> dict[str, Any]:
        """The drafter's entry in `compare`'s JSON, but for its findings."""
        return {
            "ref": self.ref,
            "source": self.source,
            "name": self.name,
            "revision": self.revision,
            "kind": self.kind.name,
            "kind_reason": self.kind.reason,
            "dialect": self.dialect.name,
            "dialect_reason": self.dialect.reason,
            "target": self.target.to_dict(),
            "architecture": self.architecture.to_dict(),
            "aux_layers": self.aux_layers.to_dict(),
            "parameters": self.parameters.to_dict(),
            "evidence": [one.to_dict() for one in self.evidence],
            "training": _training(self.training),
            "accept_len": [row.to_dict() for row in self.accept_len],
            "throughput": None if self.throughput is None else self.throughput.to_dict(),
        }


def _training(training: Training | None) -> dict[str, Any]:
    if training is None:
        return {"dataset": None, "samples": None, "source": None}
    return {"dataset": training.dataset, "samples": training.samples, "source": training.source}
