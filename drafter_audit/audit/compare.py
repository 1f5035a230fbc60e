"""`compare`: drafters side by side, what differs, and what that comes to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from drafter_audit.audit.conclusion import Conclusion
from drafter_audit.audit.conclusions import conclude
from drafter_audit.audit.differences import Difference, differences
from drafter_audit.audit.finding import Finding
from drafter_audit.audit.rules import find
from drafter_audit.audit.weights import Watch, WeightsComparison
from drafter_audit.drafter.open import open_drafter
from drafter_audit.drafter.spec import DrafterSpec
from drafter_audit.errors import UsageError
from drafter_audit.sources.usage import HubUsage, hub_usage


@dataclass(frozen=True)
class Comparison:
    """Two or more drafters in the order given; the last one is "ours" in the conclusions.

    `weights` sets each earlier one's tensors against ours; None where that was not asked for.
    """

    drafters: tuple[DrafterSpec, ...]
    findings: tuple[tuple[Finding, ...], ...]
    differences: tuple[Difference, ...]
    conclusions: tuple[Conclusion, ...]
    hub: HubUsage
    weights: tuple[WeightsComparison, ...] | None = None

    @property
    def differs(self) -> bool:
        """Whether anything differs in meaning; a weight too, where weights were compared."""
        return bool(self.differences) or any(pair.differs for pair in self.weights or ())

    def to_dict(self) -> dict[str, Any]:
        weights = {} if self.weights is None else {"weights": [pair.to_dict() for pair in self.weights]}
        pairs = zip(self.drafters, self.findings, strict=True)
        return {
            "drafters": [spec.to_dict() | {"findings": [f.to_dict() for f in found]} for spec, found in pairs],
            "differences": [difference.to_dict() for difference in self.differences],
            "conclusions": [conclusion.to_dict() for conclusion in self.conclusions],
            **weights,
            "hub": self.hub.to_dict(),
        }


def compare(
    refs: Sequence[str], *, target: str | None = None, weights: bool = False, watch: Watch | None = None
) -> Comparison:
    """Compare two or more drafters by reference. `target` names one target for all of them. Raises AuditError.

    `weights` also reads every tensor that two of them share, in pieces, and says how each differs; `watch` is told of
    the bytes read.
    """
    if len(refs) < 2:
        raise UsageError("compare needs at least two references", f"{len(refs)} given", "name another drafter")
    before = hub_usage()
    specs = [open_drafter(ref, target=target) for ref in refs]
    compared = _compare_weights(specs, watch) if weights else None
    return Comparison(
        drafters=tuple(specs),
        findings=tuple(find(spec) for spec in specs),
        differences=differences(specs),
        conclusions=conclude(specs),
        hub=hub_usage().since(before),
        weights=compared,
    )


def _compare_weights(specs: Sequence[DrafterSpec], watch: Watch | None) -> tuple[WeightsComparison, ...]:
    # Imported here: it brings numpy.
    from drafter_audit.audit.tensors.compare import compare_weights

    return compare_weights(specs, watch)
