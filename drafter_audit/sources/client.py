"""Every call to the Hub's client passes here: counted, retried within bounds, and silent.

The client retries some calls itself, some not, and waits as long as a server asks. Here one place decides: during our
calls, and only during them, a hook on the client's session turns a busy answer (429, 5xx) and the client's own second
try into exceptions, and `attempt` waits and tries again, for half a minute at most. A body that drips is given up.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from email.utils import parsedate_to_datetime
from typing import TypeVar

import httpx2
from huggingface_hub import get_session
from huggingface_hub.utils import parse_ratelimit_headers  # type: ignore[attr-defined]  # exported by a lazy import

from drafter_audit.sources.usage import meter

T = TypeVar("T")

PATIENCE_S = 30.0
"""Seconds from the first try after which no further one is made, the wait before it counted."""

BODY_S = 60.0
"""Seconds after which a body must have come at SLOWEST or faster: the client's own limit is between two chunks."""

SLOWEST = 10_000
"""Bytes a second, on average."""

_BUSY_BODY_BYTES = 65_536  # read of what a busy server says, so that the connection can be used again

_WAITS_S = (0.5, 1.5)
"""Before the second and the third try, where the server does not say how long to wait."""


class BusyError(Exception):
    """The server answered 429 or 5xx; `wait` is the seconds it asks for, None where it does not say."""

    def __init__(self, status: int, wait: float | None) -> None:
        self.status = status
        self.wait = wait
        super().__init__(f"HTTP {status}")


class SlowError(Exception):
    """The body comes slower than SLOWEST."""

    def __init__(self, received: int, seconds: float) -> None:
        super().__init__(f"{received} bytes in {seconds:.0f} s")


class CutShortError(Exception):
    """Fewer bytes came than the server announced."""


class SecondTryError(Exception):
    """The client is about to repeat a request that failed on the way."""


_RETRIED = (
    BusyError,
    CutShortError,
    SecondTryError,
    httpx2.TimeoutException,
    httpx2.NetworkError,
    httpx2.RemoteProtocolError,
)

_sent: ContextVar[set[str] | None] = ContextVar("_sent", default=None)
"""The requests of our call in this thread; None outside our calls."""

_watch_lock = threading.Lock()


def attempt(action: Callable[[], T]) -> T:
    """`action()`, up to three times within PATIENCE_S. Raises what the last try raised.

    A server that asks for a longer wait is not waited for at all.
    """
    give_up = time.monotonic() + PATIENCE_S
    for wait in _WAITS_S:
        try:
            return _watched(action)
        except _RETRIED as error:
            asked = error.wait if isinstance(error, BusyError) else None
            pause = wait if asked is None else asked
            if time.monotonic() + pause > give_up:
                raise
        time.sleep(pause)
    return _watched(action)


def _watched(action: Callable[[], T]) -> T:
    with _our_call():
        return action()


@contextmanager
def _our_call() -> Iterator[None]:
    _watch(get_session())
    _hush()
    token = _sent.set(set())
    try:
        yield
    finally:
        _sent.reset(token)


def _watch(session: httpx2.Client) -> None:
    """Hooks the session once; the client may have made a new one since."""
    with _watch_lock:
        hooks = session.event_hooks
        if _on_request not in hooks["request"]:
            session.event_hooks = {
                "request": [*hooks["request"], _on_request],
                "response": [*hooks["response"], _on_response],
            }


def _on_request(request: httpx2.Request) -> None:
    sent = _sent.get()
    if sent is not None:
        key = f"{request.method} {request.url}"
        if key in sent:
            raise SecondTryError(key)
        sent.add(key)
    meter.request()


def _on_response(response: httpx2.Response) -> None:
    meter.response(response)
    if _sent.get() is None:
        return
    if isinstance(response.stream, httpx2.SyncByteStream):
        response.stream = _Paced(response.stream)
    if response.status_code == 429 or response.status_code >= 500:
        _read_some(response)
        raise BusyError(response.status_code, _asked_wait(response.headers))


class _Paced(httpx2.SyncByteStream):
    """A body that must keep the pace. Raises SlowError."""

    def __init__(self, stream: httpx2.SyncByteStream) -> None:
        self._stream = stream

    def __iter__(self) -> Iterator[bytes]:
        start, received = time.monotonic(), 0
        for chunk in self._stream:
            received += len(chunk)
            yield chunk
            spent = time.monotonic() - start
            if spent > BODY_S and received < SLOWEST * spent:
                raise SlowError(received, spent)

    def close(self) -> None:
        self._stream.close()


def _read_some(response: httpx2.Response) -> None:
    with suppress(httpx2.TransportError, SlowError):  # that the server is busy is known already
        for _ in response.iter_raw():
            if response.num_bytes_downloaded > _BUSY_BODY_BYTES:
                return


def _asked_wait(headers: httpx2.Headers) -> float | None:
    """Seconds that the server asks for: Retry-After, a number or a date (RFC 9110, 10.2.3), or the Hub's RateLimit."""
    value = headers.get("Retry-After", "").strip()
    if value.isdigit():
        return float(value)
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except ValueError:
        limit = parse_ratelimit_headers(headers)
        return float(limit.reset_in_seconds) if limit is not None and limit.remaining == 0 else None


class _Hush(logging.Filter):
    """Drops the client's warnings about what we report ourselves; a user who asked for its log still gets it."""

    def filter(self, record: logging.LogRecord) -> bool:
        wanted = logging.getLogger("huggingface_hub").level < logging.WARNING
        return wanted or record.levelno > logging.WARNING or _sent.get() is None


_HUSH = _Hush()


def _hush() -> None:
    for handler in logging.getLogger("huggingface_hub").handlers:
        handler.addFilter(_HUSH)  # adding it again changes nothing
