"""What this process asked of the Hub. No Hub client is imported here: where none was used, the answer is zero."""

from __future__ import annotations

import threading
from dataclasses import asdict, dataclass
from typing import Protocol


@dataclass(frozen=True)
class HubUsage:
    """HTTP requests sent, redirects counted too, and bytes of response bodies received."""

    requests: int
    bytes: int

    def since(self, before: HubUsage) -> HubUsage:
        """What was asked after `before` was read."""
        return HubUsage(self.requests - before.requests, self.bytes - before.bytes)

    def to_dict(self) -> dict[str, int]:
        """The `hub` object of the JSON output."""
        return asdict(self)


class Response(Protocol):
    """What the meter needs of an HTTP response."""

    @property
    def num_bytes_downloaded(self) -> int: ...

    @property
    def is_closed(self) -> bool: ...


class Meter:
    """Counts requests as they leave, and bodies once they are read: a response knows how much of it came."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests = 0
        self._bytes = 0
        self._open: list[Response] = []

    def request(self) -> None:
        """A request leaves."""
        with self._lock:
            self._requests += 1

    def response(self, response: Response) -> None:
        """The head of a response came; its body may follow."""
        with self._lock:
            self._settle()
            self._open.append(response)

    def usage(self) -> HubUsage:
        """The counts so far, the read part of open responses included."""
        with self._lock:
            self._settle()
            return HubUsage(self._requests, self._bytes + sum(each.num_bytes_downloaded for each in self._open))

    def _settle(self) -> None:
        closed = [response for response in self._open if response.is_closed]
        self._bytes += sum(response.num_bytes_downloaded for response in closed)
        self._open = [response for response in self._open if not response.is_closed]


meter = Meter()


def hub_usage() -> HubUsage:
    """Requests and bytes of this process so far."""
    return meter.usage()
