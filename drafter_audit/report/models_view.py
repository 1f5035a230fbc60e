"""The bundled records as a document."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from drafter_audit.facts.registry import Record
from drafter_audit.report.document import Document, Lines, Table
from drafter_audit.report.numbers import NOTHING, count, plain


def models_result(records: Sequence[Record]) -> dict[str, Any]:
    """`{"models": [...]}`, every fact with its source."""
    return {"models": [_to_dict(record) for record in records]}


def models_document(records: Sequence[Record], *, whole: bool) -> Document:
    """A line for each record, or all that one record holds."""
    table = _listing(records)
    blocks: tuple[Table | Lines, ...] = (table,) if not whole else tuple(_whole(records[0]))
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
        "accept_len": [row.to_dict() for row in record.accept_len],
        "config": dict(record.config),
        "sources": {name: {"source": p.source, "confidence": p.confidence} for name, p in record.provenance.items()},
    }  # fmt: skip


def _listing(records: Sequence[Record]) -> Table:
    rows = tuple(
        (record.name, record.role, record.repo, record.target or NOTHING,
         count(record.training.samples if record.training else None), _accept_len(record))
        for record in records
    )  # fmt: skip
    headers = ("name", "role", "repository", "target", "samples", "accept_len (author's)")
    return Table(headers, rows, None, frozenset({4}))


_SETTING = ("steps", "topk", "num_draft_tokens", "batch_size", "tokens_per_s", "plain_tokens_per_s")


def _csv(records: Sequence[Record]) -> Table:
    headers = ("name", "role", "repository", "target", "samples", "accept_len_low", "accept_len_high")
    return Table(headers, tuple(_csv_row(record) for record in records))


def _csv_row(record: Record) -> tuple[str, ...]:
    values = [row.value for row in record.accept_len if row.publisher == "author"]
    samples = record.training.samples if record.training else None
    facts = (
        record.name,
        record.role,
        record.repo,
        record.target,
        samples,
        min(values, default=None),
        max(values, default=None),
    )
    return tuple("" if fact is None else str(fact) for fact in facts)


def _accept_len(record: Record) -> str:
    values = [row.value for row in record.accept_len if row.publisher == "author"]
    return f"{min(values):.3f}–{max(values):.3f}" if values else NOTHING


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
    config = tuple((key, plain(value)) for key, value in record.config.items())
    yield Table(("key", "value"), config, "config.json, as seen")
    sources = tuple((name, p.confidence, p.source) for name, p in record.provenance.items())
    yield Table(("fact", "confidence", "source"), sources, "Sources")
