"""Another program that runs beside this one, with all that it starts: its log is kept, and the whole tree ends.

POSIX only: the tree is a process group. What leaves the group (a daemon that starts a session of its own) is not
reached.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from drafter_audit.errors import CannotRunError

GRACE_S = 20.0
"""How long a tree may take to end when it is asked to; then it is killed."""

_TAIL_BYTES = 256 * 1024
_ERROR = re.compile(r"\b([\w.]*(?:Error|Exception|Interrupt|Killed)\b.*)")
_ELSEWHERE = ("root cause", "See stack trace")
"""Words of a line that only says that the error stands further up."""


@dataclass(frozen=True)
class Tree:
    """A running program. What it said since it was started stands in `log`, behind `start` bytes of earlier runs."""

    process: subprocess.Popen[bytes]
    log: Path
    start: int

    @property
    def code(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs."""
        return self.process.poll()

    def last_error(self) -> str:
        """The last line of the log that names an error, else the last line."""
        with self.log.open("rb") as file:
            file.seek(max(self.start, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
            lines = [line.strip() for line in file.read().decode("utf-8", "replace").splitlines() if line.strip()]
        told = [found[1] for line in lines if (found := _ERROR.search(line)) and not _points_elsewhere(line)]
        return next(iter(told[-1:] or lines[-1:]), "it said nothing")

    def stop(self, grace_s: float = GRACE_S) -> None:
        """Asks every process of the tree to end, and kills those that do not within `grace_s`."""
        self._signal(signal.SIGTERM)
        until = time.monotonic() + grace_s
        while self._is_there() and time.monotonic() < until:
            time.sleep(0.05)
        self._signal(signal.SIGKILL)
        self.process.wait()

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, number)

    def _is_there(self) -> bool:
        self.process.poll()  # reaps it: a zombie would count as there
        try:
            os.killpg(self.process.pid, 0)
        except (ProcessLookupError, PermissionError):
            return False
        return True


@contextmanager
def started(command: Sequence[str], log: Path, environment: Mapping[str, str]) -> Iterator[Tree]:
    """Runs `command` in a process group of its own while the body runs; then nothing of it is left.

    `environment` is added to ours. Both outputs go to the end of `log`. Its standard input is a pipe of which nothing
    comes and which closes when this process ends, however it ends: by that a program can tell. Raises CannotRunError
    where it cannot be started.
    """
    with log.open("ab") as out:
        try:
            process = subprocess.Popen(
                [*command],
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**os.environ, **environment},
                start_new_session=True,
            )
        except OSError as error:
            what = f"it cannot be started: {error.strerror or error}"
            raise CannotRunError(what, command[0], "name a program that runs here") from error
        tree = Tree(process, log, out.seek(0, os.SEEK_END))
    try:
        yield tree
    finally:
        with suppress(OSError):
            process.stdin.close()  # type: ignore[union-attr]
        tree.stop()


def _points_elsewhere(line: str) -> bool:
    return any(words in line for words in _ELSEWHERE)
