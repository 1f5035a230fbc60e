"""The stored baseline: what a drafter measured when it was accepted, prompt by prompt, and what is held against it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from drafter_audit.check.job import CHANCE, Job
from drafter_audit.check.measured import against
from drafter_audit.check.measurement import Measurement
from drafter_audit.check.row import Outcome, Row
from drafter_audit.checkpoint.strict_json import strict_loads
from drafter_audit.errors import AuditError
from drafter_audit.measure.loops import why_not_measured

SCHEMA_VERSION = 1
_MEND = "restore it, or store it anew with --update-baseline"


def compared_with(job: Job, row: Row, measured: Measurement) -> Row:
    """accept_len less the baseline's, on the same prompts, against the loss that is allowed. Raises AuditError for a
    baseline that is missing, damaged, near chance, or not comparable: then the difference is named."""
    from drafter_audit.measure.bootstrap import accept_len_difference

    held, forced = _stored(job.baseline, job.name, measured.made.mode)
    figure = held.acceptance.accept_len
    if figure < CHANCE and not forced:
        raise AuditError(f"the baseline's accept_len {figure:.3f} is below {CHANCE}", str(job.baseline), _MEND)
    if apart := "; ".join(_apart(measured, held)):
        raise AuditError(f"not comparable with the baseline: {apart}", str(job.baseline), _MEND)
    found = accept_len_difference(held.acceptance, measured.acceptance)
    told = against(row, found.difference, found.interval, found.prompts)
    details = {"accept_len": measured.acceptance.accept_len, "baseline": figure, "versions": dict(held.versions)}
    reason = f"accept_len {measured.acceptance.accept_len:.3f}, {figure:.3f} in the baseline: {told.reason}"
    return replace(told, reason=reason, details=details)


def _apart(ours: Measurement, stored: Measurement) -> Iterator[str]:
    yield from ours.made.differences(stored.made)
    if {p.id for p in ours.prompts} != {p.id for p in stored.prompts}:
        yield "answers to other prompts"


def stored(job: Job, rows: Sequence[Row], measured: Measurement) -> Iterator[Row | tuple[str, Measurement]]:
    """The measurement, to be stored, where nothing speaks against it; the rows say what became of it."""
    figure, why = measured.acceptance.accept_len, _refused(measured, job.force)
    outcome: Outcome = "pass" if why is None else "fail"
    said = "stored as the new baseline" if why is None else f"not stored: {why}"
    yield from (replace(row, outcome=outcome, observed=figure, reason=said) for row in rows)
    if why is None:
        yield job.name, measured


def _refused(measured: Measurement, force: bool) -> str | None:
    figure = measured.acceptance.accept_len
    if (broken := why_not_measured(measured.prompts)) is not None:
        return broken
    if figure < CHANCE and not force:
        return f"accept_len {figure:.3f} is below {CHANCE}, and any drafter would pass against it: --force stores it"
    return None


def store(file: Path, new: Sequence[tuple[str, Measurement]]) -> None:
    """Adds or replaces what was measured of each drafter, by name and mode. Raises AuditError."""
    from drafter_audit.recording.whole_file import write_text

    drafters = dict(_read(file)["drafters"]) if file.exists() else {}
    for name, measured in new:
        figure = measured.acceptance.accept_len
        entry = measured.to_dict() | {"accept_len": figure, "forced": figure < CHANCE}
        drafters[name] = {**drafters.get(name, {}), measured.made.mode: entry}
    told = {"schema_version": SCHEMA_VERSION, "drafters": drafters}
    write_text(file, json.dumps(told, indent=1, allow_nan=False) + "\n")


def _stored(file: Path, drafter: str, mode: str) -> tuple[Measurement, bool]:
    stored = _read(file)["drafters"].get(drafter, {})
    if mode not in stored:
        raise AuditError(f"no {mode} baseline of {drafter}", str(file), "store it with --update-baseline")
    try:
        entry = stored[mode]
        measured = Measurement.from_dict(entry)
        told, claimed, forced = measured.acceptance.accept_len, entry["accept_len"], entry["forced"] is True
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise AuditError(f"damaged: {type(error).__name__} {error}", str(file), _MEND) from error
    if told != claimed:
        raise AuditError("damaged: accept_len is not that of its counts", str(file), _MEND)
    return measured, forced


def _read(file: Path) -> dict[str, Any]:
    try:
        raw = strict_loads(file.read_bytes())
    except FileNotFoundError:
        raise AuditError("no baseline is stored", str(file), "store one with --update-baseline") from None
    except (OSError, ValueError, RecursionError) as error:
        raise AuditError(f"cannot be read: {error}", str(file), _MEND) from error
    if not isinstance(raw, dict) or raw.get("schema_version") != SCHEMA_VERSION:
        raise AuditError("no baseline of this release", str(file), _MEND)
    drafters = raw.get("drafters")
    if not isinstance(drafters, dict) or not all(isinstance(each, dict) for each in drafters.values()):
        raise AuditError("damaged: no table of drafters", str(file), _MEND)
    return raw
