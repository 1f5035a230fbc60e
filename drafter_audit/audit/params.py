"""`params`: every tensor of a checkpoint with its role, and the totals."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

from drafter_audit.audit.finding import Finding
from drafter_audit.audit.rules import find_in_contents
from drafter_audit.drafter.roles import TensorRole
from drafter_audit.drafter.spec import DrafterSpec
from drafter_audit.errors import CheckpointError

By = Literal["tensor", "module", "role"]


@dataclass(frozen=True)
class Group:
    """Tensors added up under one name: a module or a role."""

    name: str
    tensors: int
    elements: int
    logical: int
    nbytes: int
    roles: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "tensors": self.tensors,
            "elements": self.elements,
            "logical": self.logical,
            "bytes": self.nbytes,
            "roles": list(self.roles),
        }


@dataclass(frozen=True)
class DrafterParams:
    """One checkpoint's tensors; `excluded` counts the parameters of rows that were left out on request.

    `findings` are those that bear on what is stored.
    """

    spec: DrafterSpec
    tensors: tuple[TensorRole, ...]
    excluded: int
    findings: tuple[Finding, ...]

    def groups(self, by: By) -> tuple[Group, ...]:
        """The shown tensors, added up by module or role, in the order they first appear."""
        key = _module_of(self.spec) if by == "module" else _role_of
        members: dict[str, list[TensorRole]] = {}
        for tensor in self.tensors:
            members.setdefault(key(tensor), []).append(tensor)
        return tuple(_group(name, tensors) for name, tensors in members.items())

    def to_dict(self) -> dict[str, Any]:
        return {
            "ref": self.spec.ref,
            "name": self.spec.name,
            "source": self.spec.source,
            "revision": self.spec.revision,
            "kind": self.spec.kind.name,
            "dialect": self.spec.dialect.name,
            "parameters": self.spec.parameters.to_dict() | {"excluded": self.excluded},
            "tensors": [tensor.to_dict() for tensor in self.tensors],
            "evidence": [one.to_dict() for one in self.spec.evidence],
            "findings": [finding.to_dict() for finding in self.findings],
        }


@dataclass(frozen=True)
class Params:
    """The result of `params` for one or more checkpoints."""

    drafters: tuple[DrafterParams, ...]

    def to_dict(self) -> dict[str, Any]:
        return {"drafters": [drafter.to_dict() for drafter in self.drafters]}


def count_params(specs: Iterable[DrafterSpec], *, exclude_frozen: bool = False) -> Params:
    """Roles and totals of each checkpoint. `exclude_frozen` drops rows, never totals.

    Raises CheckpointError where there is nothing to count: a zero would read as a measurement.
    """
    return Params(tuple(_count(spec, exclude_frozen) for spec in specs))


def _count(spec: DrafterSpec, exclude_frozen: bool) -> DrafterParams:
    if not spec.parameters.counted:
        what = f"nothing to count: no weights, and a config.json of kind {spec.kind.name} implies no count"
        raise CheckpointError(what, spec.name, "name a checkpoint that has weights")
    kept = tuple(tensor for tensor in spec.tensors if not (exclude_frozen and tensor.role == "frozen"))
    everything = sum(tensor.logical for tensor in spec.tensors)
    excluded = everything - sum(tensor.logical for tensor in kept)
    return DrafterParams(spec, kept, excluded, find_in_contents(spec))


def _group(name: str, tensors: list[TensorRole]) -> Group:
    return Group(
        name=name,
        tensors=len(tensors),
        elements=sum(tensor.elements for tensor in tensors),
        logical=sum(tensor.logical for tensor in tensors),
        nbytes=sum(tensor.nbytes for tensor in tensors),
        roles=tuple(sorted({tensor.role for tensor in tensors})),
    )


def _role_of(tensor: TensorRole) -> str:
    return tensor.role


def _module_of(spec: DrafterSpec) -> Callable[[TensorRole], str]:
    """A module is a block of a layer (`midlayer.self_attn`), or a whole layer-less tensor (`fc`, `lm_head`).

    A language model's layers and experts are added up under one `*`: thousands of rows would say nothing.
    """

    def module(tensor: TensorRole) -> str:
        parts = tensor.name.split(".")
        if parts[-1] in {"weight", "bias"} or parts[-1].startswith("weight_"):
            parts = parts[:-1]
        block = parts[:-1] if len(parts) > 1 else parts
        return ".".join(block if spec.is_drafter else ["*" if part.isdigit() else part for part in block])

    return module
