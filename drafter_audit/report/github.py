"""What a runner of GitHub Actions shows of `check`: annotations, the job summary, and the step's outputs.

Runners take every line that begins with `::`, or holds `##[`, for a command. So commands are stopped, by a token that
nobody can guess, before anything is shown that a checkpoint may have written, and what is said after is escaped.
https://docs.github.com/actions/reference/workflows-and-actions/workflow-commands
"""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from drafter_audit.check.row import Result, Row
from drafter_audit.errors import AuditError, ProjectFileError, UsageError, escape
from drafter_audit.report.check_view import rows_table, verdict_of
from drafter_audit.report.document import Document
from drafter_audit.report.lines import bar_line, error_line, key_line
from drafter_audit.report.render import markdown_text, render

MOST_SHOWN = 10
"""Annotations of one level that GitHub shows of a step; it drops the others and does not say so."""

_LONGEST_REASON = 1000  # characters of a cell in the summary, which may be 1 MiB in all
_LARGEST_SUMMARY = 1_000_000  # bytes


@dataclass(frozen=True)
class Annotation:
    """`file` is from the workspace, None where it lies outside; `line` from 1."""

    level: Literal["error", "warning"]
    title: str
    message: str
    file: str | None = None
    line: int | None = None

    @property
    def command(self) -> str:
        told = {"file": self.file, "line": self.line, "title": self.title}
        said = ",".join(f"{name}={_property(str(value))}" for name, value in told.items() if value is not None)
        return f"::{self.level} {said}::{_data(self.message)}"


@dataclass(frozen=True)
class Runner:
    """The runner that this process is a step of: its files, its workspace, and the token that stops commands."""

    output: Path
    summary: Path
    workspace: Path
    token: str

    @classmethod
    def here(cls) -> Runner:
        """Raises UsageError where there is none."""
        files = [os.environ.get(name) for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")]
        if not all(files):
            what = "GITHUB_OUTPUT and GITHUB_STEP_SUMMARY are not set, so this is no step of GitHub Actions"
            raise UsageError(what, "--github", "leave it out")
        output, summary = (Path(str(file)) for file in files)
        return cls(output, summary, Path(os.environ.get("GITHUB_WORKSPACE", ".")).resolve(), secrets.token_hex(16))

    def begin(self) -> None:
        """From here on nothing that is shown is a command. The step is failed until it says otherwise."""
        _say(f"::stop-commands::{self.token}")
        self._set({"accept-len": "", "verdict": "error", "passed": "false"})

    def end(self, result: Result, places: Mapping[str, Path]) -> None:
        """`places` are where drafters lie, by name. Raises AuditError for a file that cannot be written."""
        self._set(outputs(result))
        _append(self.summary, summary(result))
        self._annotate(shown(annotated(result, places, self.workspace)))

    def fail(self, error: AuditError) -> None:
        """The check itself could not be made, as for an error in a project file, whose line is told."""
        _append(self.summary, f"## ERROR\n\n{markdown_text(str(error))}\n")
        file, line = None, None
        if isinstance(error, ProjectFileError) and (text := _text(Path(error.file))) is not None:
            file = _within(Path(error.file), self.workspace)
            line = None if file is None else error_line(text, error.what, error.place)
        self._annotate([Annotation("error", "drafter-audit: error", str(error), file, line)])

    def _annotate(self, told: Sequence[Annotation]) -> None:
        _say(f"::{self.token}::")
        for each in told:
            _say(each.command)

    def _set(self, told: Mapping[str, str]) -> None:
        """All values are words or numbers of our own, on one line each."""
        _append(self.output, "".join(f"{name}={value}\n" for name, value in told.items()))


def outputs(result: Result) -> dict[str, str]:
    """`accept-len` is the least that was measured of any drafter, empty where none was."""
    measured = [row.observed for row in result.rows if row.key == "min_accept_len" and row.observed is not None]
    passed = "true" if result.outcome == "pass" else "false"
    return {"accept-len": f"{min(measured):.4f}" if measured else "", "verdict": result.outcome, "passed": passed}


def summary(result: Result) -> str:
    """Markdown, the verdict first."""
    verdict = f"## {markdown_text(verdict_of(result))}\n\n"
    table = rows_table(tuple(map(_shortened, result.rows)))
    text = render(Document((table,), table), "markdown")
    if len(text.encode()) > _LARGEST_SUMMARY:
        return f"{verdict}The table is too large for a job summary: the log of this step has it.\n"
    return f"{verdict}{text}"


def _shortened(row: Row) -> Row:
    """Its reason as one that is read."""
    rest = len(row.reason) - _LONGEST_REASON
    return row if rest <= 0 else replace(row, reason=f"{row.reason[:_LONGEST_REASON]}... and {rest} characters more")


def annotated(result: Result, places: Mapping[str, Path], workspace: Path) -> Iterator[Annotation]:
    """One for each row that did not pass, and of lint one for each finding, on the line of the config at fault."""
    config = None if result.config is None else Path(result.config)
    for row in result.rows:
        if row.outcome == "pass":
            continue
        found = list(_at_fault(row, places.get(row.drafter), workspace))
        yield from found or [_of(row, row.reason, *_bar(row, config, workspace))]


def _at_fault(row: Row, place: Path | None, workspace: Path) -> Iterator[Annotation]:
    """Lines of the drafter's own config.json."""
    file = None if place is None else (place if place.is_dir() else place.parent) / "config.json"
    text, name = _text(file), None if file is None else _within(file, workspace)
    if text is None or name is None:
        return
    for finding in row.details.get("findings", ()):
        where = finding["where"]
        if where["file"] == "config.json":
            yield _of(row, f"{finding['code']}: {finding['what']}", name, key_line(text, _keys(where["key"])))
        else:
            yield _of(row, f"{finding['code']}: {finding['what']}", name, 1)
    fix = (row.details.get("wiring") or row.details).get("fix_keys", ())
    lines = {key_line(text, _keys(key)) for key in fix}
    yield from (_of(row, row.reason, name, line) for line in sorted(lines - {1} or lines))  # 1: of a key to be added


def _keys(key: str | None) -> list[str]:
    return key.split(".") if key else []


def _bar(row: Row, config: Path | None, workspace: Path) -> tuple[str | None, int | None]:
    """The line of the project file that asks for it."""
    text, name = _text(config), None if config is None else _within(config, workspace)
    if text is None or name is None:
        return None, None
    return name, bar_line(text, row.drafter, row.key) or 1


def _of(row: Row, message: str, file: str | None, line: int | None) -> Annotation:
    level: Literal["error", "warning"] = "error" if row.outcome == "fail" else "warning"
    title = f"drafter-audit: {row.check}" + ("" if level == "error" else " not measured")
    return Annotation(level, title, f"{row.drafter}: {message}", file, line)


def shown(told: Iterator[Annotation]) -> list[Annotation]:
    """As many as GitHub shows, the last of which says how many there are besides."""
    every, kept = list(told), []
    for level in ("error", "warning"):
        these = [each for each in every if each.level == level]
        kept += these[:MOST_SHOWN]
        if (rest := len(these) - MOST_SHOWN) > 0:
            more = f"and {rest + 1} more, which the job summary has"
            kept[-1] = replace(kept[-1], message=more, title="drafter-audit", file=None, line=None)
    return kept


def _within(file: Path, workspace: Path) -> str | None:
    """From the workspace, as annotations name files."""
    real = file.resolve()
    return real.relative_to(workspace).as_posix() if real.is_relative_to(workspace) else None


def _text(file: Path | None) -> str | None:
    if file is None:
        return None
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


def _append(file: Path, text: str) -> None:
    try:
        with file.open("a", encoding="utf-8") as opened:
            opened.write(text)
    except OSError as error:
        raise AuditError(f"cannot write: {error.strerror}", str(file), "make room on the runner") from error


def _say(command: str) -> None:
    """On stderr, as all talk is. The result that stdout holds by then was flushed by the sink."""
    sys.stderr.write(f"{command}\n")
    sys.stderr.flush()


def _data(text: str) -> str:
    """A command's message: control characters shown, and what the runner would decode encoded."""
    return escape(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
