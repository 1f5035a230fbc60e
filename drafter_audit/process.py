"""An engine in processes of its own: started, waited for, and stopped with all that it started, whatever happens."""

from __future__ import annotations

import ctypes
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from drafter_audit.errors import UsageError

if TYPE_CHECKING:
    import psutil

GRACE_S = 20.0
"""How long a program may take to end by itself, before it is killed."""

LATER_S = 1.0
"""How long what it started may outlive it."""

MARK = "DRAFTER_AUDIT_STARTED"
"""A variable that every process of a program carries, whoever its parent is by now."""

_LONGEST_POLL_S = 1.0
_TAIL = 262_144  # bytes of a log that are searched for the reason of a death
_NAMED = re.compile(r"\b[\w.]*(?:Error|Exception|Interrupt)\b.*")
_REASON = re.compile(r"\berror\b|out of memory|Killed|Aborted|Segmentation", re.IGNORECASE)
_ELSEWHERE = ("root cause", "See stack trace")
"""Words of a line that only says that the error stands further up."""

_DIE_WITH_PARENT = 1  # Linux: PR_SET_PDEATHSIG
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

Watch = Callable[[float, float, str], None]
"""Takes the seconds waited, the limit, and the last line of the log."""


class EndedError(Exception):
    """A program ended before what was waited for; the text says how, as a predicate without its subject."""


class LateError(Exception):
    """The limit passed before what was waited for; the text is the last line that names an error, else the last."""


@dataclass(frozen=True)
class Running:
    """A program that was started; `log` takes all that it writes, behind `start` bytes of earlier runs. `came` are the
    signals that came to us meanwhile."""

    process: subprocess.Popen[bytes]
    log: Path
    start: int
    mark: str
    came: Sequence[int] = ()

    def death(self) -> str | None:
        """How it ended, with the last error in its log: "was killed by SIGKILL: ..."; None while it runs."""
        code = self.process.poll()
        if code is None:
            return None
        how = f"was killed by {_signal_name(-code)}" if code < 0 else f"ended with exit code {code}"
        reason = last_error(self.log, self.start)
        return f"{how}{': ' if reason else ''}{reason}"


def check_installed() -> None:
    """Raises ModuleNotFoundError without psutil: what is started could not be ended."""
    import psutil  # noqa: F401


@contextmanager
def running(command: Sequence[str], log: Path, environment: Mapping[str, str]) -> Iterator[Running]:
    """Starts `command` and stops it at the end, on an error, ^C and SIGTERM too.

    `environment` is added to ours. Both outputs go to the end of `log`. Its standard input is a pipe of which nothing
    comes and which closes when this process ends, however it ends: by that a program can tell. Raises UsageError for a
    program that cannot be started or a log that cannot be written.
    """
    check_installed()
    mark = f"{os.getpid()}-{time.time_ns()}"
    with _signals_as_interrupts() as came, _written(log) as out, ExitStack() as stack:
        start = os.fstat(out).st_size
        # Held until there is something to stop, and as Python drops what a signal raises while it forks.
        held = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
        stack.callback(signal.pthread_sigmask, signal.SIG_SETMASK, held)
        process = _popen(command, out, {**os.environ, **environment, MARK: mark}, held)
        started = Running(process, log, start, mark, came)
        stack.callback(_end, started)
        signal.pthread_sigmask(signal.SIG_SETMASK, held)
        yield started


def _end(started: Running) -> None:
    with suppress(OSError):
        started.process.stdin.close()  # type: ignore[union-attr]
    stop(started)


def wait_until(program: Running, met: Callable[[], bool], limit_s: float, watch: Watch | None = None) -> float:
    """Seconds until `met`. Raises EndedError where the program ends before, LateError where the limit passes."""
    begun = time.monotonic()
    while True:
        if program.came:  # what it raised was dropped
            raise KeyboardInterrupt
        waited, death = time.monotonic() - begun, program.death()
        if met():  # asked behind its death: what it did before counts
            return time.monotonic() - begun
        if death is not None:
            raise EndedError(death)
        if waited > limit_s:
            raise LateError(last_error(program.log, program.start) or "it said nothing")
        if watch is not None:  # else the log need not be read
            watch(waited, limit_s, last_line(program.log, program.start))
        time.sleep(min(_LONGEST_POLL_S, 0.02 + waited / 20))


def stop(program: Running, grace_s: float = GRACE_S) -> None:
    """Ends all of its processes: asked first, killed when their time is over, or at once on ^C. None are left."""
    try:
        if _family(program):
            _signal([program.process.pid], signal.SIGTERM)
            _wait(lambda: program.process.poll() is not None, grace_s)
            _wait(lambda: not _family(program), LATER_S)
    finally:
        while left := _family(program):
            _signal([each.pid for each in left], signal.SIGKILL)
            _wait(lambda: not _family(program), 1.0)
        program.process.wait()


def last_error(log: Path, start: int = 0) -> str:
    """The last line that names an error, from its name on, else the last line at all; "" where there is none."""
    lines = _lines(log, start)
    told = (_reason(line) for line in reversed(lines) if not any(words in line for words in _ELSEWHERE))
    return next(filter(None, told), lines[-1] if lines else "")


def last_line(log: Path, start: int = 0) -> str:
    lines = _lines(log, start)
    return lines[-1] if lines else ""


def _reason(line: str) -> str:
    named = _NAMED.search(line)
    return named[0] if named else line if _REASON.search(line) else ""


def _lines(log: Path, start: int) -> list[str]:
    with suppress(OSError), log.open("rb") as file:
        file.seek(max(start, log.stat().st_size - _TAIL))
        return [line.strip() for line in file.read().decode("utf-8", "replace").splitlines() if line.strip()]
    return []


def _popen(
    command: Sequence[str], out: int, environment: Mapping[str, str], held: Iterable[int]
) -> subprocess.Popen[bytes]:
    """`held`: the signals that the new process is not to get."""
    try:
        return subprocess.Popen(
            [*command],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=_in_the_new_process(held),
        )
    except OSError as error:
        what = f"it cannot be started: {error.strerror or error}"
        raise UsageError(what, command[0], "name the Python of the engine's environment") from error


def _wait(over: Callable[[], bool], seconds: float) -> None:
    until = time.monotonic() + seconds
    while not over() and time.monotonic() < until:
        time.sleep(0.05)


def _family(program: Running) -> list[psutil.Process]:
    """Every process of it that runs: in its session, under it, or with its mark. An engine's workers may leave the
    session, outlive their parent, or write over their environment, but not all three at once."""
    import psutil

    program.process.poll()  # else it would stay as a zombie
    below: set[int] = set()
    with suppress(psutil.Error):
        below = {child.pid for child in psutil.Process(program.process.pid).children(recursive=True)}
    return [each for each in psutil.process_iter() if _belongs(each, program, below)]


def _belongs(process: psutil.Process, program: Running, below: set[int]) -> bool:
    import psutil

    try:
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        of_session = os.getsid(process.pid) == program.process.pid
        return of_session or process.pid in below or process.environ().get(MARK) == program.mark
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


def _in_the_new_process(held: Iterable[int]) -> Callable[[], None]:
    """What it does before it becomes the program: these signals alone are `held`, and on Linux it gets a SIGTERM when
    this process is killed so that it can stop nothing any more. The library is looked up here: between fork and exec
    another thread's lock would never open."""
    prctl = ctypes.CDLL(None).prctl if sys.platform == "linux" else None

    def prepare() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, held)
        if prctl is not None:
            prctl(_DIE_WITH_PARENT, signal.SIGTERM)

    return prepare


@contextmanager
def _signals_as_interrupts() -> Iterator[Sequence[int]]:
    """SIGTERM and SIGHUP unwind as ^C does, so that the program is stopped.

    They come once, and Python drops what is raised while it runs a destructor or a callback of its own: what came is
    told, and what goes on is interrupted at the end.
    """
    came: list[int] = []

    def interrupt(number: int, _frame: FrameType | None) -> None:
        came.append(number)
        raise KeyboardInterrupt

    kept = {}
    with suppress(ValueError):  # not the main thread: whoever started it has the signals
        kept = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield came
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)
    if came:
        raise KeyboardInterrupt


@contextmanager
def _written(log: Path) -> Iterator[int]:
    """Open behind what it holds."""
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    except OSError as error:
        raise UsageError(f"no log can be written: {error.strerror}", str(log), "name another folder") from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)
