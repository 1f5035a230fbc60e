"""What the user typed, as data: which repository, folder or bundled record is meant.

A reference is read in this order, and the first that fits wins:

1. an existing local path, whatever it looks like;
2. `hf://...` or a Hub URL, with or without its scheme, also on HF_ENDPOINT's host;
3. the name of the reference pair's target or drafter, or of a bundled record;
4. something that looks like a path: then the path does not exist;
5. `org/name` or `org/name@revision` on the Hub.
"""

from __future__ import annotations

import difflib
import os
import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING
from urllib.parse import quote

from drafter_audit.errors import BadReferenceError, NotFoundError
from drafter_audit.sources.base import RepoType, SourceKind
from drafter_audit.sources.names import is_weight_name, leaves_folder

if TYPE_CHECKING:
    from huggingface_hub import HfUri

ACCEPTED = (
    "give org/name, org/name@revision, hf://org/name[@revision][/folder], a huggingface.co URL of a model, "
    "a local folder or .safetensors file, or a bundled name"
)
_DATASETS = "give a JSONL file, hf://datasets/org/name[@revision][/file.jsonl], or a huggingface.co URL of a dataset"
_HUB_HOSTS = ("huggingface.co/", "www.huggingface.co/", "hf.co/")


_COMMIT = re.compile(r"[0-9a-f]{40}")


def is_commit(revision: str | None) -> bool:
    """Whether `revision` is a full commit hash, which no branch or tag can move."""
    return revision is not None and _COMMIT.fullmatch(revision) is not None


@dataclass(frozen=True)
class Reference:
    """A reference, read but not looked up.

    `name` is `org/name` on the Hub, the folder's path, or the bundled name. `path` is what the reference
    named inside the repository, a folder or a file, "" for its root; only a listing can tell which.
    `weights_file` is the one weight file it named, relative to that folder.
    """

    ref: str
    kind: SourceKind
    name: str
    revision: str | None = None
    path: str = ""
    weights_file: str | None = None
    repo_type: RepoType = "model"


def parse_reference(ref: str) -> Reference:
    """`ref` as a `Reference`; nothing is fetched.

    Raises NotFoundError for a path that does not exist, BadReferenceError for what is no reference at all.

    >>> parse_reference("org/name@v1") == Reference("org/name@v1", "hub", "org/name", "v1")
    True
    """
    local = _existing_path(ref)
    if local is not None:
        return _local(ref, local)
    if any("\ud800" <= character <= "\udfff" for character in ref):  # bytes that are no UTF-8: a file's name at most
        raise BadReferenceError("not a reference, it is not UTF-8", repr(ref), ACCEPTED)
    if is_url(ref):
        return _hub(ref, _as_url(ref))
    if (folder := _of_the_pair(ref)) is not None:
        return Reference(ref, "local", str(folder))
    if ref in _bundled_names():
        return Reference(ref, "bundled", ref)
    if _looks_like_path(ref):
        raise NotFoundError("no such file or folder", ref, "check the path; a Hub repository is hf://org/name")
    if ref.partition("@")[0].count("/") == 1:
        return _hub(ref, _as_uri(ref))
    raise BadReferenceError("not a reference", repr(ref), _suggestion(ref) + ACCEPTED)


def parse_dataset(ref: str) -> Reference:
    """The dataset of the Hub that a URL or `hf://datasets/org/name[@revision][/path]` names; nothing is fetched.

    Raises BadReferenceError for anything else.
    """
    parsed = _parse_uri(ref, _as_url(ref), _DATASETS)
    if parsed.type != "dataset":
        raise BadReferenceError(f"a {parsed.type}, not a dataset", repr(ref), _DATASETS)
    return Reference(ref, "hub", parsed.id, parsed.revision, _checked_path(ref, parsed, _DATASETS), repo_type="dataset")


def at_hand(ref: str) -> bool:
    """Whether files stand behind `ref` without asking the Hub: a path that exists, or a name of the reference pair."""
    return os.path.exists(ref) or _of_the_pair(ref) is not None


def _existing_path(ref: str) -> Path | None:
    try:
        path = Path(ref).expanduser()
        return path if ref and path.exists() else None
    except (OSError, RuntimeError, ValueError):  # too long, no home folder, a NUL character
        return None


def _local(ref: str, path: Path) -> Reference:
    if path.is_dir():
        return Reference(ref, "local", str(path))
    weights = path.name if is_weight_name(path.name) else None
    return Reference(ref, "local", str(path.parent), weights_file=weights)


def is_url(ref: str) -> bool:
    """Whether `ref` is written as a URL or as the Hub's own URI, with or without its scheme."""
    return "://" in ref or ref.startswith((*_HUB_HOSTS, *_endpoint_hosts()))


def _endpoint_hosts() -> tuple[str, ...]:
    host = os.environ.get("HF_ENDPOINT", "").partition("://")[2].partition("/")[0]
    return (f"{host}/",) if host else ()


def _looks_like_path(ref: str) -> bool:
    return ref.startswith((".", "/", "~")) or ref.endswith(("/", ".json")) or "\\" in ref or is_weight_name(ref)


def _as_url(ref: str) -> str:
    return ref if "://" in ref else f"https://{ref}"


def _as_uri(ref: str) -> str:
    # All behind the @ is the revision, slashes too: a branch may be called feature/x.
    repo, at, revision = ref.partition("@")
    return f"hf://{repo}{at}{quote(revision, safe='')}"


def _hub(ref: str, uri: str) -> Reference:
    parsed = _parse_uri(ref, uri)
    if parsed.type != "model":
        raise BadReferenceError(f"a {parsed.type}, not a model", repr(ref), ACCEPTED)
    path = _checked_path(ref, parsed)
    if not is_weight_name(path):
        return Reference(ref, "hub", parsed.id, parsed.revision, path)
    folder, file = PurePosixPath(path).parent, PurePosixPath(path).name
    return Reference(ref, "hub", parsed.id, parsed.revision, "" if str(folder) == "." else str(folder), file)


def _checked_path(ref: str, parsed: HfUri, accepted: str = ACCEPTED) -> str:
    path = parsed.path_in_repo.strip("/")
    if (path and leaves_folder(path)) or (parsed.revision and leaves_folder(parsed.revision)):
        raise BadReferenceError("a path or revision with .. in it", repr(ref), accepted)
    return path


def _parse_uri(ref: str, uri: str, accepted: str = ACCEPTED) -> HfUri:
    # Imported here: a local path must not pay for the Hub's client.
    from huggingface_hub import parse_hf_uri
    from huggingface_hub.errors import HfUriError

    try:
        return parse_hf_uri(uri, endpoint=os.environ.get("HF_ENDPOINT") or None)
    except (HfUriError, ValueError) as error:
        reason = error.msg if isinstance(error, HfUriError) else str(error)
        raise BadReferenceError("not a reference", f"{ref!r} ({reason.strip().rstrip('.')})", accepted) from error


def _of_the_pair(ref: str) -> Path | None:
    from drafter_audit.facts import pair

    return pair.folder_of(ref)


def _bundled_names() -> tuple[str, ...]:
    from drafter_audit.sources.bundled import bundled_names

    return bundled_names()


def _suggestion(ref: str) -> str:
    from drafter_audit.facts import pair

    near = difflib.get_close_matches(ref, (*pair.NAMES, *_bundled_names()), n=1)
    return f"did you mean {near[0]}? or " if near else ""
