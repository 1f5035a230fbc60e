"""The rules that need a drafter's own files and published facts alone. Each takes a DrafterSpec and yields findings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from types import ModuleType

from drafter_audit.audit.code import Code
from drafter_audit.audit.consequences import without_consequences
from drafter_audit.audit.finding import SEVERITIES, Finding, Findings
from drafter_audit.audit.rules import (
    contents,
    engines,
    evidence,
    exports,
    facts,
    files,
    heads,
    index,
    kind,
    layer_ids,
    loading,
    packed,
    pair,
    positions,
    reach,
    settings,
    shapes,
    taps,
    target_tables,
    targets,
    values,
    vocabulary_map,
)
from drafter_audit.drafter.spec import DrafterSpec
from drafter_audit.engines.base import Served

Rule = Callable[[DrafterSpec], Findings]

# Every module with rules, in the order of docs/findings.md; each has its codes at its head.
MODULES: tuple[ModuleType, ...] = (
    kind,
    targets,
    target_tables,
    pair,
    layer_ids,
    taps,
    shapes,
    contents,
    heads,
    settings,
    positions,
    reach,
    exports,
    vocabulary_map,
    values,
    evidence,
    loading,
    engines,
    packed,
    index,
    files,
    facts,
)

_CONTENTS: tuple[Rule, ...] = (
    kind.kind,
    shapes.config_against_tensors,
    shapes.tensors_against_each_other,
    shapes.fc_width,
    exports.skipped_fc,
    shapes.vocabularies,
    contents.without_weights,
    index.index_against_headers,
    files.pickled,
    files.ignored,
    contents.unknown_tensors,
    contents.missing,
    heads.loans,
    heads.map_elsewhere,
    contents.second_copies,
    contents.leftovers,
    packed.packed,
    packed.declared_only,
    evidence.evidence,
)
_WIRING: tuple[Rule, ...] = (
    layer_ids.layer_ids,
    layer_ids.aux_count,
    taps.embedding_tap,
    taps.last_layer,
    settings.norms,
    settings.both_norms,
    settings.residual,
    settings.biases,
    settings.fc_bias,
    settings.dtype,
    settings.rope,
    targets.target,
    targets.vocabulary,
    targets.target_heads,
    target_tables.target_tables,
    positions.rope_against_target,
    positions.rope_type,
    reach.max_positions,
    reach.windows,
    heads.tied,
    heads.vocabulary_in_config,
    heads.scale,
    pair.quantised,
    pair.tokenizers,
    exports.norm_output,
    exports.modelopt,
    exports.without_embedding,
    exports.promised,
    exports.detected,
    loading.class_name,
    loading.prefix,
    loading.deeper_layers,
    loading.null_keys,
    facts.record,
    facts.facts,
)
_VALUES: tuple[Rule, ...] = (vocabulary_map.vocabulary_map, values.values)


def codes() -> tuple[Code, ...]:
    """Every code that a finding may bear, by theme."""
    return tuple(code for module in MODULES for code in module.CODES)


def find(spec: DrafterSpec, served: Sequence[Served] = ()) -> tuple[Finding, ...]:
    """Every finding, those of the engines `served` too, errors first, in the order of the rules within one severity."""
    return _in_order((*_apply((*_CONTENTS, *_VALUES, *_WIRING), spec), *engines.engines(spec, served)))


def find_in_contents(spec: DrafterSpec) -> tuple[Finding, ...]:
    """The findings that bear on what is stored and how it is counted, errors first.

    Where the user named a target its vocabulary is among them: it bears on what the rows prove.
    """
    named = (targets.vocabulary,) if spec.target.said_by == "--target" else ()
    return _apply((*_CONTENTS, *named), spec)


def _apply(rules: tuple[Rule, ...], spec: DrafterSpec) -> tuple[Finding, ...]:
    return _in_order(finding for rule in rules for finding in rule(spec))


def _in_order(found: Iterable[Finding]) -> tuple[Finding, ...]:
    return tuple(sorted(without_consequences(found), key=lambda finding: SEVERITIES.index(finding.severity)))
