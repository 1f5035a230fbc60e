"""What no weight file holds, gathered for one checkpoint: drafter-audit.toml, config, model card, bundled records."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from drafter_audit.drafter.config_view import ConfigView
from drafter_audit.errors import AuditError
from drafter_audit.facts import project, registry
from drafter_audit.facts.records import AcceptLen, Facts, Throughput, Training
from drafter_audit.sources.base import Source

_CARD = "README.md"
_CARD_LIMIT = 2 * 1024 * 1024  # bytes; the Hub itself renders no longer ones


@dataclass(frozen=True)
class Background:
    """Merged facts: the first origin that speaks of a thing is believed, in the order toml, config, card, records."""

    target: str | None
    target_said_by: str | None
    training: Training | None
    accept_len: tuple[AcceptLen, ...]
    throughput: Throughput | None
    disagree: tuple[str, ...]
    unread: tuple[str, ...]


def gather(source: Source, config: ConfigView) -> Background:
    """All facts on one checkpoint, each with its source."""
    origins = [facts for facts in _origins(source, config) if facts is not None]
    target = next((facts for facts in origins if facts.target), Facts())
    return Background(
        target=target.target,
        target_said_by=target.target_source,
        training=_merge_training(origins),
        accept_len=_merge_accept_len(origins),
        throughput=next((facts.throughput for facts in origins if facts.throughput), None),
        disagree=tuple(_disagreements(origins)),
        unread=tuple(facts.unread for facts in origins if facts.unread),
    )


def _origins(source: Source, config: ConfigView) -> Iterator[Facts | None]:
    yield _from_project(source)
    yield _from_config(config)
    record = registry.find(source.name) if source.kind != "local" else None
    if source.kind != "bundled" and _CARD in source.files():
        yield _from_card(source)
    yield record.facts() if record else None


def _from_project(source: Source) -> Facts | None:
    """The toml beside the checkpoint, else the working folder's word on that reference, be it a path or a name."""
    entry = project.beside(Path(source.name)) if source.kind == "local" else None
    if entry is None and (working := project.in_folder(project.working_folder())):
        entry = working.entry(source.ref) or working.entry(source.name)
    return entry.facts() if entry else None


def _from_card(source: Source) -> Facts:
    from drafter_audit.facts.card import read_card  # many patterns to compile, for the drafters that have a card

    try:
        text = source.read(_CARD, limit=_CARD_LIMIT)
    except AuditError as error:  # what a card tells is welcome, what weights tell does not wait for it
        return Facts(unread=f"the model card could not be read: {error}")
    return read_card(text.decode("utf-8", "replace"))


def _from_config(config: ConfigView) -> Facts:
    """speculators names its verifier; ModelOpt and the others name no target."""
    verifier = ConfigView(config.section("speculators_config"), config.where).section("verifier")
    name = verifier.get("name_or_path")
    return Facts(target=name, target_source="config.json") if isinstance(name, str) and name else Facts()


def _merge_training(origins: list[Facts]) -> Training | None:
    """The first origin that counts samples, completed by the first that names the dataset."""
    told = [facts.training for facts in origins if facts.training]
    counted = next((training for training in told if training.samples is not None), None)
    named = next((training for training in told if training.dataset), None)
    if counted is None or named is None or counted.dataset:
        return counted or named
    return Training(named.dataset, counted.samples, f"{counted.source}; dataset: {named.source}")


def _merge_accept_len(origins: list[Facts]) -> tuple[AcceptLen, ...]:
    """The author's rows from the first origin that has any, then everybody else's."""
    authors = next((rows for facts in origins if (rows := _by(facts, author=True))), ())
    return authors + tuple(row for facts in origins for row in _by(facts, author=False))


def _by(facts: Facts, *, author: bool) -> tuple[AcceptLen, ...]:
    return tuple(row for row in facts.accept_len if (row.publisher == "author") is author)


def _disagreements(origins: list[Facts]) -> Iterator[str]:
    told = [facts.training for facts in origins if facts.training and facts.training.samples is not None]
    for other in told[1:]:
        if other.samples != told[0].samples:
            yield f"training samples: {told[0].samples:,} ({told[0].source}) against {other.samples:,} ({other.source})"
    targets = [facts for facts in origins if facts.target]
    for named in targets[1:]:
        if (named.target or "").lower() != (targets[0].target or "").lower():
            first = f"{targets[0].target} ({targets[0].target_source})"
            yield f"target: {first} against {named.target} ({named.target_source})"
