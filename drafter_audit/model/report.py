"""What became of each tensor when a drafter was loaded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from drafter_audit.drafter.wiring import Wiring


@dataclass(frozen=True)
class Borrowed:
    """A tensor taken from the target: the drafter's canonical `name`, the target's own `tensor`, `target` as it was
    named, and how many `rows` were taken."""

    name: str
    tensor: str
    target: str
    rows: int


@dataclass(frozen=True)
class LoadReport:
    """Every stored tensor is `used` or `ignored`, the latter with the reason; none that is needed is missing, or there
    would be no drafter.

    `notes` tell what stands for something else, as a stored copy for the target's embedding. `non_finite` are tensors
    that hold a NaN or an infinity once they are cast, with how many; `all_ones` norms whose weights are all one;
    `all_zero` weights that are nothing but zeros.
    `wiring` is the one that the drafter runs under, `dtype` the one it computes in, `stored_dtypes` those of the file.
    """

    wiring: Wiring
    dtype: str
    device: str
    used: tuple[str, ...]
    ignored: tuple[tuple[str, str], ...]
    borrowed: tuple[Borrowed, ...]
    notes: tuple[str, ...]
    non_finite: tuple[tuple[str, int], ...]
    all_ones: tuple[str, ...]
    all_zero: tuple[str, ...]
    stored_dtypes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        return {
            "wiring": self.wiring.to_dict(),
            "dtype": self.dtype,
            "device": self.device,
            "used": list(self.used),
            "ignored": [{"name": name, "reason": why} for name, why in self.ignored],
            "borrowed": [vars(one) for one in self.borrowed],
            "notes": list(self.notes),
            "non_finite": [{"name": name, "values": count} for name, count in self.non_finite],
            "all_ones": list(self.all_ones),
            "all_zero": list(self.all_zero),
            "stored_dtypes": list(self.stored_dtypes),
        }
