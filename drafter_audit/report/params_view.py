"""Parameter counts as a document."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from drafter_audit.audit.params import By, DrafterParams, Group, Params
from drafter_audit.drafter.roles import TensorRole
from drafter_audit.report.document import Document, Lines, Table
from drafter_audit.report.findings_view import findings_block
from drafter_audit.report.numbers import NOTHING, count, size


def params_document(params: Params, by: By) -> Document:
    """For each checkpoint a table by tensor, module or role, and its totals."""
    blocks = tuple(block for drafter in params.drafters for block in _blocks(drafter, by))
    found = findings_block((drafter.spec.ref, drafter.findings) for drafter in params.drafters)
    return Document((*blocks, *found), _csv(params, by))


def _blocks(drafter: DrafterParams, by: By) -> Iterator[Table | Lines]:
    spec = drafter.spec
    title = f"{spec.ref} ({spec.kind.name}, {spec.dialect.name}{f', {spec.revision[:12]}' if spec.revision else ''})"
    packed = any(tensor.packed for tensor in drafter.tensors)  # elements are shown where they may differ
    counts = ("elements", "parameters", "bytes") if packed else ("parameters", "bytes")
    if by == "tensor":
        rows = tuple(_tensor_row(tensor, packed) for tensor in drafter.tensors)
        numeric = frozenset(range(3, 3 + len(counts)))
        yield Table(("tensor", "shape", "dtype", *counts, "role", "reason"), rows, title, numeric)
    else:
        last = () if by == "role" else ("roles",)
        rows = tuple(
            (g.name, str(g.tensors), *_counts(g, packed), *(", ".join(g.roles) for _ in last))
            for g in drafter.groups(by)
        )
        yield Table((by, "tensors", *counts, *last), rows, title, frozenset(range(1, 2 + len(counts))))
    yield Lines(tuple(_totals(drafter)))


def _tensor_row(tensor: TensorRole, packed: bool) -> tuple[str, ...]:
    shape = f"[{', '.join(map(str, tensor.shape))}]"
    dtype = f"{tensor.dtype}: {tensor.packed}" if tensor.packed else tensor.dtype or NOTHING
    return (tensor.name, shape, dtype, *_counts(tensor, packed), tensor.role, tensor.reason)


def _counts(row: TensorRole | Group, packed: bool) -> tuple[str, ...]:
    """Stored elements where some are packed, parameters, bytes."""
    return (*([count(row.elements)] if packed else []), count(row.logical), size(row.nbytes) if row.nbytes else NOTHING)


def _totals(drafter: DrafterParams) -> Iterator[str]:
    parameters = drafter.spec.parameters
    by_role = {"trainable": parameters.trainable, "frozen": parameters.frozen, "of unknown role": parameters.unknown}
    parts = [f"{count(number)} {name}" for name, number in by_role.items() if number]
    where = "" if parameters.counted_from == "headers" else ", implied by config.json (no weights read)"
    yield f"stored: {count(parameters.stored)} parameters = {' + '.join(parts) or '0'}{where}"
    if parameters.borrowed:
        yield f"borrowed from the target at load: {count(parameters.borrowed)}"
    if parameters.missing:
        yield f"missing: {count(parameters.missing)}"
    if parameters.buffers:
        yield f"buffers, not parameters: {count(parameters.buffers)} elements"
    if parameters.elements is not None and any(tensor.packed for tensor in drafter.spec.tensors):
        in_all = f"{count(parameters.elements)} elements, buffers included, {size(parameters.nbytes or 0)}"
        yield f"in the weight files: {in_all}; weights are packed"
    if drafter.excluded:
        yield f"left out of the table by --exclude-frozen: {count(drafter.excluded)}"


def _csv(params: Params, by: By) -> Table:
    if by == "tensor":
        headers = ("ref", "name", "shape", "dtype", "elements", "logical", "bytes", "role", "reason")
        rows = tuple((d.spec.ref, *_csv_tensor(tensor)) for d in params.drafters for tensor in d.tensors)
        return Table(headers, rows)
    added_up = tuple(
        (d.spec.ref, g.name, str(g.tensors), str(g.elements), str(g.logical), str(g.nbytes), " ".join(g.roles))
        for d in params.drafters
        for g in d.groups(by)
    )
    return Table(("ref", by, "tensors", "elements", "logical", "bytes", "roles"), added_up)


def _csv_tensor(tensor: TensorRole) -> tuple[str, ...]:
    shape = "x".join(map(str, tensor.shape))
    numbers = (str(tensor.elements), str(tensor.logical), str(tensor.nbytes))
    return (tensor.name, shape, tensor.dtype or "", *numbers, tensor.role, tensor.reason)


def params_result(params: Params, by: By) -> dict[str, Any]:
    """The JSON of `params`; rows added up by module or role stand beside the tensors."""
    result = params.to_dict()
    if by != "tensor":
        for entry, drafter in zip(result["drafters"], params.drafters, strict=True):
            entry[f"{by}s"] = [group.to_dict() for group in drafter.groups(by)]
    return result
