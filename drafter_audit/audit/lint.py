"""`lint`: what can be told of a drafter without running it, and what each engine would really do with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from drafter_audit.audit.finding import Finding
from drafter_audit.audit.rules import find
from drafter_audit.drafter.boundaries import Reading
from drafter_audit.drafter.open import open_drafter, with_reading
from drafter_audit.drafter.spec import DrafterSpec
from drafter_audit.drafter.stored_values import with_values
from drafter_audit.engines import engine_of, newest_releases, read_releases
from drafter_audit.engines.base import Served, serve


@dataclass(frozen=True)
class Lint:
    """The result of `lint` for one drafter: `level` is how much was known of the target, `not_checked` what that left
    open. `engines` are those asked for, else every one at its newest release; only those asked for yield findings."""

    spec: DrafterSpec
    level: str
    not_checked: tuple[str, ...]
    findings: tuple[Finding, ...]
    engines: tuple[Served, ...]

    def to_dict(self) -> dict[str, Any]:
        return {
            "ref": self.spec.ref,
            "level": self.level,
            "not_checked": list(self.not_checked),
            "findings": [finding.to_dict() for finding in self.findings],
            "engines": [served.to_dict() for served in self.engines],
        }


def lint(ref: str, *, target: str | None = None, engines: Sequence[str] = (), reading: Reading | None = None) -> Lint:
    """Everything that is visible without running `ref`. `engines` are names such as "sglang@0.5.23", "vllm" or "all".

    Raises AuditError.
    """
    releases = read_releases(engines) or newest_releases()
    spec = with_values(open_drafter(ref, target=target))
    spec = spec if reading is None else with_reading(spec, reading)
    served = tuple(serve(engine_of(release), spec, release) for release in releases)
    return Lint(spec, "drafter", (), find(spec), served)
