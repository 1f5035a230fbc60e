"""What a drafter takes from its target: the embedding, the head or some of its rows; no more of it is read."""

from __future__ import annotations

from torch import Tensor

from drafter_audit.drafter.spec import DrafterSpec
from drafter_audit.drafter.target_weights import HEAD, CountedSource, Found, TargetWeights, counterpart
from drafter_audit.errors import CannotRunError, CheckpointError
from drafter_audit.model.reading import read_rows, read_tensor, rows_of
from drafter_audit.model.report import Borrowed
from drafter_audit.sources.base import Source
from drafter_audit.sources.names import is_weight_name
from drafter_audit.sources.open import open_source
from drafter_audit.sources.reference import at_hand


def has_weights(ref: str) -> bool:
    """Whether the target that `ref` names has weight files to lend from. Raises AuditError."""
    source = open_source(ref)
    return source.kind != "bundled" and any(map(is_weight_name, source.files()))


def lends_at_hand(ref: str) -> bool:
    """Whether the target that `ref` names has weight files that can be read without asking the Hub."""
    return at_hand(ref) and has_weights(ref)


def lender(spec: DrafterSpec, target: str | None) -> str | None:
    """The target to borrow from: the one named, else the one that the drafter's files name, where it may be asked.

    For a drafter that is not on the Hub, the Hub is asked only for what the user names.
    """
    implied = spec.target.ref
    if target is not None or implied is None:
        return target
    return implied if spec.source == "hub" or at_hand(implied) else None


def borrow(
    spec: DrafterSpec, name: str, target: str | None, shape: tuple[int, ...], rows: list[int] | None = None
) -> tuple[Tensor, Borrowed]:
    """The target's tensor for the drafter's `name`, as stored: `rows` of it, or what `shape` [rows, width] needs.

    Targets pad their tables: of a head the first rows are taken, an embedding is taken whole. Raises AuditError.
    """
    if target is None:
        mend = "name the target: load_drafter(..., target=...)"
        raise CannotRunError(f"{name} is to be the target's, and no target is at hand", spec.name, mend)
    found, source = _found(name, target)
    info = found.tensor
    enough = rows is not None or (len(info.shape) == 2 and info.shape[0] >= shape[0])
    if len(info.shape) != 2 or info.shape[1] != shape[1] or not enough:
        least = f"at least {shape[0]} rows of {shape[1]}" if rows is None else f"rows of {shape[1]}"
        what = f"the target's {info.name} has the shape {list(info.shape)}, {least} are needed"
        raise CheckpointError(what, target, "name the drafter's own target")
    if rows is not None:
        tensor = read_rows(source, info, rows)
    else:
        tensor = read_tensor(source, rows_of(info, 0, shape[0]) if name == HEAD else info)
    return tensor, Borrowed(name, info.name, target, tensor.shape[0])


def _found(name: str, target: str) -> tuple[Found, Source]:
    """The target's tensor and where it lies. Raises CannotRunError where its values cannot be had."""
    if not has_weights(target):
        raise CannotRunError(f"{name} is to be the target's, which has no weights", target, "name its repository")
    weights = TargetWeights(CountedSource(open_source(target)))
    found = counterpart(weights, name)
    if found is None:
        what = f"{name} is to be the target's, which stores none under a known name"
        raise CannotRunError(what, target, "store the drafter's own in its file")
    if found.packed is not None:
        mend = "name the target before quantisation"
        raise CannotRunError(f"{name} is to be the target's, and {found.packed}", target, mend)
    return found, weights.source
