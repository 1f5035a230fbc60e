"""One statement of the audit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Severity = Literal["error", "warning", "info"]

SEVERITIES: tuple[Severity, ...] = ("error", "warning", "info")
"""The gravest first."""


@dataclass(frozen=True)
class Finding:
    """What was found, where, on what evidence, what follows from it, and the edit that mends it.

    `fix_set` are the keys of `file` to set, None where no edit of a config mends it.
    """

    code: str
    severity: Severity
    what: str
    consequence: str
    key: str | None = None
    file: str = "config.json"
    evidence: Mapping[str, Any] = field(default_factory=dict)
    fix_set: Mapping[str, Any] | None = None

    def as_grave_as(self, other: Finding) -> bool:
        return SEVERITIES.index(self.severity) <= SEVERITIES.index(other.severity)

    def to_dict(self) -> dict[str, Any]:
        return {
            "code": self.code,
            "severity": self.severity,
            "what": self.what,
            "where": {"file": self.file, "key": self.key},
            "evidence": dict(self.evidence),
            "consequence": self.consequence,
            "fix": None if self.fix_set is None else {"file": self.file, "set": dict(self.fix_set)},
        }


Findings = Iterator[Finding]
