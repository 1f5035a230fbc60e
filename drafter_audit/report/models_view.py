"""The bundled records as a document."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from drafter_audit.facts.registry import Record
from drafter_audit.report.document import Document, Lines, Table
from drafter_audit.report.numbers import NOTHING, count, plain

_OTHERS = " *"  # behind a range that is not the author's


def models_result(records: Sequence[Record]) -> dict[str, Any]:
    """`{"models": [...]}`, every fact with its source."""
    return {"models": [_to_dict(record) for record in records]}


def models_document(records: Sequence[Record], *, whole: bool) -> Document:
    """A line for each record, drafters apart from targets, or all that one record holds."""
    blocks = tuple(_whole(records[0]) if whole else _listings(records))
    return Document(blocks, _csv(records))


def _to_dict(record: Record) -> dict[str, Any]:
    training = record.training
    return {
        "name": record.name,
        "repo": record.repo,
        "role": record.role,
        "license": record.license,
        "target": record.target,
        "training": None if training is None else
            {"dataset": training.dataset, "samples": training.samples, "source": training.source},
        "framework": record.framework,
        "published_parameters": None if record.published_parameters is None else
            {"count": record.published_parameters.count, "written": record.published_parameters.written},
        "accept_len": [row.to_dict() for row in record.accept_len],
        "config": None if record.config_origin is None else dict(record.config),
        "config_origin": record.config_origin,
        "config_complete": record.config_complete,
        "hf_quant_config": None if record.hf_quant_config is None else dict(record.hf_quant_config),
        "sources": {name: {"source": p.source, "confidence": p.confidence} for name, p in record.provenance.items()},
    }  # fmt: skip


def _listings(records: Sequence[Record]) -> Iterator[Table | Lines]:
    """Drafters under their targets, then targets; the empty table of drafters where there is nothing to list."""
    drafters = [record for record in records if record.role == "drafter"]
    targets = [record for record in records if record.role == "target"]
    if drafters or not targets:
        headers = ("target and drafters", "samples", "accept_len", "config")
        rows = tuple(_under_targets(drafters))
        yield Table(headers, rows, _counted("drafter", drafters), frozenset({1}))
        if any(row[2].endswith(_OTHERS) for row in rows):
            yield Lines((f"{_OTHERS.strip()} not measured by the author: `drafter-audit models NAME` tells by whom.",))
    if targets:
        named = tuple((record.name, record.repo, _config_seen(record)) for record in targets)
        yield Table(("target", "repository", "config"), named, _counted("target", targets))


def _under_targets(drafters: Sequence[Record]) -> Iterator[tuple[str, str, str, str]]:
    """A row for each target, its drafters indented below; those whose target is no repository come last."""
    ordered = sorted(drafters, key=lambda record: (record.target is None, (record.target or "").lower(), record.name))
    for target, group in groupby(ordered, key=lambda record: record.target):
        yield target or "no target repository told", "", "", ""
        for record in group:
            yield f"  {record.name}", _samples(record), _accept_len(record), _config_seen(record)


def _counted(role: str, records: Sequence[Record]) -> str:
    return f"{len(records)} {role}{'s' * (len(records) != 1)}"


def _samples(record: Record) -> str:
    return count(record.training.samples if record.training else None)


def _config_seen(record: Record) -> str:
    """How much of config.json the record holds."""
    if record.config_origin is None:
        return NOTHING
    if record.config_origin == "trainer_repo":
        return "trainer's"
    return "whole" if record.config_complete else "in part"


_SETTING = ("steps", "topk", "num_draft_tokens", "batch_size", "tokens_per_s", "plain_tokens_per_s")


def _csv(records: Sequence[Record]) -> Table:
    headers = (
        "name", "role", "repository", "target", "samples", "accept_len_low", "accept_len_high", "accept_len_by",
        "config",
    )  # fmt: skip
    return Table(headers, tuple(_csv_row(record) for record in records))


def _csv_row(record: Record) -> tuple[str, ...]:
    publishers, values = _measured(record)
    samples = record.training.samples if record.training else None
    facts = (
        record.name,
        record.role,
        record.repo,
        record.target,
        samples,
        min(values, default=None),
        max(values, default=None),
        ", ".join(publishers) or None,
        None if record.config_origin is None else _config_seen(record),
    )
    return tuple("" if fact is None else str(fact) for fact in facts)


def _accept_len(record: Record) -> str:
    publishers, values = _measured(record)
    if not values:
        return NOTHING
    low, high = f"{min(values):.3f}", f"{max(values):.3f}"
    return (low if low == high else f"{low}–{high}") + ("" if publishers == ("author",) else _OTHERS)


def _measured(record: Record) -> tuple[tuple[str, ...], list[float]]:
    """The author's values where there are any, else everybody's, with who measured."""
    rows = [row for row in record.accept_len if row.publisher == "author"] or record.accept_len
    return tuple(sorted({row.publisher for row in rows})), [row.value for row in rows]


def _whole(record: Record) -> Iterator[Table | Lines]:
    training = record.training
    facts = [
        ("repository", record.repo),
        ("role", record.role),
        ("license", record.license),
        ("target", record.target),
        ("dataset", training.dataset if training else None),
        ("samples", count(training.samples) if training else None),
        ("framework", record.framework),
        ("parameters, as published", record.published_parameters.written if record.published_parameters else None),
    ]
    yield Table(("fact", "value"), tuple((name, str(value)) for name, value in facts if value), record.name)
    if record.accept_len:
        rows = tuple(
            (
                row.benchmark or NOTHING,
                f"{row.value:.3f}",
                *(plain(getattr(row, name)) for name in _SETTING),
                row.publisher,
            )
            for row in record.accept_len
        )
        headers = ("benchmark", "accept_len", "steps", "top-k", "draft tokens", "batch", "tok/s", "plain tok/s", "by")
        yield Table(headers, rows, "Published accept_len", frozenset(range(1, 8)))
    if record.config_origin is not None:
        config = tuple((key, plain(value)) for key, value in record.config.items())
        title = "config.json, as seen" if record.config_origin == "published" else "config in the trainer's repository"
        yield Table(("key", "value"), config, title)
    sources = tuple((name, p.confidence, p.source) for name, p in record.provenance.items())
    yield Table(("fact", "confidence", "source"), sources, "Sources")
