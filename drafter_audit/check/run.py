"""All checks of all drafters, stage by stage, what costs least first. What one cannot measure hides no other."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from drafter_audit.check.baseline import compared_with, stored
from drafter_audit.check.job import Job
from drafter_audit.check.measured import held
from drafter_audit.check.measurement import Measurement, of_recording
from drafter_audit.check.row import Row
from drafter_audit.check.static import compared, linted
from drafter_audit.errors import AuditError, RankError, lacks_memory

if TYPE_CHECKING:
    from drafter_audit.decode.result import DecodeResult

Live = Callable[[Job], "tuple[DecodeResult, Measurement]"]
"""Decodes a drafter live, beside its target. Raises AuditError."""

Told = Row | tuple[str, Measurement]
"""A row, or what was measured of a drafter, by name, to be stored. A row that is told again replaces the first."""

_EXTRA = ("accelerate", "torch", "transformers")


@dataclass(frozen=True)
class Run:
    """Some drafters, and how one is decoded live."""

    jobs: Sequence[Job]
    live: Live

    def all(self) -> Iterator[Told]:
        """Every row, measured or not, and every measurement that is to be stored."""
        for job in self.jobs:
            yield from _static(job)
        for job in self.jobs:
            yield from _replay(job)
        yield from self.only_live()

    def only_live(self) -> Iterator[Told]:
        """What every rank takes part in: nothing more once another one is gone."""
        for job in (job for job in self.jobs if job.live):
            yield from attempted(job.of("live"), partial(self._live, job))

    def _live(self, job: Job) -> Iterator[Told]:
        yield from _figures(job, job.of("live"), *self.live(job))


def attempted(rows: Sequence[Row], make: Callable[[], Iterable[Told]]) -> Iterator[Told]:
    """What `make` gives. Where it fails, those of `rows` that it has not given are unmeasured, and say why.

    Raises RankError once that is told: the ranks no longer do the same.
    """
    given = set()
    try:
        for told in make():
            given.add(told.check if isinstance(told, Row) else None)
            yield told
    except Exception as error:
        why = _why(error)
        yield from (row.unmeasured(why) for row in rows if row.check not in given)
        if isinstance(error, RankError):
            raise


def _why(error: Exception) -> str:
    """One line. A fault of the program's own leaves its traceback on stderr too."""
    if isinstance(error, AuditError):
        return str(error)
    if isinstance(error, ModuleNotFoundError) and error.name in _EXTRA:
        return f"{error.name} is not installed, pip install 'drafter-audit[run]'"
    if lacks_memory(error):
        return "too little memory, this machine or its limit, give it more"
    if isinstance(error, OSError):
        return f"the machine failed: {error}"
    sys.excepthook(*sys.exc_info())
    return f"a fault of drafter-audit's own, {type(error).__name__}: {error}"


def _static(job: Job) -> Iterator[Told]:
    lint, *likenesses = job.of("static")
    yield from attempted([lint], lambda: [linted(job, lint)])
    yield from attempted(likenesses, lambda: compared(job, likenesses))


def _replay(job: Job) -> Iterator[Told]:
    figures = [row for row in job.of("replay") if row.check != "wiring"]
    wiring = [row for row in job.of("replay") if row.check == "wiring"]
    failed = []
    for told in attempted(figures, lambda: _replayed(job, figures)):
        yield told
        if isinstance(told, Row) and told.outcome == "fail" and told.observed is not None:
            failed.append(told)
    yield from attempted(wiring, lambda: _wired(job, wiring))
    if failed and not wiring:
        yield from _explained(job, failed)


def _replayed(job: Job, rows: Sequence[Row]) -> Iterator[Told]:
    from drafter_audit.check.replay import of_another, replayed

    if rows:
        result, manifest = replayed(job)
        doubt = of_another(job, manifest)
        for told in _figures(job, rows, result, of_recording(result, manifest)):
            yield replace(told, reason=f"{told.reason}; {doubt}") if isinstance(told, Row) and doubt else told


def _wired(job: Job, rows: Sequence[Row]) -> Iterator[Told]:
    from drafter_audit.check.wired import wired

    yield from (wired(job, row) for row in rows)


def _explained(job: Job, failed: Sequence[Row]) -> Iterator[Row]:
    """What falls short is told again with what the wiring check blames for it."""
    from drafter_audit.check.wired import wired

    blank = Row(job.name, "wiring", "replay", "wiring")
    for told in attempted([blank], lambda: [wired(job, blank)]):
        if isinstance(told, Row):
            for row in failed:
                details = {**row.details, "wiring": dict(told.details)}
                yield replace(row, reason=f"{row.reason}; wiring: {told.reason}", details=details)


def _figures(job: Job, rows: Sequence[Row], result: DecodeResult, measured: Measurement) -> Iterator[Told]:
    yield from held(result, [row for row in rows if row.key != "max_loss"])
    baselines = [row for row in rows if row.key == "max_loss"]
    if job.update:
        yield from stored(job, baselines, measured)
    else:
        yield from (compared_with(job, row, measured) for row in baselines)
