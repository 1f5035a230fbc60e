"""The cells of a sweep over servers, kept on disk as they end, so that a run that was killed goes on."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from drafter_audit.checkpoint.strict_json import strict_loads
from drafter_audit.errors import UsageError
from drafter_audit.recording.whole_file import write_text
from drafter_audit.secrets import without_secret_values

_PLAN = "sweep.json"
_SCHEMA_VERSION = 1  # of a cell's file: one that holds otherwise is another sweep's
_KEPT = ("status", "result", "reason", "start_s", "took_s")
_ANOTHER = "name another folder with --out, or give the command that began this one"

Status = Literal["done", "failed", "skipped"]


@dataclass(frozen=True)
class EnvSet:
    """A named set of environment variables that a server is started with."""

    name: str
    env: Mapping[str, str]


@dataclass(frozen=True)
class Cell:
    """One server: a set of variables and a step count, 0 for plain decoding."""

    env_set: EnvSet
    steps: int

    @property
    def name(self) -> str:
        return f"{self.env_set.name}-{self.steps if self.steps else 'plain'}"

    @property
    def words(self) -> str:
        shape = f"{self.steps} step{'' if self.steps == 1 else 's'}" if self.steps else "plain"
        return f"{self.env_set.name}, {shape}"


@dataclass(frozen=True)
class Outcome:
    """How a cell ended: `result` is the JSON of `bench` where it was measured, `reason` why it was not. `took_s` is
    all of it, `start_s` the loading."""

    cell: Cell
    status: Status
    result: Mapping[str, Any] | None = None
    reason: str | None = None
    start_s: float | None = None
    took_s: float | None = None

    def told(self, key: str) -> Any:  # noqa: ANN401 - a value of JSON
        return None if self.result is None else self.result.get(key)

    @property
    def tokens_per_s(self) -> float | None:
        value: float | None = self.told("tokens_per_s")
        return value

    @property
    def cycle_ms(self) -> float | None:
        cycle = self.told("cycle_s")
        return None if cycle is None else 1000 * cycle


def cells_of(env_sets: Sequence[EnvSet], steps: Sequence[int]) -> Iterator[Cell]:
    """Each set's baseline first: what follows is judged against it; then rising steps."""
    for env_set in env_sets:
        yield from (Cell(env_set, count) for count in (0, *steps))


@dataclass(frozen=True)
class Store:
    """A folder of finished cells, and of the servers' logs."""

    folder: Path

    @property
    def logs(self) -> Path:
        return self.folder / "logs"

    def begin(self, asked: Mapping[str, Any]) -> None:
        """Takes the folder for what is `asked`, or goes on with it. Raises UsageError where it holds another sweep."""
        plan = self.folder / _PLAN
        self._check_ours()
        try:
            self._cells.mkdir(parents=True, exist_ok=True)
            held = strict_loads(plan.read_bytes()) if plan.exists() else None
        except (OSError, ValueError, RecursionError) as error:
            raise UsageError(f"no folder of a sweep: {error}", str(self.folder), "name another with --out") from error
        wanted = json.loads(json.dumps({"schema_version": _SCHEMA_VERSION, **asked}))
        if held is None:
            write_text(plan, json.dumps(wanted, indent=1) + "\n")
        elif held != wanted:
            differ = [name for name in wanted if not isinstance(held, dict) or held.get(name) != wanted[name]]
            what = f"it holds a sweep that was asked otherwise ({', '.join(differ) or 'in more'})"
            raise UsageError(what, str(self.folder), _ANOTHER)

    def _check_ours(self) -> None:
        """Raises UsageError for a folder that holds other things and no sweep."""
        if not self.folder.is_dir() or (self.folder / _PLAN).exists():
            return
        others = sorted(path.name for path in self.folder.iterdir() if path.name != self._cells.name)
        if others:
            raise UsageError(f"it holds {others[0]!r} and no sweep", str(self.folder), "name a new or empty folder")

    def find(self, cell: Cell) -> Outcome | None:
        """What an earlier run measured; a cell that failed is tried again. Raises UsageError for a damaged file."""
        path = self._path(cell)
        if not path.exists():
            return None
        try:
            held = strict_loads(path.read_bytes())
            found = _checked(Outcome(cell, **{name: held[name] for name in _KEPT}))
            same = held["env"] == without_secret_values(cell.env_set.env)
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise UsageError("no cell of a sweep", str(path), "remove it: the cell is measured again") from error
        if not same:
            raise UsageError(f"{cell.env_set.name!r} was measured with other variables", str(path), _ANOTHER)
        return found if found.status == "done" else None

    def keep(self, outcome: Outcome) -> None:
        held = {
            "env": without_secret_values(outcome.cell.env_set.env),
            **{name: getattr(outcome, name) for name in _KEPT},
        }
        write_text(self._path(outcome.cell), json.dumps(held, indent=1) + "\n")

    @property
    def _cells(self) -> Path:
        return self.folder / "cells"

    def _path(self, cell: Cell) -> Path:
        return self._cells / f"{cell.name}.json"


def _checked(held: Outcome) -> Outcome:
    """Raises ValueError, KeyError or TypeError for what no cell ends as."""
    if held.status not in get_args(Status):
        raise ValueError(f"no status: {held.status!r}")
    if held.status == "done":
        result = dict(held.result or {})
        numbers = (held.took_s, *(result[name] for name in _COUNTED), *(result[name] or 0 for name in _MEASURED))
        if not all(isinstance(each, int | float) for each in numbers):
            raise ValueError("a figure that is no number")
    return held


_COUNTED = ("steps", "rounds", "tokens", "tokens_per_s")
_MEASURED = ("cycle_s", "accept_len")
"""Of a measured cell's result; the latter may be null."""
