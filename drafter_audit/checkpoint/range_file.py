"""A file of a source as `zipfile` wants to see it: seek, tell, read. What was not asked for is not fetched."""

from __future__ import annotations

import os
from collections import deque

from drafter_audit.errors import PickledError
from drafter_audit.sources.base import Source

BLOCK_BYTES = 65_536
"""The least that is fetched at once: the largest tail in which a zip archive may hide its end record."""

_PIECES = 4  # kept in memory; reads wander between the head and the tail


class RangeFile:
    """Read-only. `name` is the file in `source`; its size in bytes must be listed. `limit` is the most that one read
    may ask for, in bytes: what stands in a file of its own sizes is only a claim.

    Raises PickledError where no size is listed, where more than `limit` is asked for, and where bytes are missing; else
    what the source raises.
    """

    def __init__(self, source: Source, name: str, *, limit: int) -> None:
        self.where, self.limit = f"{source.name}/{name}", limit
        self._source, self._name, self._at = source, name, 0
        self._pieces: deque[tuple[int, bytes]] = deque(maxlen=_PIECES)
        size = source.files().get(name)
        if size is None:
            source.read_range(name, 0, 1)  # says so where there is no such file
            raise PickledError("its size is not listed", self.where, "download it and name its folder")
        self.size = size

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Raises OSError for a place before the file's start, as files do."""
        at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self.size}[whence]
        if at < 0:
            raise OSError(f"seek to {at}")
        self._at = at
        return at

    def read(self, size: int = -1) -> bytes:
        stop = self.size if size < 0 else min(self.size, self._at + size)
        data = self.part(self._at, stop)
        self._at += len(data)
        return data

    def part(self, start: int, stop: int) -> bytes:
        """Bytes `[start, stop)`, which lie in the file. A block or more is fetched and kept for the next call."""
        if stop <= start:
            return b""
        for at, data in self._pieces:
            if at <= start and stop <= at + len(data):
                return data[start - at : stop - at]
        first = start // BLOCK_BYTES * BLOCK_BYTES
        return self.fetch(first, -(-stop // BLOCK_BYTES) * BLOCK_BYTES)[start - first : stop - first]

    def fetch(self, start: int, stop: int) -> bytes:
        """Bytes `[start, stop)` as far as the file has them, by one request, and kept."""
        data = self.exactly(max(0, start), min(self.size, stop))
        self._pieces.append((max(0, start), data))
        return data

    def exactly(self, start: int, stop: int) -> bytes:
        """Bytes `[start, stop)`, which lie in the file, by one request; on disk a remote source keeps them."""
        if stop - start > self.limit + 2 * BLOCK_BYTES:  # whole blocks may be fetched around what is asked for
            what = f"{stop - start} bytes stand where at most {self.limit} are read"
            raise PickledError(what, self.where, "check that it is the right file")
        data = self._source.read_range(self._name, start, stop, keep=True)
        if len(data) < stop - start:
            raise PickledError(f"cut short at byte {start + len(data)}", self.where, "download the real file")
        return data
