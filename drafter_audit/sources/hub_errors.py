"""What the Hub's client raises, as our errors: one table, subclasses first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import httpx2
from huggingface_hub import constants
from huggingface_hub.errors import (
    DisabledRepoError,
    EntryNotFoundError,
    FileMetadataError,
    GatedRepoError,
    HfHubHTTPError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from drafter_audit.errors import AccessError, AuditError, NetworkError, NotFoundError, SourceError
from drafter_audit.sources.base import RepoType
from drafter_audit.sources.client import BusyError, CutShortError, SecondTryError, SlowError

_CODE = "X-Error-Code"
_YEAR_S = 31_536_000  # more need not be told apart
_IF_PRIVATE = "check the name; if it is private, set HF_TOKEN or run hf auth login"


@dataclass(frozen=True)
class Place:
    """What was being read, for the messages: a repository, its type, its revision, and a file or None.

    `kept` is False where the next run would have to read the same again, as with rows of weights.
    """

    repo: str
    revision: str | None
    file: str | None = None
    kept: bool = True
    type: RepoType = "model"

    def __str__(self) -> str:
        return f"{self.path}@{self.revision}" if self.revision else self.path

    @property
    def path(self) -> str:
        """Where its page is on the Hub, behind the host."""
        return self.repo if self.type == "model" else f"{self.type}s/{self.repo}"

    @property
    def what(self) -> str:
        return self.file or "the repository"


def explain(error: Exception, place: Place) -> AuditError:
    """`error`, raised by the client while it read `place`, as one of ours; what it does not know it raises again."""
    if isinstance(error, AuditError):
        return error
    for kind, build in _TABLE:
        if isinstance(error, kind):
            return build(error, place)
    raise error


def offline(place: Place) -> NetworkError:
    """A file is not in the cache and the client may not fetch it."""
    revision = f" --revision {place.revision}" if place.revision else ""
    kind = "" if place.type == "model" else f" --repo-type {place.type}"
    run = "the same" if place.kept else f"hf download {place.repo} {place.file}{kind}{revision}"
    mend = f"run {run} once while online"
    return NetworkError(f"offline, and {place.what} is not in the Hub's cache", str(place), mend)


def _gated(error: GatedRepoError, place: Place) -> SourceError:
    mend = f"ask for access at {constants.ENDPOINT}/{place.path}, then set HF_TOKEN or run hf auth login"
    return AccessError("a gated repository", str(place), mend)


def _disabled(error: DisabledRepoError, place: Place) -> SourceError:
    return AccessError("the Hub has disabled this repository", str(place), "name another one")


def _repository(error: RepositoryNotFoundError, place: Place) -> SourceError:
    if error.response.status_code == HTTPStatus.UNAUTHORIZED and error.response.headers.get(_CODE) != "RepoNotFound":
        return _unauthorized(error, place)
    return NotFoundError("no such repository", str(place), _IF_PRIVATE)


def _unauthorized(error: HfHubHTTPError, place: Place) -> SourceError:
    if "Invalid credentials" in error.response.headers.get("X-Error-Message", ""):
        return AccessError("the Hub refuses the token", str(place), "check HF_TOKEN, or run hf auth login")
    # Without a token the Hub does not tell a private repository from none.
    return AccessError("no such repository, or a private one", str(place), _IF_PRIVATE)


def _revision(error: RevisionNotFoundError, place: Place) -> SourceError:
    mend = f"see the branches and tags at {constants.ENDPOINT}/{place.path}/tree/main"
    return NotFoundError(f"no such revision {place.revision!r}", str(place), mend)


def _entry(error: EntryNotFoundError, place: Place) -> SourceError:
    return NotFoundError(
        f"no {place.file}", str(place), f"see the files at {constants.ENDPOINT}/{place.path}/tree/main"
    )


def _uncached(error: LocalEntryNotFoundError, place: Place) -> AuditError:
    # The client says so for any failure on the way; what failed is the cause.
    cause = error.__cause__
    return explain(cause, place) if isinstance(cause, Exception) else offline(place)


def _offline(error: OfflineModeIsEnabled, place: Place) -> SourceError:
    return offline(place)


def _busy(error: BusyError, place: Place) -> SourceError:
    why = "too many requests (HTTP 429)" if error.status == 429 else f"the Hub fails (HTTP {error.status})"
    wait = "" if error.wait is None else f" and asks to wait {min(error.wait, _YEAR_S):.0f} s"
    token = "; a token (HF_TOKEN) has a larger quota" if error.status == 429 else ""
    return NetworkError(f"{why}{wait}", f"{place} at {constants.ENDPOINT}", f"try again later{token}")


def _status(error: HfHubHTTPError, place: Place) -> SourceError:
    status = error.response.status_code
    where = f"{place} at {constants.ENDPOINT}"
    if status == HTTPStatus.UNAUTHORIZED:
        return _unauthorized(error, place)
    if status == HTTPStatus.FORBIDDEN:
        return AccessError(f"access refused (HTTP {status})", where, "check HF_TOKEN, or run hf auth login")
    if status in (HTTPStatus.NOT_FOUND, HTTPStatus.GONE):
        return NotFoundError(f"{place.what} is not there (HTTP {status})", where, "check the name and the revision")
    return NetworkError(f"the Hub answered HTTP {status}", where, "check HF_ENDPOINT, or try again later")


def _timeout(error: httpx2.TimeoutException, place: Place) -> SourceError:
    what = f"no answer within {constants.HF_HUB_DOWNLOAD_TIMEOUT} s"
    return NetworkError(what, f"{place} at {constants.ENDPOINT}", "try again, or set HF_HUB_DOWNLOAD_TIMEOUT higher")


def _cut_short(error: Exception, place: Place) -> SourceError:
    return NetworkError(f"{place.what} came cut short", f"{place} at {constants.ENDPOINT}", "try again")


def _slow(error: SlowError, place: Place) -> SourceError:
    what = f"too slow: {error} came of {place.what}"
    return NetworkError(what, f"{place} at {constants.ENDPOINT}", "try again on another network")


def _no_connection(error: Exception, place: Place) -> SourceError:
    mend = "check the network, the proxy settings and HF_ENDPOINT"
    return NetworkError("no connection to the Hub", f"{place} at {constants.ENDPOINT}", mend)


def _not_a_hub(error: Exception, place: Place) -> SourceError:
    what = "the answer is not the Hub's"
    return NetworkError(what, f"{place} at {constants.ENDPOINT}", "check HF_ENDPOINT and the proxy settings")


def _disk(error: OSError, place: Place) -> SourceError:
    # The client raises a bare OSError where a download has the wrong size.
    if error.errno is None:
        return _cut_short(error, place)
    where = error.filename or constants.HF_HUB_CACHE
    return SourceError(
        f"the Hub's cache cannot be used ({error.strerror})", str(where), "set HF_HOME to another folder"
    )


def _second_try(error: SecondTryError, place: Place) -> SourceError:
    cut = isinstance(error.__context__, httpx2.RemoteProtocolError)
    return _cut_short(error, place) if cut else _no_connection(error, place)


_TABLE: tuple[tuple[type[Exception], Callable[[Any, Place], AuditError]], ...] = (
    (GatedRepoError, _gated),
    (DisabledRepoError, _disabled),
    (RepositoryNotFoundError, _repository),
    (RevisionNotFoundError, _revision),
    (LocalEntryNotFoundError, _uncached),
    (EntryNotFoundError, _entry),
    (OfflineModeIsEnabled, _offline),
    (BusyError, _busy),
    (HfHubHTTPError, _status),
    (SecondTryError, _second_try),
    (CutShortError, _cut_short),
    (SlowError, _slow),
    (httpx2.RemoteProtocolError, _cut_short),
    (httpx2.TimeoutException, _timeout),
    (httpx2.HTTPError, _no_connection),
    (httpx2.InvalidURL, _no_connection),
    (FileMetadataError, _not_a_hub),
    (OSError, _disk),
    # What parsing an answer of the wrong form raises inside the client.
    (ValueError, _not_a_hub),
    (LookupError, _not_a_hub),
    (TypeError, _not_a_hub),
    (AttributeError, _not_a_hub),
    (RecursionError, _not_a_hub),
)
