"""What follows from a finding, and is left out beside it: one fault is told once, by its cause.

A consequence that is graver than its cause stays: leaving it out must not turn a failure into a pass.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from drafter_audit.audit.finding import Finding


class _Follows(NamedTuple):
    """`code`, at `key` (None: any), says nothing new beside one of `causes`; `same_key`: beside one at its own key.
    `harmless`: the cause may also be the milder one, which proves that nothing is wrong."""

    code: str
    causes: frozenset[str]
    key: str | None = None
    same_key: bool = False
    harmless: bool = False

    def holds(self, finding: Finding, others: Iterable[Finding]) -> bool:
        named = finding.code == self.code and self.key in (None, finding.key)
        return named and any(
            other.code in self.causes
            and (self.harmless or other.as_grave_as(finding))
            and (not self.same_key or other.key == finding.key)
            for other in others
        )


_FOLLOWS = (
    # Rows of a head cannot be compared, or lie outside, by a map that is wrong.
    _Follows("EVIDENCE-NONE", frozenset({"D2T-LENGTH", "D2T-MISSING", "D2T-DTYPE"}), key="lm_head.weight"),
    _Follows("VOCAB-MISMATCH", frozenset({"D2T-RANGE", "D2T-ABS"}), key="lm_head.weight"),
    # A table is of a wrong shape, or the target another one.
    _Follows("EVIDENCE-NONE", frozenset({"TENSOR-SHAPE"}), same_key=True),
    _Follows("EVIDENCE-NONE", frozenset({"TABLE-WIDTH", "KIND-UNKNOWN"})),
    _Follows("TABLE-WIDTH", frozenset({"FC-WIDTH"})),
    _Follows("TABLE-ROWS", frozenset({"VOCAB-MISMATCH"}), same_key=True, harmless=True),
    # The values of a table say it more plainly than rows beside the target's, or the other way round.
    _Follows("VALUES-NONFINITE", frozenset({"ROWS-NONFINITE"}), same_key=True),
    _Follows("EMB-UNRELATED", frozenset({"VALUES-BLANK", "EMB-ZERO"})),
    # A config's own value is wrong, and so is all that is reckoned with it.
    _Follows("SHAPE-MISMATCH", frozenset({"VOCAB-CONFIG"}), same_key=True),
    _Follows("HEAD-DIM-TARGET", frozenset({"SHAPE-MISMATCH"}), same_key=True),
    _Follows("ROPE-DIFF", frozenset({"ROPE-UNSUPPORTED"})),
)


def without_consequences(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """`findings` without those that only repeat what another says the cause of."""
    all_of_them = tuple(findings)
    return tuple(one for one in all_of_them if not any(rule.holds(one, all_of_them) for rule in _FOLLOWS))
