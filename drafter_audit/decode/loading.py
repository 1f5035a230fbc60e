"""A drafter made ready for one target, recorded or loaded: what files leave open is taken from there."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from drafter_audit.decode.fit import informed
from drafter_audit.drafter.open import open_drafter
from drafter_audit.drafter.spec import DrafterSpec
from drafter_audit.drafter.wiring import Wiring, declared_wiring
from drafter_audit.errors import CannotRunError
from drafter_audit.model.borrow import lender
from drafter_audit.model.drafter import Drafter
from drafter_audit.model.load import load_drafter
from drafter_audit.model.needs import EMBEDDING, check_runnable
from drafter_audit.model.target.model import TargetModel
from drafter_audit.model.target.sizes import TargetSizes
from drafter_audit.recording.manifest import Manifest


@dataclass(frozen=True)
class Planned:
    """A drafter whose weights are not read yet. `lender` names the target that it borrows tensors from, None where its
    files lead there or it borrows none."""

    spec: DrafterSpec
    wiring: Wiring
    lender: str | None

    def load(self, dtype: str) -> Drafter:
        """On the GPU where there is one. Raises what `load_drafter` raises."""
        device = "cuda" if torch.cuda.is_available() else "cpu"
        ref = self.spec.ref
        return load_drafter(ref, wiring=self.wiring, target=self.lender, dtype=dtype, device=device)


def replay_dtype(by: Manifest | TargetModel) -> str:
    """In which a drafter is replayed where nothing is said: the target's, on a CPU float32."""
    return by.dtype if torch.cuda.is_available() else "float32"


def planned(ref: str, by: Manifest | TargetModel | TargetSizes, target: str | None = None) -> Planned:
    """The drafter `ref` for the target `by`, which may be to be loaded yet; `target` is what the user calls it. Raises
    CannotRunError for what is no drafter that runs, and what opening a reference raises."""
    opened = open_drafter(ref, target=target, level=None if target is None else "target_config")
    spec = informed(opened, by)
    check_runnable(spec)
    wiring = declared_wiring(spec)
    if wiring is None:
        raise CannotRunError(f"no wiring is known for kind {spec.kind.name}", spec.name, "name an EAGLE drafter")
    return Planned(spec, wiring, _lender(opened, wiring, by, target))


def _lender(
    spec: DrafterSpec, wiring: Wiring, by: Manifest | TargetModel | TargetSizes, target: str | None
) -> str | None:
    """A loaded target lends what engines take from it; a recorded one may be gone, and is asked only if need be."""
    if target is not None:
        return target
    if not isinstance(by, Manifest):
        return by.ref
    stored = EMBEDDING in spec.clues.tensors
    borrows = (wiring.embedding == "target" and not stored) or wiring.head in ("target", "target_rows")
    return by.target if borrows and lender(spec, None) is None else None
