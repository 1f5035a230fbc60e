"""Which boundaries a recording keeps: those that its drafters read, and those that they may be found to mean."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from drafter_audit.drafter.boundaries import default_boundaries
from drafter_audit.drafter.spec import DrafterSpec
from drafter_audit.errors import UsageError

ALL_TOKENS = 4096
"""States of the run of which all boundaries are kept where that is asked for: enough for a probe of each of them."""

_SHIFTS = (0, 1)
"""A layer id read as a boundary, and as the output of a layer."""


def boundaries_around(drafters: Sequence[DrafterSpec], num_layers: int) -> tuple[int, ...]:
    """Every boundary that an id of the drafters may mean, those beside it, and 0, within 0..`num_layers`, ascending.

    Without drafters, and for one that declares no ids, the set that every framework falls back to stands for them.
    """
    read = {boundary for spec in drafters for boundary in _readings(spec, num_layers)}
    read = read or set(default_boundaries(num_layers))
    around = {0, *(boundary + step for boundary in read for step in (-1, 0, 1))}
    return tuple(sorted(boundary for boundary in around if 0 <= boundary <= num_layers))


def boundaries_kept(said: str, drafters: Sequence[DrafterSpec], num_layers: int) -> tuple[int, ...]:
    """Those of every prompt, as `--boundaries` says: `default`, `all`, which adds to them, or a list such as `0,2,4`.

    Raises UsageError for what is no list, or one of another target.
    """
    if said in ("default", "all"):
        return boundaries_around(drafters, num_layers)
    kept = tuple(sorted(set(_listed(said))))
    if kept[0] < 0 or kept[-1] > num_layers:
        raise UsageError(f"a target of {num_layers} layers", f"--boundaries {said}", f"name some of 0..{num_layers}")
    return kept


def _listed(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError as error:
        mend = "write default, all, or numbers with commas between them, such as 0,2,4"
        raise UsageError("no list of boundaries", f"--boundaries {text!r}", mend) from error


def _readings(spec: DrafterSpec, num_layers: int) -> Iterator[int]:
    """Raises UsageError for what is no drafter."""
    if not spec.kind.traits.is_drafter:
        raise UsageError(f"it is of kind {spec.kind.name}, no drafter", spec.ref, "name drafters of the target")
    aux = spec.aux_layers
    ids = [each for listed in (aux.declared or (), *(ids for _, ids in aux.others)) for each in listed]
    yield from (each + shift for each in ids for shift in _SHIFTS)
    yield from aux.boundaries or ()
    if not spec.kind.traits.reads_aux:
        yield num_layers
    elif not ids:
        yield from default_boundaries(num_layers)
