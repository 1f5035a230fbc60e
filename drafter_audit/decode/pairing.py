"""Whether a drafter and a target fit together, asked before any long work; and which states the one reads of the
other."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from drafter_audit.decode.fit import check_vocabulary
from drafter_audit.errors import CannotRunError
from drafter_audit.model.drafter import Drafter
from drafter_audit.model.target.model import TargetModel


@dataclass(frozen=True)
class Wanted:
    """The states that a drafter reads: of `boundaries`, distinct and ascending, slot s takes number `slots[s]`; those
    of the last boundary behind the target's final norm where `normed`."""

    boundaries: tuple[int, ...] = ()
    slots: tuple[int, ...] = ()
    normed: bool = False


def wanted_states(drafter: Drafter, target: TargetModel) -> Wanted:
    """What `drafter.wiring` reads of that target. Raises CannotRunError where the two do not fit."""
    read, name = drafter.wiring.boundaries, drafter.spec.name
    if read is None:
        raise CannotRunError("which states it reads is not known", name, "set its layer ids, or pass a wiring")
    if not all(0 <= boundary <= target.num_layers for boundary in read):
        what = f"boundaries {list(read)} of a target with {target.num_layers} layers"
        raise CannotRunError(what, name, f"pass its own target instead of {target.ref}, or mend its layer ids")
    if drafter.states_shape != (len(read), target.hidden_size):
        slots, width = drafter.states_shape
        what = f"{slots} states of width {width} where {target.ref} gives {len(read)} of width {target.hidden_size}"
        raise CannotRunError(what, name, "pass the target that it was trained for")
    _check_vocabulary(drafter, target)
    distinct = tuple(sorted(set(read)))
    normed = drafter.wiring.last_state == "post_norm" and target.num_layers in distinct
    return Wanted(distinct, tuple(distinct.index(boundary) for boundary in read), normed)


def _check_vocabulary(drafter: Drafter, target: TargetModel) -> None:
    """Every token of the target can be embedded, and every draft is one of them."""
    check_vocabulary(drafter.spec, target)
    drafts = drafter.target_ids(torch.arange(len(drafter.network.head.weight)))
    if int(drafts.min()) < 0 or int(drafts.max()) >= target.vocab_size:
        what = f"it drafts tokens {int(drafts.min())}..{int(drafts.max())}, the target has {target.vocab_size}"
        raise CannotRunError(what, drafter.spec.name, f"pass the target that it was trained for, not {target.ref}")
