"""The few things we ask the Hub for: what a repository holds, a small file whole, a range of a large one.

All traffic is the Hub client's own, so HF_TOKEN, HF_HOME, HF_ENDPOINT, HF_HUB_OFFLINE and HF_HUB_DOWNLOAD_TIMEOUT
mean what they mean everywhere. Whatever fails is raised as one of our errors.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path, PurePosixPath
from typing import NoReturn, TypeGuard, TypeVar

import httpx2
from huggingface_hub import (
    DatasetInfo,
    HfApi,
    ModelInfo,
    constants,
    get_hf_file_metadata,
    get_session,
    hf_hub_download,
    hf_hub_url,
    hf_raise_for_status,
    snapshot_download,
    try_to_load_from_cache,
)
from huggingface_hub.errors import LocalEntryNotFoundError, OfflineModeIsEnabled
from huggingface_hub.utils import build_hf_headers, silent_tqdm  # type: ignore[attr-defined]  # by a lazy import

from drafter_audit import __version__
from drafter_audit.errors import AuditError, NetworkError
from drafter_audit.sources import kept
from drafter_audit.sources.client import CutShortError, attempt
from drafter_audit.sources.hub_errors import Place, explain, offline
from drafter_audit.sources.local import LocalSource
from drafter_audit.sources.reference import is_commit

T = TypeVar("T")

_TOOL = "drafter-audit"
_MAIN = "main"
_CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)")


@dataclass(frozen=True)
class Listing:
    """A repository at one commit.

    `files` maps each path in it to its size in bytes, None where the Hub does not say. `complete` is False where the
    list is that of the cache, which holds only what was once fetched.
    """

    commit: str
    files: Mapping[str, int | None]
    complete: bool


def list_repo(place: Place) -> Listing:
    """What the repository holds at `place.revision`: of a commit as it was kept, if it was; else one request.

    Offline, what was kept or, failing that, what the cache holds. Raises NotFoundError, AccessError, NetworkError.
    """
    known = _kept_listing(place, place.revision) if is_commit(place.revision) else None
    if known is not None:
        return known

    def ask() -> ModelInfo | DatasetInfo:
        api = HfApi(library_name=_TOOL, library_version=__version__)
        timeout = constants.HF_HUB_DOWNLOAD_TIMEOUT
        tell = api.model_info if place.type == "model" else api.dataset_info
        return tell(place.repo, revision=place.revision, files_metadata=True, timeout=timeout)

    try:
        info = _ask(ask, place)
    except NetworkError as error:
        if isinstance(error.__cause__, OfflineModeIsEnabled):
            return _list_cache(place)
        raise
    files = {sibling.rfilename: sibling.size for sibling in info.siblings or ()}
    # What the client hands on is as the server wrote it, of any type.
    if not isinstance(info.sha, str) or not _are_sizes(files):
        raise NetworkError("the answer is not the Hub's", f"{place} at {constants.ENDPOINT}", "check HF_ENDPOINT")
    listing = Listing(info.sha, dict(sorted(files.items())), complete=True)
    kept.keep(("listing", place.path, listing.commit), json.dumps(listing.files).encode())
    _note_commit(place, listing.commit)
    return listing


def _kept_listing(place: Place, commit: str | None) -> Listing | None:
    """What was kept of `commit`; None where nothing was, and where it is no listing: it is then made anew."""
    data = kept.recall(("listing", place.path, commit)) if commit is not None else None
    try:
        files = None if data is None else json.loads(data)
    except (ValueError, RecursionError):
        return None
    return Listing(str(commit), files, complete=True) if _are_sizes(files) else None


def _are_sizes(files: object) -> TypeGuard[dict[str, int | None]]:
    """Whether `files` maps names to sizes in bytes, None for unknown ones."""
    return isinstance(files, dict) and all(
        isinstance(name, str) and (size is None or type(size) is int) for name, size in files.items()
    )


def cached_file(place: Place, commit: str) -> Path | None:
    """`place.file` in the Hub's cache at `commit`, or None."""
    found = try_to_load_from_cache(place.repo, place.file or "", revision=commit, repo_type=place.type)
    return Path(found) if isinstance(found, str) else None  # it may be known to be absent


def download(place: Place, commit: str, *, bar: bool = False) -> Path:
    """`place.file` at `commit`, fetched into the Hub's cache; with a `bar` the client's own, on stderr.

    Raises NotFoundError, AccessError, NetworkError.
    """
    file = place.file or ""

    def fetch(revision: str) -> Path:
        return Path(
            hf_hub_download(
                place.repo,
                file,
                repo_type=place.type,
                revision=revision,
                library_name=_TOOL,
                library_version=__version__,
                tqdm_class=None if bar else silent_tqdm,
            )
        )

    # By the branch's name where the cache does not know where it points: the client then notes it, for offline use.
    asked = commit if _client_commit(place) == commit else place.revision or _MAIN
    path = _ask(lambda: fetch(asked), place)
    moved = path.parents[len(PurePosixPath(file).parts) - 1].name != commit
    return _ask(lambda: fetch(commit), place) if moved else path


def remote_size(place: Place, commit: str) -> int | None:
    """Bytes of `place.file`, by a HEAD request; None where the server does not say."""
    url = hf_hub_url(place.repo, place.file or "", repo_type=place.type, revision=commit)
    timeout = constants.HF_HUB_DOWNLOAD_TIMEOUT
    return _ask(lambda: get_hf_file_metadata(url, timeout=timeout), place).size


def fetch_range(place: Place, commit: str, start: int, stop: int) -> bytes:
    """Bytes `[start, stop)` of `place.file`, fewer where the file ends before `stop`, never more.

    Raises NotFoundError, AccessError; NetworkError, also where the server ignores the range: its body is not read.
    """
    url = hf_hub_url(place.repo, place.file or "", repo_type=place.type, revision=commit)
    # Compressed bytes would not be the file's.
    asked = {"Range": f"bytes={start}-{stop - 1}", "Accept-Encoding": "identity"}

    def fetch() -> bytes:
        headers = {**build_hf_headers(library_name=_TOOL, library_version=__version__), **asked}
        timeout = constants.HF_HUB_DOWNLOAD_TIMEOUT
        with get_session().stream("GET", url, headers=headers, follow_redirects=True, timeout=timeout) as response:
            if response.status_code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
                return b""  # the file ends before `start`
            hf_raise_for_status(response)
            return _read_exactly(response, _announced(response, start, stop, place), place)

    return _ask(fetch, place) if start < stop else b""


def _announced(response: httpx2.Response, start: int, stop: int, place: Place) -> int:
    """The length of the body that the head announces, once it is known to be the range that was asked for."""
    length = response.headers.get("Content-Length", "")
    if response.status_code == HTTPStatus.OK and start == 0 and length.isdigit() and int(length) <= stop:
        return int(length)  # the whole file, which lies inside the range
    match = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", ""))
    if response.status_code != HTTPStatus.PARTIAL_CONTENT or match is None:
        _refuse("the server ignores Range and would send the whole file", place)
    first, last = int(match[1]), int(match[2])
    if first != start or not start <= last < stop:
        _refuse("the server sends another range than asked", place)
    if last + 1 < stop and match[3] not in ("*", str(last + 1)):
        raise CutShortError
    return last + 1 - start


def _read_exactly(response: httpx2.Response, length: int, place: Place) -> bytes:
    chunks, received = [], 0
    for chunk in response.iter_bytes():
        chunks.append(chunk)
        received += len(chunk)
        if received > length:
            _refuse("the server sends more than it announced", place)
    if received < length:
        raise CutShortError
    return b"".join(chunks)


def _refuse(what: str, place: Place) -> NoReturn:
    where = f"{place.file} of {place} at {constants.ENDPOINT}"
    raise NetworkError(what, where, f"fetch the file with hf download {place.repo} and name its folder")


def _list_cache(place: Place) -> Listing:
    commit = place.revision if is_commit(place.revision) else _last_commit(place)
    known = _kept_listing(place, commit)
    if known is not None:
        return known
    snapshot = None if commit is None else _snapshot(place, commit)
    if snapshot is None:
        raise offline(place)
    return Listing(snapshot.name, LocalSource(place.path, snapshot).files(), complete=False)


def _note_commit(place: Place, commit: str) -> None:
    """Keeps where a branch or tag points, for offline use: the client notes it only when it downloads something."""
    if not is_commit(place.revision):
        kept.keep(_branch(place), f"{commit} {_client_commit(place)}".encode())


def _last_commit(place: Place) -> str | None:
    """Where the branch or tag was last seen to point: our note, unless the client's has changed since."""
    client = _client_commit(place)
    noted = (kept.recall(_branch(place)) or b"").decode(errors="replace")
    commit, _, seen = noted.partition(" ")
    return commit if is_commit(commit) and seen == client else client or None


def _branch(place: Place) -> tuple[str, ...]:
    return ("branch", place.path, place.revision or _MAIN)


def _client_commit(place: Place) -> str:
    """Where the client's cache has the branch or tag point, "" where it does not know."""
    snapshot = _snapshot(place, place.revision or _MAIN)
    return "" if snapshot is None else snapshot.name


def _snapshot(place: Place, revision: str) -> Path | None:
    """The folder that the cache keeps for `revision`; named after its commit, it may hold a part of the files."""
    try:
        # No pattern: an incomplete folder is welcome.
        return Path(
            snapshot_download(
                place.repo, repo_type=place.type, revision=revision, local_files_only=True, allow_patterns=[]
            )
        )
    except LocalEntryNotFoundError:
        return None


def _ask(action: Callable[[], T], place: Place) -> T:
    try:
        return attempt(action)
    except AuditError:
        raise
    except Exception as error:
        raise explain(error, place) from error
