"""A checkpoint on the Hub: small files come whole and stay in the Hub's cache, weight files are read by range.

A branch or tag is resolved to its commit once, and all that is read later is of that commit. What is read by range and
wanted again (headers, large indexes) stays on disk too, see `kept`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Literal, NoReturn

from drafter_audit.errors import CheckpointError, NotFoundError
from drafter_audit.sources import kept
from drafter_audit.sources.hub_errors import Place, offline
from drafter_audit.sources.hub_files import (
    Listing,
    cached_file,
    download,
    fetch_range,
    list_repo,
    remote_size,
)
from drafter_audit.sources.names import leaves_folder
from drafter_audit.sources.reference import Reference, is_commit

_PARALLEL_DOWNLOADS = 4

_DOWNLOAD_BYTES = 1_000_000
"""A larger file is read by range: one request instead of two, and never over a transfer that goes past our count."""


@dataclass(frozen=True)
class HubSource:
    """The checkpoint that `reference` names; the Hub is asked when something is read, and not before."""

    reference: Reference

    @property
    def ref(self) -> str:
        return self.reference.ref

    @property
    def kind(self) -> Literal["hub"]:
        return "hub"

    @property
    def name(self) -> str:
        return self.reference.name

    @property
    def weights_file(self) -> str | None:
        return self.reference.weights_file

    @property
    def revision(self) -> str:
        """The commit. Raises what `files` raises."""
        asked = self.reference.revision
        return asked if asked is not None and is_commit(asked) else self._listing.commit

    def files(self) -> Mapping[str, int | None]:
        """Name to size in bytes of the files in the folder that was named; one request, the first time.

        Raises NotFoundError, AccessError, NetworkError.
        """
        return self._files

    def read(self, name: str, *, limit: int) -> bytes:
        """The whole file, from the Hub's cache where it lies there at this commit.

        Raises NotFoundError, AccessError, NetworkError; CheckpointError above `limit` bytes, before it is fetched.
        """
        place = self._place(name)
        path = cached_file(place, self.revision)
        if path is None:
            size = self._check_size(place, limit)
            if size is not None and size > _DOWNLOAD_BYTES:
                return self.read_range(name, 0, size, keep=True)
            path = download(place, self.revision)
        with path.open("rb") as file:
            data = file.read(limit + 1)
        if len(data) > limit:
            _refuse_size(place, limit)
        return data

    def read_range(self, name: str, start: int, stop: int, *, keep: bool = False) -> bytes:
        """Bytes `[start, stop)`, fewer where the file ends before; from the Hub's cache where it lies there.

        With `keep` from what an earlier run kept of this commit, else kept for the next.

        Raises NotFoundError, AccessError, NetworkError.
        """
        place = replace(self._place(name), kept=keep)

        def fetch() -> bytes:
            return fetch_range(place, self.revision, start, stop)

        path = cached_file(place, self.revision)
        if path is None:
            self._check_listed(place)
            size = self._listing.files[place.file or ""]
            key = ("range", place.path, self.revision, place.file or "", str(size), str(start), str(stop))
            return kept.once(key, fetch) if keep else fetch()
        with path.open("rb") as file:
            file.seek(start)
            return file.read(max(0, stop - start))

    def fetched(self, names: Sequence[str], *, bars: bool = False) -> Path:
        """The folder of the Hub's cache that holds the files `names`, whole, at this commit, fetched where absent.

        Raises NotFoundError, AccessError, NetworkError.
        """
        with ThreadPoolExecutor(max_workers=_PARALLEL_DOWNLOADS) as pool:
            paths = list(pool.map(lambda name: self._whole(name, bars), names))
        return paths[0].parents[len(PurePosixPath(names[0]).parts) - 1]

    def _whole(self, name: str, bar: bool) -> Path:
        place = self._place(name)
        return cached_file(place, self.revision) or download(place, self.revision, bar=bar)

    @cached_property
    def _listing(self) -> Listing:
        return list_repo(self._at(None))

    @cached_property
    def _files(self) -> dict[str, int | None]:
        prefix = f"{self.folder}/" if self.folder else ""
        files = self._listing.files
        return {path.removeprefix(prefix): size for path, size in files.items() if path.startswith(prefix)}

    @cached_property
    def folder(self) -> str:
        """The folder in the repository; a link to a file means the folder that the file lies in."""
        path = self.reference.path
        if path in self._listing.files:
            parent = PurePosixPath(path).parent
            return "" if parent == PurePosixPath() else str(parent)
        if path and not any(file.startswith(f"{path}/") for file in self._listing.files):
            self._absent(self._at(path))
        return path

    def _place(self, name: str) -> Place:
        if leaves_folder(name):
            raise CheckpointError(f"the file name {name!r} leaves its folder", self.name, "name a file inside it")
        folder = self.folder if self.reference.path else ""
        return self._at(f"{folder}/{name}" if folder else name)

    def _at(self, file: str | None) -> Place:
        return Place(self.name, self.reference.revision, file, type=self.reference.repo_type)

    def _check_listed(self, place: Place) -> None:
        if place.file not in self._listing.files:
            self._absent(place)

    def _check_size(self, place: Place, limit: int) -> int | None:
        self._check_listed(place)
        size = self._listing.files[place.file or ""]
        if size is None:
            size = remote_size(place, self.revision)
        if size is not None and size > limit:
            _refuse_size(place, limit)
        return size

    def _absent(self, place: Place) -> NoReturn:
        if not self._listing.complete:
            raise offline(place)
        raise NotFoundError(f"no {place.file}", str(place), "check the name and the revision")


def open_hub(reference: Reference) -> HubSource:
    """The repository that `reference` names; nothing is asked yet."""
    return HubSource(reference)


def _refuse_size(place: Place, limit: int) -> NoReturn:
    raise CheckpointError(f"{place.file} is larger than {limit} bytes", str(place), "check that it is the right file")
