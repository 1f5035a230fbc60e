"""What a finding's code means: one entry for each, beside the rule that yields it. docs/findings.md is made of them."""

from __future__ import annotations

from dataclasses import dataclass

from drafter_audit.audit.finding import Severity


@dataclass(frozen=True)
class Code:
    """A stable code with the severities it comes in and the words of its row in docs/findings.md.

    `silent` says why nobody notices without being told, `evidence` what proves it, `fix` what mends it, `source` where
    it went wrong in public, or where the rule was read.
    """

    name: str
    severities: tuple[Severity, ...]
    what: str
    silent: str
    evidence: str
    fix: str
    source: str
