"""`lint`: what can be told of a drafter without running it, and what each engine would really do with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from drafter_audit.audit.finding import SEVERITIES, Finding, Severity
from drafter_audit.audit.not_checked import level_of, not_checked
from drafter_audit.audit.rules import find
from drafter_audit.drafter.boundaries import Reading
from drafter_audit.drafter.open import open_drafter, with_reading
from drafter_audit.drafter.spec import DrafterSpec
from drafter_audit.drafter.stored_values import with_values
from drafter_audit.drafter.target import Level
from drafter_audit.engines import engine_of, newest_releases, read_releases
from drafter_audit.engines.base import Served
from drafter_audit.engines.serving import serve


@dataclass(frozen=True)
class Lint:
    """The result of `lint` for one drafter: `level` is how much was known of the target, `not_checked` what that left
    open. `engines` are those asked for (`named`), else every one at its newest release; only those asked for yield
    findings."""

    spec: DrafterSpec
    level: Level
    not_checked: tuple[str, ...]
    findings: tuple[Finding, ...]
    engines: tuple[Served, ...]
    named: bool = False

    def reaches(self, severity: Severity) -> bool:
        """Whether any finding is as grave as `severity`, or graver."""
        failing = SEVERITIES[: SEVERITIES.index(severity) + 1]
        return any(finding.severity in failing for finding in self.findings)

    def to_dict(self) -> dict[str, Any]:
        spec = self.spec
        return {
            "ref": spec.ref,
            "name": spec.name,
            "source": spec.source,
            "revision": spec.revision,
            "kind": spec.kind.name,
            "dialect": spec.dialect.name,
            "target": spec.target.to_dict(),
            "aux_layers": spec.aux_layers.to_dict(),
            "level": self.level,
            "not_checked": list(self.not_checked),
            "findings": [finding.to_dict() for finding in self.findings],
            "engines": [served.to_dict() for served in self.engines],
        }


def lint(
    ref: str,
    *,
    target: str | None = None,
    engines: Sequence[str] = (),
    reading: Reading | None = None,
    level: Level = "target_rows",
) -> Lint:
    """Everything that is visible without running `ref`. `engines` are names such as "sglang@0.5.23", "vllm" or "all".

    `level` bounds what is read of the target; its headers and rows are read where `target` names it. Raises AuditError.
    """
    named = read_releases(engines)
    spec = with_values(open_drafter(ref, target=target, level=level))
    spec = spec if reading is None else with_reading(spec, reading)
    served = tuple(serve(engine_of(release), spec, release) for release in named or newest_releases())
    return Lint(
        spec=spec,
        level=level_of(spec),
        not_checked=not_checked(spec, served if named else (), level),
        findings=find(spec, served if named else ()),
        engines=served,
        named=bool(named),
    )
