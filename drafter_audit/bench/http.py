"""HTTP to one server. httpx2, as huggingface_hub brings it: streamed answers, and a limit on every wait."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httpx2

from drafter_audit.errors import LostServerError, ServerError, UsageError
from drafter_audit.secrets import without_password

CONNECT_S = 5.0
_LOCAL = ("localhost", "127.0.0.1", "::1", "0.0.0.0")
_MEND = "look at the server's log, and start it again"
_NOT_UP = "start it, wait until it has loaded, and check the URL"
_NO_KEY = "name the variable that holds the server's API key with --api-key-env"


@dataclass(frozen=True)
class Event:
    """One piece of a streamed answer; `at` is when it came, in seconds of a clock that only rises."""

    at: float
    data: Mapping[str, Any]


class Server:
    """One server at `url`, which is told on without the name and password that it may hold.

    `api_key` goes with every request, as vLLM and SGLang take one. `answer_s`: how long it may be silent before an
    answer counts as lost. Raises UsageError for what is no URL of a server. All that fails later raises ServerError.
    """

    def __init__(self, url: str, *, api_key: str | None = None, answer_s: float = 600.0) -> None:
        whole = url.rstrip("/")
        self.url = without_password(whole)
        if not _is_of_a_server(whole):
            raise UsageError(
                "no URL of a server", repr(without_password(url)), "give one such as http://127.0.0.1:30000"
            )
        if api_key and self.url != whole:
            raise UsageError("a name and password beside an API key", self.url, "leave out one of them")
        # A proxy that the environment names is not for this machine.
        self._client = httpx2.Client(
            base_url=whole,
            headers={"Authorization": f"Bearer {api_key}"} if api_key else None,
            timeout=httpx2.Timeout(answer_s, connect=CONNECT_S),
            trust_env=not self.is_local,
        )

    @property
    def is_local(self) -> bool:
        return urlsplit(self.url).hostname in _LOCAL

    @property
    def port(self) -> int:
        parts = urlsplit(self.url)
        return parts.port or (443 if parts.scheme == "https" else 80)

    def close(self) -> None:
        self._client.close()

    def is_healthy(self) -> bool:
        """Whether it answers /health with 200; while it loads there may be no answer, or a 503."""
        try:
            self.check_health()
        except ServerError:
            return False
        return True

    def check_health(self) -> None:
        """Raises ServerError where /health is not answered with 200, and says what came instead."""
        try:
            with self._told("/health"):
                status = self._client.get("/health", timeout=CONNECT_S).status_code
            why = None if status == 200 else self._refused(status, "/health", mend=_NOT_UP)
        except LostServerError as error:
            why = ServerError(error.what, error.where, _NOT_UP)
        if why is not None:
            raise ServerError(f"no healthy server answers there: {why.what}", why.where, why.mend)

    def text(self, path: str) -> str | None:
        """The body at `path`; None where the server has no such page."""
        with self._told(path):
            answer = self._client.get(path, follow_redirects=True)
        if answer.status_code in (404, 405):
            return None
        if answer.status_code != 200:
            raise self._refused(answer.status_code, path)
        return answer.text

    def json(self, path: str) -> Mapping[str, Any] | None:
        """The JSON object at `path`; None where the server has no such page."""
        text = self.text(path)
        return None if text is None else self._object(text, path)

    def stream(self, path: str, body: Mapping[str, Any]) -> Iterator[Event]:
        """Asks, and gives each piece of the answer as it comes (server-sent events)."""
        with self._told(path), self._client.stream("POST", path, json=dict(body)) as answer:
            if answer.status_code != 200:
                said = answer.read().decode("utf-8", "replace")[:300].strip()
                raise self._refused(answer.status_code, path, said)
            if "json" in answer.headers.get("Content-Type", ""):  # a gateway that does not stream
                yield self._event(answer.read().decode("utf-8", "replace"), path)
                return
            for line in answer.iter_lines():
                name, _, data = line.partition(":")
                if name == "data" and data.strip() != "[DONE]":
                    yield self._event(data, path)

    def _refused(self, status: int, path: str, said: str = "", mend: str = _MEND) -> ServerError:
        what = f"it answers {status}" + (f": {said}" if said else "")
        return ServerError(what, f"{self.url}{path}", _NO_KEY if status in (401, 403) else mend)

    def _event(self, data: str, path: str) -> Event:
        told = self._object(data, path)
        if told.get("error"):
            raise ServerError(f"it gave up an answer: {told['error']}", f"{self.url}{path}", _MEND)
        return Event(time.perf_counter(), told)

    def _object(self, text: str, path: str) -> Mapping[str, Any]:
        try:
            told = json.loads(text)
        except ValueError:
            told = None
        if not isinstance(told, dict):
            raise ServerError("its answer is no JSON object", f"{self.url}{path}", "name the server of an engine")
        return told

    @contextmanager
    def _told(self, path: str) -> Iterator[None]:
        """What the connection raises, as a ServerError."""
        try:
            yield
        except httpx2.TimeoutException as error:
            raise LostServerError("it does not answer in time", f"{self.url}{path}", _MEND) from error
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            reason = str(error) or type(error).__name__
            raise LostServerError(f"the connection failed: {reason}", f"{self.url}{path}", _MEND) from error


def _is_of_a_server(url: str) -> bool:
    """Whether it names a host of HTTP, a port that can be, and nothing behind them but a path."""
    try:
        parts = urlsplit(url)
        is_name = bool((parts.hostname or "").encode("idna"))
        extra = parts.query or parts.fragment
        return parts.scheme in ("http", "https") and is_name and parts.port != 0 and not extra
    except ValueError:  # an address, a name or a port that cannot be
        return False
