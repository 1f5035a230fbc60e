"""From a reference to a DrafterSpec: the one way in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from drafter_audit.checkpoint.config import read_config
from drafter_audit.checkpoint.load import load_table
from drafter_audit.drafter.architecture import read_architecture, read_sizes
from drafter_audit.drafter.background import Background, gather
from drafter_audit.drafter.boundaries import Reading, declared_slots, meant, read_as, read_aux_layers
from drafter_audit.drafter.clues import Clues
from drafter_audit.drafter.config_view import ConfigView
from drafter_audit.drafter.dialects import Dialect, detect_dialect
from drafter_audit.drafter.evidence import weigh
from drafter_audit.drafter.gguf_config import config_of_gguf
from drafter_audit.drafter.kinds import detect_kind
from drafter_audit.drafter.quantization import QUANT_FILE
from drafter_audit.drafter.roles import assign_roles
from drafter_audit.drafter.spec import DrafterSpec
from drafter_audit.drafter.target import Level, Target, implied_target, named_target
from drafter_audit.errors import UsageError
from drafter_audit.sources.base import Source
from drafter_audit.sources.open import open_source


def open_drafter(ref: str, *, target: str | None = None, level: Level | None = None) -> DrafterSpec:
    """Everything that files and published facts tell of `ref`; no weight is read unless `target` is given.

    `target` names the target model where no file does, and overrides what they say. Rows of its embedding and head are
    then compared with the drafter's, and overrule what is said of them by rule: at most 8 MB, with all that is read of
    the drafter's other files. `level` bounds what is read of the target, and has its headers kept. Raises AuditError.
    """
    source = open_source(ref)
    if target is None or level in ("drafter", "target_config"):
        return _read(source, target, unread=level == "drafter")
    from drafter_audit.drafter.prove import with_evidence, with_headers  # reads weights: only where it is asked for
    from drafter_audit.drafter.target_weights import CountedSource

    counted = CountedSource(source)
    spec = replace(_read(counted, target), origin=source)
    if level is None:
        return with_evidence(spec, counted, target)
    return with_headers(spec, counted, target, rows=level == "target_rows")


def with_config(spec: DrafterSpec, raw: Mapping[str, Any], *, told: bool = True) -> DrafterSpec:
    """`spec` with an edited config.json, all else as it was read.

    An edit changes neither what the drafter was trained on nor who wrote it: boundaries and dialect stay, unless `told`
    is false, where both are read from the new config alone. Raises ConfigError where it is unusable.
    """
    clues = replace(spec.clues, config=ConfigView(raw, spec.config.where))
    new = _describe(spec.origin, clues, _background(spec), spec.target, dialect=spec.dialect if told else None)
    known = spec.aux_layers.boundaries if told else None
    return replace(
        new,
        aux_layers=new.aux_layers if known is None else meant(new.aux_layers, known, "as before the edit"),
        tensors=weigh(new.tensors, spec.evidence),
        evidence=spec.evidence,
        evidence_none=spec.evidence_none,
        values=spec.values,
        target_tables=spec.target_tables,
        headers_none=spec.headers_none,
    )


def with_target(spec: DrafterSpec, target: Target) -> DrafterSpec:
    """`spec` read again for a target of which more is known than its files told."""
    return _describe(spec.origin, spec.clues, _background(spec), target)


def with_reading(spec: DrafterSpec, reading: Reading) -> DrafterSpec:
    """`spec` with its layer ids read as the user says. Raises UsageError where it declares none, or they do not fit."""
    try:
        return replace(spec, aux_layers=read_as(spec.aux_layers, reading, spec.target.num_layers))
    except UsageError as error:  # one of several drafters, maybe
        raise UsageError(error.what, f"{error.where} for {spec.ref}", error.mend) from error


def _background(spec: DrafterSpec) -> Background:
    return Background(
        target=spec.target.ref,
        target_said_by=spec.target.said_by,
        training=spec.training,
        accept_len=spec.accept_len,
        throughput=spec.throughput,
        disagree=spec.facts_disagree,
        unread=spec.facts_unread,
    )


def _read(source: Source, target: str | None, *, unread: bool = False) -> DrafterSpec:
    """What all files but the weights' rows tell; `unread`: nothing of the target's. Raises AuditError."""
    raw, where = _config(source), f"{source.name}: config.json"
    table = load_table(source)
    if table and table.gguf and not raw:
        raw, where = config_of_gguf(table.metadata), f"{source.name}/{table.files[0]}"
    config = ConfigView(raw, where)
    background = gather(source, config)
    clues = Clues(config, table, table.metadata if table else {}, _quant_file(source, config))
    known = _unread(background, target) if unread else _target(source, background, target)
    return _describe(source, clues, background, known)


def _config(source: Source) -> Mapping[str, Any]:
    """config.json; an empty one for a lone weight file, whose tensors still tell something (a GGUF's metadata too)."""
    files = source.files()
    converted = source.weights_file or any(name.lower().endswith(".gguf") for name in files)
    if converted and "config.json" not in files:
        return {}
    return read_config(source)


def _quant_file(source: Source, config: ConfigView) -> Mapping[str, Any]:
    """ModelOpt's hf_quant_config.json, where config.json does not say how the weights are quantised."""
    if config.has("quantization_config", "quantization") or QUANT_FILE not in source.files():
        return {}
    return read_config(source, QUANT_FILE)


def _target(source: Source, background: Background, named: str | None) -> Target:
    if named is not None:
        return named_target(named)
    return implied_target(background.target, background.target_said_by, ask_hub=source.kind == "hub")


def _unread(background: Background, named: str | None) -> Target:
    """The target by name alone."""
    said_by = background.target_said_by if named is None else "--target"
    return Target(ref=named or background.target, said_by=said_by)


def _describe(
    source: Source, clues: Clues, background: Background, target: Target, *, dialect: Dialect | None = None
) -> DrafterSpec:
    kind, dialect = detect_kind(clues), dialect or detect_dialect(clues)
    slots = declared_slots(clues.config, dialect.name)
    sizes = read_sizes(clues, kind=kind, target_hidden=target.hidden_size, slots=slots)
    arch = read_architecture(clues, sizes, dialect=dialect.name, kind=kind, target_hidden=target.hidden_size)
    aux = read_aux_layers(
        clues.config,
        kind=kind.name,
        dialect=dialect.name,
        num_layers=target.num_layers,
        slots=arch.num_aux_hidden_states,
    )
    if arch.num_aux_hidden_states is None and slots is not None:
        arch = replace(arch, num_aux_hidden_states=slots)
    return DrafterSpec(
        ref=source.ref,
        source=source.kind,
        name=source.name,
        revision=source.revision,
        config=clues.config,
        clues=clues,
        kind=kind,
        dialect=dialect,
        sizes=sizes,
        architecture=arch,
        aux_layers=aux,
        tensors=assign_roles(clues, arch, kind=kind, dialect=dialect.name),
        target=target,
        training=background.training,
        accept_len=background.accept_len,
        throughput=background.throughput,
        origin=source,
        facts_disagree=background.disagree,
        facts_unread=background.unread,
    )
