"""A server in processes of its own: started, waited for, and stopped with all that it started, whatever happens."""

from __future__ import annotations

import ctypes
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from drafter_audit.errors import ServerError, UsageError

if TYPE_CHECKING:
    import psutil

GRACE_S = 20.0
"""How long a server may take to end by itself, before it is killed."""

LATER_S = 1.0
"""How long what it started may outlive it."""

MARK = "DRAFTER_AUDIT_SERVER"
"""A variable that every process of a server carries, whoever its parent is by now."""

_LONGEST_POLL_S = 1.0
_TAIL = 65_536  # bytes of a log that are searched for the reason of a death
_REASON = re.compile(r"\b\w*(?:Error|Exception)\b|\berror\b|out of memory|Killed|Aborted|Segmentation", re.IGNORECASE)
_DIE_WITH_PARENT = 1  # Linux: PR_SET_PDEATHSIG

Watch = Callable[[float, float, str], None]
"""Takes the seconds waited, the limit, and the last line of the log."""


@dataclass(frozen=True)
class Running:
    """A process that was started; `log` takes all that it writes."""

    process: subprocess.Popen[bytes]
    log: Path
    mark: str

    def death(self) -> str | None:
        """Why it ended, with the last error in its log; None while it runs."""
        code = self.process.poll()
        if code is None:
            return None
        how = f"was killed by {_signal_name(-code)}" if code < 0 else f"ended with exit code {code}"
        reason = last_error(self.log)
        return f"the server {how}{': ' if reason else ''}{reason}"


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
    return port


@contextmanager
def running(command: Sequence[str], environment: Mapping[str, str], log: Path) -> Iterator[Running]:
    """Starts `command` and stops it at the end, on an error, ^C and SIGTERM too. Raises UsageError for a program that
    cannot be started or a log that cannot be written."""
    mark = f"{os.getpid()}-{time.time_ns()}"
    with _signals_as_interrupts(), _written(log) as out:
        try:
            process = subprocess.Popen(
                command,
                env={**environment, MARK: mark},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_die_with_parent if sys.platform == "linux" else None,
            )
        except OSError as error:
            what = f"it cannot be started: {error.strerror}"
            raise UsageError(what, command[0], "name the Python of the engine's environment") from error
        server = Running(process, log, mark)
        try:
            yield server
        finally:
            stop(server)


def wait_until_healthy(server: Running, is_healthy: Callable[[], bool], limit_s: float, watch: Watch) -> float:
    """Seconds until it answers. Raises ServerError where it ends first, or the limit passes."""
    begun = time.monotonic()
    while not is_healthy():
        waited, death = time.monotonic() - begun, server.death()
        if death is not None:
            raise ServerError(death, str(server.log), "read the log")
        if waited > limit_s:
            what = f"the server is not healthy after {limit_s:.0f} s; its last line: {last_line(server.log)}"
            raise ServerError(what, str(server.log), "read the log, or raise --start-timeout")
        watch(waited, limit_s, last_line(server.log))
        time.sleep(min(_LONGEST_POLL_S, 0.02 + waited / 20))
    return time.monotonic() - begun


def stop(server: Running) -> None:
    """Ends all of its processes: asked first, killed when their time is over, or at once on ^C. None are left."""
    try:
        if _family(server):
            _signal([server.process.pid], signal.SIGTERM)
            _wait(lambda: server.process.poll() is not None, GRACE_S)
            _wait(lambda: not _family(server), LATER_S)
    finally:
        while left := _family(server):
            _signal([each.pid for each in left], signal.SIGKILL)
            _wait(lambda: not _family(server), 1.0)
        server.process.wait()


def last_error(log: Path) -> str:
    """The last line that names an error, else the last line at all."""
    lines = _lines(log)
    return next((line for line in reversed(lines) if _REASON.search(line)), lines[-1] if lines else "")


def last_line(log: Path) -> str:
    lines = _lines(log)
    return lines[-1] if lines else ""


def _lines(log: Path) -> list[str]:
    with suppress(OSError), log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _TAIL))
        return [line.strip() for line in file.read().decode("utf-8", "replace").splitlines() if line.strip()]
    return []


def _wait(over: Callable[[], bool], seconds: float) -> None:
    until = time.monotonic() + seconds
    while not over() and time.monotonic() < until:
        time.sleep(0.05)


def _family(server: Running) -> list[psutil.Process]:
    """Every process of it that runs: in its session, under it, or with its mark. An engine's workers may leave the
    session, outlive their parent, or write over their environment, but not all three at once."""
    import psutil

    server.process.poll()  # else it would stay as a zombie
    below: set[int] = set()
    with suppress(psutil.Error):
        below = {child.pid for child in psutil.Process(server.process.pid).children(recursive=True)}
    return [each for each in psutil.process_iter() if _belongs(each, server, below)]


def _belongs(process: psutil.Process, server: Running, below: set[int]) -> bool:
    import psutil

    try:
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        of_session = os.getsid(process.pid) == server.process.pid
        return of_session or process.pid in below or process.environ().get(MARK) == server.mark
    except (psutil.Error, OSError):
        return False  # gone meanwhile, or another user's


def _signal(pids: Sequence[int], number: int) -> None:
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _signal_name(number: int) -> str:
    with suppress(ValueError):
        return signal.Signals(number).name
    return f"signal {number}"


def _die_with_parent() -> None:
    """In the new process: SIGTERM when this one is killed so that it can stop nothing any more."""
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGTERM)


@contextmanager
def _signals_as_interrupts() -> Iterator[None]:
    """SIGTERM and SIGHUP unwind as ^C does, so that the server is stopped."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    kept = {}
    with suppress(ValueError):  # not the main thread: whoever started it has the signals
        kept = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)


@contextmanager
def _written(log: Path) -> Iterator[int]:
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    except OSError as error:
        raise UsageError(f"no log can be written: {error.strerror}", str(log), "name another folder") from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)
