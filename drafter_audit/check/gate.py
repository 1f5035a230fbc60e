"""The gate: a process that measures is watched, its rows gathered, and baselines stored at the end."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from drafter_audit.check.baseline import store
from drafter_audit.check.job import TIME_LIMIT, Job
from drafter_audit.check.measurement import Measurement
from drafter_audit.check.messages import heard
from drafter_audit.check.row import Result, Row
from drafter_audit.check.supervise import supervised
from drafter_audit.errors import AuditError


@dataclass
class _Gathered:
    """Rows as they are told, in the order in which they were expected."""

    rows: dict[tuple[str, str], Row]
    told: set[tuple[str, str]] = field(default_factory=set)
    measured: list[tuple[str, Measurement]] = field(default_factory=list)

    def hear(self, line: bytes) -> None:
        message = heard(line)
        if isinstance(message, Row):
            self.rows[message.name] = message
            self.told.add(message.name)
        else:
            self.measured.append(message)

    def untold(self, why: str) -> None:
        for name, row in self.rows.items():
            if name not in self.told:
                self.rows[name] = row.unmeasured(why)


def watched(jobs: Sequence[Job], command: Sequence[str], config: str | None) -> Result:
    """All rows of `jobs`, as `drafter-audit *command` measures them in a process of its own, within the time limit."""
    begun = time.monotonic()
    gathered = _Gathered({row.name: row for job in jobs for row in job.rows})
    why = supervised(command, _limit(jobs), gathered.hear)
    gathered.untold(f"not reached: {why}" if why else "not reached: the process that measures did not tell of it")
    rows = tuple(gathered.rows.values())
    return Result(_with_baselines(jobs, rows, gathered.measured), config, round(time.monotonic() - begun, 3))


def _limit(jobs: Sequence[Job]) -> float:
    """The longest that any drafter is given is that of all together."""
    return max(TIME_LIMIT if job.bars.time_limit is None else job.bars.time_limit for job in jobs)


def _with_baselines(
    jobs: Sequence[Job], rows: tuple[Row, ...], measured: Sequence[tuple[str, Measurement]]
) -> tuple[Row, ...]:
    """Stores what was measured; where that fails, the rows that said it was stored are unmeasured."""
    files = {job.name: job.baseline for job in jobs}
    for file in dict.fromkeys(files[name] for name, _ in measured):
        new = [each for each in measured if files[each[0]] == file]
        why = _not_stored(file, new)
        if why is not None:
            names = {name for name, _ in new}
            rows = tuple(
                replace(row, outcome="unmeasured", reason=f"not stored: {why}")
                if row.key == "max_loss" and row.drafter in names
                else row
                for row in rows
            )
    return rows


def _not_stored(file: Path, new: Sequence[tuple[str, Measurement]]) -> str | None:
    try:
        store(file, new)
    except AuditError as error:
        return str(error)
    return None
