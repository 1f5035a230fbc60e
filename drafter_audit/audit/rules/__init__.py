"""The rules that need a drafter's own files and published facts alone. Each takes a DrafterSpec and yields findings."""

from __future__ import annotations

from collections.abc import Callable

from drafter_audit.audit.finding import Finding, Findings
from drafter_audit.audit.rules import (
    contents,
    evidence,
    exports,
    files,
    heads,
    index,
    layer_ids,
    loading,
    pair,
    positions,
    reach,
    settings,
    shapes,
    taps,
)
from drafter_audit.drafter.spec import DrafterSpec

Rule = Callable[[DrafterSpec], Findings]

_CONTENTS: tuple[Rule, ...] = (
    settings.kind,
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
    contents.packed,
    evidence.evidence,
)
_WIRING: tuple[Rule, ...] = (
    layer_ids.layer_ids,
    layer_ids.aux_count,
    taps.embedding_tap,
    taps.last_layer,
    settings.norms,
    settings.biases,
    settings.fc_bias,
    settings.dtype,
    settings.rope,
    positions.rope_against_target,
    positions.rope_type,
    reach.max_positions,
    reach.windows,
    heads.tied,
    heads.vocabulary_in_config,
    heads.scale,
    settings.target,
    settings.vocabulary,
    settings.target_heads,
    pair.quantised,
    pair.tokenizers,
    exports.norm_output,
    exports.modelopt,
    exports.promised,
    exports.detected,
    loading.class_name,
    loading.prefix,
    loading.deeper_layers,
    loading.null_keys,
    settings.record,
    settings.facts,
)


def find(spec: DrafterSpec) -> tuple[Finding, ...]:
    """Every finding, errors first, in the order of the rules within one severity."""
    return _apply((*_CONTENTS, *_WIRING), spec)


def find_in_contents(spec: DrafterSpec) -> tuple[Finding, ...]:
    """The findings that bear on what is stored and how it is counted, errors first.

    Where the user named a target its vocabulary is among them: it bears on what the rows prove.
    """
    named = (settings.vocabulary,) if spec.target.said_by == "--target" else ()
    return _apply((*_CONTENTS, *named), spec)


def _apply(rules: tuple[Rule, ...], spec: DrafterSpec) -> tuple[Finding, ...]:
    order = {"error": 0, "warning": 1, "info": 2}
    found = [finding for rule in rules for finding in rule(spec)]
    return tuple(sorted(found, key=lambda finding: order[finding.severity]))
