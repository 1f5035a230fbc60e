"""What is checked of each drafter: where it lies, its target or recording, its bars, and the rows that come of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from drafter_audit.check.row import Row, Stage
from drafter_audit.engines import read_releases
from drafter_audit.errors import NotFoundError, UsageError
from drafter_audit.facts import project
from drafter_audit.facts.project import NO_BARS, CheckEntry, DrafterEntry, ProjectFile
from drafter_audit.facts.project_schema import FailOn
from drafter_audit.sources.reference import parse_reference

CHANCE: Final = 1.2
"""accept_len below which a drafter drafts hardly better than at random: the bar where none is set, and the least that
a baseline must have."""

BASELINE = "drafter-audit-baseline.json"
STEPS = 3
TIME_LIMIT = 3600.0


@dataclass(frozen=True)
class Job:
    """One drafter: `name` as the user calls it, `ref` from anywhere. `target` is None where its own files name it.

    `where` says who asks, for errors. `baseline` is the file; with `update` a new one is to be stored, near chance too
    with `force`.
    """

    name: str
    ref: str
    target: str | None
    recording: Path | None
    bars: CheckEntry
    where: str
    baseline: Path
    update: bool = False
    force: bool = False

    @property
    def steps(self) -> int:
        return self.bars.steps or STEPS

    @property
    def fail_on(self) -> FailOn:
        return self.bars.fail_on or "error"

    @property
    def live(self) -> bool:
        return bool(self.bars.live)

    @property
    def least(self) -> float:
        return CHANCE if self.bars.min_accept_len is None else self.bars.min_accept_len

    @property
    def rows(self) -> tuple[Row, ...]:
        """Every row that there will be, not yet measured, in the order in which they are."""
        return tuple(self._rows())

    def of(self, stage: Stage) -> tuple[Row, ...]:
        return tuple(row for row in self.rows if row.stage == stage)

    def _rows(self) -> Iterator[Row]:
        bars = self.bars
        yield Row(self.name, "lint", "static", "fail_on", self.fail_on)
        for key in ("same_architecture", "same_parameters"):
            if getattr(bars, key):
                yield Row(self.name, key, "static", key, bars.reference)
        if self.recording is not None or (self._measures and not self.live):
            yield from self._figures("replay", "")
        if bars.wiring:
            yield Row(self.name, "wiring", "replay", "wiring", "healthy")
        if self.live:
            yield from self._figures("live", "live ")

    @property
    def _measures(self) -> bool:
        bars = (self.bars.min_accept_len, self.bars.min_per_position, self.bars.max_loss)
        return self.update or any(bar is not None for bar in bars)

    def _figures(self, stage: Stage, prefix: str) -> Iterator[Row]:
        bars = self.bars
        yield Row(self.name, f"{prefix}accept_len", stage, "min_accept_len", self.least)
        for place, floor in enumerate(bars.min_per_position or (), 1):
            yield Row(self.name, f"{prefix}position {place}", stage, "min_per_position", floor)
        if bars.max_loss is not None or self.update:
            yield Row(self.name, f"{prefix}baseline", stage, "max_loss", bars.max_loss and -bars.max_loss)


@dataclass(frozen=True)
class Given:
    """What the command line says: `drafters` beside or in place of the file's, and what overrides it."""

    drafters: tuple[str, ...] = ()
    target: str | None = None
    recording: Path | None = None
    bars: CheckEntry = NO_BARS
    update: bool = False
    force: bool = False


def jobs_of(file: ProjectFile | None, given: Given) -> tuple[Job, ...]:
    """The drafters named, else the file's. Raises UsageError where there is none, for bars that contradict each other,
    and BadReferenceError."""
    entries = _named(file, given.drafters) if given.drafters else _listed(file)
    if not entries:
        raise UsageError("no drafter is named", "drafter-audit check", f"name one, or list it in {project.FILE_NAME}")
    top = file.check if file is not None else NO_BARS
    here = file.path.parent if file is not None else Path()
    jobs = tuple(_job(name, entry, given, top, here) for name, entry in entries)
    if given.force and not given.update:
        raise UsageError("--force without --update-baseline", "drafter-audit check", "give both, or neither")
    for job in jobs:
        _check_bars(job)
    if len({job.name for job in jobs}) < len(jobs):
        raise UsageError("a drafter is named twice", ", ".join(job.name for job in jobs), "name each once")
    return jobs


def _listed(file: ProjectFile | None) -> list[tuple[str, DrafterEntry | None]]:
    return [] if file is None else [(entry.path or ".", entry) for entry in file.drafters]


def _named(file: ProjectFile | None, drafters: Sequence[str]) -> list[tuple[str, DrafterEntry | None]]:
    return [(name, file.entry(name) if file is not None else None) for name in drafters]


def _job(name: str, entry: DrafterEntry | None, given: Given, top: CheckEntry, here: Path) -> Job:
    ref = entry.reference if entry is not None and entry.reference is not None else name
    own_recording, own_bars = _its_own(ref)
    bars = given.bars.over(entry.check.over(top) if entry is not None else top).over(own_bars)
    target = given.target or (entry.target if entry is not None else None)
    recording = given.recording or (entry.recording if entry is not None else None) or own_recording
    where = entry.source if entry is not None else name
    baseline = here / BASELINE if bars.baseline is None else Path(bars.baseline)
    return Job(name, ref, target, recording, bars, where, baseline, given.update, given.force)


def _its_own(ref: str) -> tuple[Path | None, CheckEntry]:
    """The recording and the bars of the file inside the drafter's folder: they hold where no other says anything."""
    try:
        source = parse_reference(ref)
    except NotFoundError:  # leaves this drafter's rows unmeasured, and hides no other's
        return None, NO_BARS
    folder = Path(source.name)
    file = project.inside(folder) if source.kind == "local" else None
    entry = project.beside(folder) if file is not None else None
    top = file.check if file is not None else NO_BARS
    return (None, top) if entry is None else (entry.recording, entry.check.over(top))


def _check_bars(job: Job) -> None:
    """Raises UsageError for bars that ask for what cannot be."""
    bars = job.bars
    try:
        read_releases(bars.engines or ())
    except UsageError as error:
        raise UsageError(error.what, f"{job.where}, engines", error.mend) from None
    if job.update and not job.baseline.absolute().parent.is_dir():
        raise UsageError("there is no such folder", str(job.baseline), "make it, or name another file: baseline")
    if (bars.same_architecture or bars.same_parameters) and bars.reference is None:
        raise UsageError("the same as which drafter is not said", job.where, "name it: reference, --reference")
    if bars.reference is not None and not (bars.same_architecture or bars.same_parameters):
        raise UsageError(
            "a reference, and nothing to compare", job.where, "ask for same_architecture or same_parameters"
        )
    if bars.baseline is not None and bars.max_loss is None and not job.update:
        raise UsageError(
            "a baseline, and no largest loss", job.where, "say how many tokens a round may be lost: max_loss"
        )
    if len(bars.min_per_position or ()) > job.steps:
        what = f"floors of {len(bars.min_per_position or ())} positions, and rounds of {job.steps} drafts"
        raise UsageError(what, job.where, "give as many as steps, or fewer")
    if job.least > job.steps + 1:
        what = f"min_accept_len {job.least:g}, and rounds of {job.steps} drafts emit {job.steps + 1} at most"
        raise UsageError(what, job.where, "lower it, or raise steps")
