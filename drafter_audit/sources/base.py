"""What a reference becomes: a named set of files that can be read whole or by range."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Protocol

SourceKind = Literal["hub", "local", "bundled"]
RepoType = Literal["model", "dataset"]
"""Of what the Hub keeps."""


class Source(Protocol):
    """Files behind one reference. File names are POSIX paths relative to the checkpoint's folder."""

    @property
    def ref(self) -> str:
        """The reference as the user wrote it."""

    @property
    def kind(self) -> SourceKind: ...

    @property
    def name(self) -> str:
        """`org/name` on the Hub (of a bundled record too), else the folder's path: what errors and tables show."""

    @property
    def revision(self) -> str | None:
        """The commit the branch or tag resolved to; None where there is none."""

    @property
    def weights_file(self) -> str | None:
        """The one weight file that the reference named, if it named a file; None: the checkpoint's usual files."""

    def files(self) -> Mapping[str, int | None]:
        """Each file's name and its size in bytes (None where the listing does not say)."""

    def read(self, name: str, *, limit: int) -> bytes:
        """The whole of a small file. Raises NotFoundError, NetworkError; CheckpointError above `limit` bytes."""

    def read_range(self, name: str, start: int, stop: int, *, keep: bool = False) -> bytes:
        """Bytes `[start, stop)`, fewer only where the file ends before `stop`. Never reads beyond `stop`.

        `keep` says that a later run may want the same bytes: a remote source then keeps them on disk.
        """
