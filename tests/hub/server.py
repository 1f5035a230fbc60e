"""The Hub's HTTP interface, as far as its client uses it to read models, on a port of this machine.

hub.add_repo("org/name", files={"config.json": b"{}"}, revisions={"v1": {...}}, gated=True)
hub.fail(429, times=2, retry_after=1)         the next answers
hub.ignore_range = hub.cut_short = True       how bodies are sent
hub.drip = 0.1                                seconds between their bytes, of files
hub.requests                                  what was asked, and how much was sent
hub.env                                       the environment for a subprocess that uses it
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.hub.handler import Handler
from tests.hub.repos import Content, Repo


@dataclass
class Request:
    """One request of the log; `sent` is the bytes of the body that were handed to the network."""

    method: str
    path: str
    range: str | None
    authorization: str | None = None
    status: int = 0
    sent: int = 0


@dataclass
class Failure:
    status: int
    times: int
    retry_after: str | None
    path: str


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that hang up are part of the tests; their tracebacks are not."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)

    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        super().__init__(("127.0.0.1", 0), Handler)


class Hub:
    """The server, its repositories, its faults and its log. `home` is the HF_HOME of its clients."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self._lock = threading.Lock()
        self.reset()
        self._server = Server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def env(self) -> dict[str, str]:
        """This process's environment, pointed at the stand-in and at no other Hub setting."""
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("HF_", "HUGGING"))}
        # Telemetry would add a request of the client's own to the log, once a day.
        settings = {"HF_ENDPOINT": self.endpoint, "HF_HOME": str(self.home), "HF_HUB_DISABLE_TELEMETRY": "1"}
        return {**kept, **settings}

    def reset(self) -> None:
        """Forgets repositories, faults and log, and empties the clients' cache."""
        self.repos: dict[str, Repo] = {}
        self.requests: list[Request] = []
        self.failures: list[Failure] = []
        self.ignore_range = False
        self.cut_short = False
        self.latency = 0.0
        self.drip = 0.0
        for cache in ("hub", "assets"):
            shutil.rmtree(self.home / cache, ignore_errors=True)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def add_repo(
        self,
        name: str,
        files: Mapping[str, Content],
        *,
        revisions: Mapping[str, Mapping[str, Content]] | None = None,
        gated: bool = False,
        private: bool = False,
        sizes: bool = True,
        lfs: bool = False,
    ) -> str:
        """A model repository; returns the commit of main.

        Contents are bytes, or a path whose file is served without being read whole. `revisions` adds branches or
        tags. `gated` and `private` open to `hf_accepted` alone. `sizes=False` leaves sizes out of the listing.
        `lfs=True` serves weight files as the Hub does, by a redirect.
        """
        repo = Repo(name, gated=gated, private=private, sizes=sizes, lfs=lfs)
        self.repos[name] = repo
        for revision, other in (revisions or {}).items():
            repo.push(revision, other)
        return repo.push("main", files)

    def fail(self, status: int, *, times: int = 1, retry_after: str | int | None = None, path: str = "") -> None:
        """The next `times` requests whose path holds `path` are answered with `status`."""
        asked = None if retry_after is None else str(retry_after)
        self.failures.append(Failure(status, times, asked, path))

    def next_failure(self, path: str) -> Failure | None:
        with self._lock:
            for failure in self.failures:
                if failure.times > 0 and failure.path in path:
                    failure.times -= 1
                    return failure
        return None

    @property
    def sent(self) -> int:
        """Bytes of bodies sent since the last reset."""
        return sum(request.sent for request in self.requests)
