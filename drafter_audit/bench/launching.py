"""A server that is started here: the port it gets, the wait until it answers, and the words for its end."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from drafter_audit.errors import LostServerError, ServerError
from drafter_audit.process import EndedError, LateError, Running, Watch, last_line, wait_until

_DYING_S = 1.0


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
    return port


def wait_until_healthy(server: Running, is_healthy: Callable[[], bool], limit_s: float, watch: Watch) -> float:
    """Seconds until it answers. Raises ServerError where it ends first, or the limit passes."""
    try:
        return wait_until(server, is_healthy, limit_s, watch)
    except EndedError as error:
        raise _dead(server, str(error)) from error
    except LateError as error:
        last = last_line(server.log, server.start)
        what = f"the server is not healthy after {limit_s:.0f} s; its last line: {last}"
        raise ServerError(what, str(server.log), "read the log, or raise --start-timeout") from error


@contextmanager
def deaths_told(server: Running) -> Iterator[None]:
    """A server that died is why nothing answers any more."""
    try:
        yield
    except LostServerError as error:
        death = _death_within(server, _DYING_S)
        if death is None:
            raise
        raise _dead(server, death) from error


def _dead(server: Running, death: str) -> ServerError:
    return ServerError(f"the server {death}", str(server.log), "read the log")


def _death_within(server: Running, seconds: float) -> str | None:
    """A process ends a little after its connections do."""
    until = time.monotonic() + seconds
    while (death := server.death()) is None and time.monotonic() < until:
        time.sleep(0.02)
    return death
