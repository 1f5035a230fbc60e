"""The rules that need a drafter's own files and published facts alone. Each takes a DrafterSpec and yields findings."""

from __future__ import annotations

from collections.abc import Callable

from drafter_audit.audit.finding import Finding, Findings
from drafter_audit.audit.rules import contents, layer_ids, settings, shapes
from drafter_audit.drafter.spec import DrafterSpec

_RULES: tuple[Callable[[DrafterSpec], Findings], ...] = (
    settings.kind,
    shapes.config_against_tensors,
    shapes.tensors_against_each_other,
    shapes.fc_width,
    layer_ids.layer_ids,
    settings.norms,
    contents.without_weights,
    contents.unknown_tensors,
    contents.missing,
    contents.leftovers,
    contents.packed,
    settings.dtype,
    settings.rope,
    settings.target,
    settings.facts,
)


def find(spec: DrafterSpec) -> tuple[Finding, ...]:
    """Every finding, errors first, in the order of the rules within one severity."""
    order = {"error": 0, "warning": 1, "info": 2}
    found = [finding for rule in _RULES for finding in rule(spec)]
    return tuple(sorted(found, key=lambda finding: order[finding.severity]))
