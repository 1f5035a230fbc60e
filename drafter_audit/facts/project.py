"""drafter-audit.toml: what a team states of its own drafters, and the bounds that `check` holds them to.

It lies beside a checkpoint or in the working folder; `[tool.drafter-audit]` in pyproject.toml holds the same.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Self

from drafter_audit.errors import NotFoundError, ProjectFileError
from drafter_audit.facts import project_schema as schema
from drafter_audit.facts.project_schema import FailOn
from drafter_audit.facts.records import AcceptLen, Facts, Throughput, Training

FILE_NAME = "drafter-audit.toml"
_PYPROJECT = "pyproject.toml"
_TOOL = "drafter-audit"


@dataclass(frozen=True)
class CheckEntry:
    """`[check]`, the bars that `check` holds drafters to; None is what it does not say (docs/ci.md).

    `reference`, `prompts` and `baseline` are from anywhere, as a drafter's `reference` is. `min_accept_len` and
    `max_loss` in tokens per round, `min_per_position` shares of rounds, `time_limit` in seconds.
    """

    fail_on: FailOn | None = None
    engines: tuple[str, ...] | None = None
    reference: str | None = None
    same_architecture: bool | None = None
    same_parameters: bool | None = None
    wiring: bool | None = None
    min_accept_len: float | None = None
    min_per_position: tuple[float, ...] | None = None
    baseline: str | None = None
    max_loss: float | None = None
    steps: int | None = None
    live: bool | None = None
    prompts: str | None = None
    max_new_tokens: int | None = None
    time_limit: float | None = None

    def over(self, other: Self) -> Self:
        """What this says, else what `other` says."""
        told = {each.name: getattr(self, each.name) for each in fields(self)}
        return replace(other, **{name: value for name, value in told.items() if value is not None})


NO_BARS = CheckEntry()


@dataclass(frozen=True)
class DrafterEntry:
    """One `[[drafter]]`. `path` is as written, `reference` what it refers to from anywhere: a path that starts with
    a dot or exists beside the file is taken from the file's folder. Both are None in a file beside a checkpoint that
    leaves `path` out. `source` is the file.
    """

    path: str | None
    reference: str | None
    target: str | None
    recording: Path | None
    training: Training | None
    accept_len: tuple[AcceptLen, ...]
    throughput: Throughput | None
    source: str
    check: CheckEntry = NO_BARS

    def facts(self) -> Facts:
        """The entry as facts; every source is the file's path."""
        return Facts(
            target=self.target,
            target_source=self.source if self.target is not None else None,
            training=self.training,
            accept_len=self.accept_len,
            throughput=self.throughput,
        )

    def is_at(self, folder: Path) -> bool:
        """Whether the entry's path is `folder`."""
        return self.reference is not None and os.path.realpath(self.reference) == os.path.realpath(folder)


@dataclass(frozen=True)
class ProjectFile:
    """A project file that follows its schema."""

    path: Path
    drafters: tuple[DrafterEntry, ...]
    check: CheckEntry

    def entry(self, reference: str) -> DrafterEntry | None:
        """The entry about `reference`, written the same way or the same folder; None where there is none."""
        folder = Path(reference)
        found = (entry for entry in self.drafters if entry.path == reference or entry.is_at(folder))
        return next(found, None)


def working_folder() -> Path:
    """The current folder. Raises NotFoundError where it was removed under the shell that stands in it."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        raise NotFoundError("the current folder was removed", ".", "cd to a folder that exists") from None


def beside(folder: Path) -> DrafterEntry | None:
    """What the drafter-audit.toml inside a checkpoint's `folder` says of that checkpoint, else None.

    Raises ProjectFileError where the file does not follow its schema.
    """
    project = inside(folder)
    own = [entry for entry in project.drafters if entry.path is None or entry.is_at(folder)] if project else []
    if project and len(own) > 1:
        raise ProjectFileError("two [[drafter]] entries have the same path", str(project.path), "keep one")
    return own[0] if own else None


def inside(folder: Path) -> ProjectFile | None:
    """The drafter-audit.toml inside a checkpoint's `folder`. Raises ProjectFileError as `beside` does."""
    path = folder / FILE_NAME
    return _project(path, _read(path), may_omit_path=True) if path.is_file() else None


def in_folder(folder: Path) -> ProjectFile | None:
    """The project file of the working `folder`: its drafter-audit.toml, else `[tool.drafter-audit]` of its
    pyproject.toml, else None. Every entry has a path, unless the folder is itself a checkpoint.

    Raises ProjectFileError where the file does not follow its schema.
    """
    is_checkpoint = (folder / "config.json").is_file()
    path = folder / FILE_NAME
    if path.is_file():
        return _project(path, _read(path), may_omit_path=is_checkpoint)
    pyproject = folder / _PYPROJECT
    if not pyproject.is_file():
        return None
    tool = _read(pyproject, only_with=_TOOL).get("tool")
    if not isinstance(tool, dict) or _TOOL not in tool:
        return None
    return _project(pyproject, tool[_TOOL], may_omit_path=is_checkpoint)


def at(path: Path) -> ProjectFile:
    """The project file `path`, whatever its name; of a pyproject.toml, its `[tool.drafter-audit]`.

    Raises ProjectFileError for a file that is not there, has no such table or does not follow its schema.
    """
    raw: object = _read(path)
    if path.name == _PYPROJECT:
        tool = raw.get("tool") if isinstance(raw, dict) else None
        raw = tool.get(_TOOL) if isinstance(tool, dict) else None
        if raw is None:
            raise ProjectFileError(f"no [tool.{_TOOL}]", str(path), "add it, or name another file")
    return _project(path, raw, may_omit_path=(path.parent / "config.json").is_file())


def _read(path: Path, *, only_with: str = "") -> dict[str, Any]:
    """The file parsed; empty without parsing where it does not hold `only_with`: other people's files may be broken."""
    import tomllib

    try:
        text = path.read_text(encoding="utf-8-sig")
        return tomllib.loads(text) if only_with in text else {}
    except (OSError, UnicodeDecodeError) as error:
        raise ProjectFileError(f"cannot be read: {error}", str(path), "make it a readable UTF-8 file") from None
    except (ValueError, RecursionError) as error:
        raise ProjectFileError(f"not TOML: {error}", str(path), "mend the line") from None


def _project(path: Path, raw: object, *, may_omit_path: bool) -> ProjectFile:
    top = schema.checked(raw, path)
    tables = top.get("drafter", [])
    for number, table in enumerate(tables, 1):
        if "path" not in table and not (may_omit_path and len(tables) == 1):
            raise ProjectFileError(f"[[drafter]] {number} has no path", str(path), "say where the drafter is")
    return ProjectFile(path, tuple(_drafter(table, path) for table in tables), _check(top.get("check", {}), path))


def _drafter(raw: dict[str, Any], file: Path) -> DrafterEntry:
    source = str(file)
    recording = raw.get("recording")
    return DrafterEntry(
        path=raw.get("path"),
        reference=_reference(raw["path"], file) if "path" in raw else None,
        target=_reference(raw["target"], file) if "target" in raw else None,
        recording=_beside(recording, file) if recording is not None else None,
        training=_training(raw["training"], source) if "training" in raw else None,
        accept_len=tuple(_accept_len(row, source) for row in raw.get("accept_len", [])),
        throughput=_throughput(raw["throughput"], source) if "throughput" in raw else None,
        source=source,
        check=_check(raw.get("check", {}), file),
    )


def _check(raw: dict[str, Any], file: Path) -> CheckEntry:
    told: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in raw.items()}
    if "baseline" in raw:
        told["baseline"] = str(_beside(raw["baseline"], file))
    for key in ("reference", "prompts"):
        if key in raw:
            told[key] = _reference(raw[key], file)
    return CheckEntry(**told)


def _reference(path: str, file: Path) -> str:
    # "org/name" is a folder where there is one, as on the command line. A name too long for a file is none. A path
    # stays one where nothing is there: "./tiny" must become neither the bundled name nor a repository.
    local = _beside(path, file)
    return os.path.join(os.curdir, local) if path.startswith(".") or os.path.exists(local) else path


def _beside(path: str, file: Path) -> Path:
    """`path` from the folder of `file`; where nothing is there and `file` is a link, from the folder it leads to."""
    named, real = file.parent / path, Path(os.path.realpath(file)).parent / path
    return real if os.path.exists(real) and not os.path.exists(named) else named


def _training(raw: dict[str, Any], source: str) -> Training:
    samples = raw.get("samples")
    return Training(raw.get("dataset"), None if samples is None else schema.count(samples), source)


def _accept_len(raw: dict[str, Any], source: str) -> AcceptLen:
    told: dict[str, Any] = {key: raw.get(key) for key in schema.ACCEPT_LEN}
    return AcceptLen(**told, source=source)


def _throughput(raw: dict[str, Any], source: str) -> Throughput:
    return Throughput(raw["tokens_per_s"], raw.get("plain_tokens_per_s"), source)
