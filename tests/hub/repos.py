"""The repositories that the stand-in serves."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

Content = bytes | Path

TOKEN = "hf_accepted"
"""The one token that opens gated and private repositories."""


@dataclass
class Repo:
    """`revisions` maps a branch or tag to its commit, `commits` a commit to its files."""

    id: str
    revisions: dict[str, str] = field(default_factory=dict)
    commits: dict[str, dict[str, Content]] = field(default_factory=dict)
    gated: bool = False
    private: bool = False
    sizes: bool = True
    lfs: bool = False

    def push(self, revision: str, files: Mapping[str, Content]) -> str:
        """Points the branch or tag `revision` at a new commit of `files`, and returns the commit."""
        seed = f"{self.id} {revision} {len(self.commits)}"
        commit = hashlib.sha1(seed.encode()).hexdigest()
        self.revisions[revision] = commit
        self.commits[commit] = dict(files)
        return commit

    def resolve(self, revision: str) -> str | None:
        """The commit of a branch, a tag or a commit; None where there is none."""
        return revision if revision in self.commits else self.revisions.get(revision)


def size(content: Content) -> int:
    return content.stat().st_size if isinstance(content, Path) else len(content)


def read(content: Content, start: int, stop: int) -> bytes:
    """Bytes `[start, stop)`; of a file on disk only those are read."""
    if isinstance(content, bytes):
        return content[start:stop]
    with content.open("rb") as file:
        file.seek(start)
        return file.read(stop - start)


def etag(repo: Repo, commit: str, name: str) -> str:
    return hashlib.sha1(f"{repo.id} {commit} {name}".encode()).hexdigest()
