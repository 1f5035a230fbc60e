"""One case for each code: a drafter on which it fires, and a near one on which it does not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from drafter_audit.audit.lint import Lint

Build = Callable[[Path], Lint]


@dataclass(frozen=True)
class Case:
    """`fires` and `silent` write a checkpoint into an empty folder and lint it. The silent one should be as near to the
    other as it can be: the same drafter without the fault, or with what looks like it and is none."""

    code: str
    fires: Build
    silent: Build
