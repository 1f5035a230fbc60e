"""The process that measures, watched by one that does not: whatever becomes of it, its rows are told."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType

CHANNEL = "_DRAFTER_AUDIT_CHECK_CHANNEL"
"""The variable that names the file descriptor of messages. It makes a process the one that measures."""

_GRACE_S = 10.0
"""How long a process that has told all may take to end."""


class _EndedFromOutsideError(Exception):
    pass


def supervised(command: Sequence[str], limit_s: float, hear: Callable[[bytes], None]) -> str | None:
    """Runs `drafter-audit *command` as a process group of its own, and gives each of its lines to `hear`.

    Says why it ended early, None where it did not. When this returns or raises no process of the group is left: after
    `limit_s` seconds, on SIGTERM or ^C, and when the process was killed.
    """
    reading, writing = os.pipe()
    program = [sys.executable, "-m", "drafter_audit", *command]
    environment = {**os.environ, CHANNEL: str(writing)}
    process = None
    try:
        with _sigterm_raises():
            with put_off(signal.SIGTERM, signal.SIGINT):  # a process that has no name yet could not be ended
                process = subprocess.Popen(
                    program, env=environment, pass_fds=(writing,), stdin=subprocess.PIPE, stdout=2,
                    start_new_session=True,
                )  # fmt: skip
            os.close(writing)
            for line in _lines(reading, time.monotonic() + limit_s):
                hear(line)
            return _ended(process.wait(_GRACE_S))
    except TimeoutError:
        return f"the time limit of {limit_s:g} s was over"
    except subprocess.TimeoutExpired:
        return "it went silent and did not end"
    except _EndedFromOutsideError:
        return "the check was ended from outside (SIGTERM)"
    finally:
        os.close(reading)
        if process is not None:
            _end(process)


def _lines(reading: int, until: float) -> Iterator[bytes]:
    """Whole lines, until the writer is gone. Raises TimeoutError."""
    held = b""
    while True:
        ready, _, _ = select.select([reading], [], [], max(0.0, until - time.monotonic()))
        if not ready:
            raise TimeoutError
        got = os.read(reading, 1 << 16)
        if not got:
            return
        *lines, held = (held + got).split(b"\n")
        yield from lines


def _ended(code: int) -> str | None:
    if code < 0:
        return f"the process that measures was killed by signal {-code}, as for too little memory"
    return None if code == 0 else f"the process that measures ended with exit code {code}, stderr says why"


def _end(process: subprocess.Popen[bytes]) -> None:
    """The whole group: what it leaves to tidy up is memory alone."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if process.stdin is not None:
        process.stdin.close()


@contextmanager
def _sigterm_raises() -> Iterator[None]:
    def ended(_: int, __: FrameType | None) -> None:
        raise _EndedFromOutsideError

    with _handled(ended, signal.SIGTERM):
        yield


@contextmanager
def put_off(*signals: signal.Signals) -> Iterator[None]:
    """What comes of these signals takes effect at the end of the block."""
    came: list[int] = []
    with _handled(lambda number, _: came.append(number), *signals):
        yield
    for number in came:
        signal.raise_signal(number)


@contextmanager
def _handled(handler: Callable[[int, FrameType | None], None], *signals: signal.Signals) -> Iterator[None]:
    """Python lets the main thread alone say what a signal does."""
    here = threading.current_thread() is threading.main_thread()
    before = {each: signal.signal(each, handler) for each in signals if here}
    try:
        yield
    finally:
        for each, old in before.items():
            signal.signal(each, old)


def channel() -> int | None:
    """The descriptor to tell rows to, where this process is one that measures; it then ends with the one that waits."""
    told = os.environ.pop(CHANNEL, None)
    if told is None:
        return None
    os.set_inheritable(int(told), False)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    return int(told)


def _end_with_parent() -> None:
    """stdin is a pipe that the waiting process holds: its end is that process's, however it came."""
    while os.read(0, 1):
        pass
    os.killpg(0, signal.SIGKILL)
