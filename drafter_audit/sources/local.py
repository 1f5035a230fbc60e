"""A checkpoint in a local folder. Standard library only: no Hub client, no numpy, no safetensors."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import BinaryIO, Literal

from drafter_audit.errors import AccessError, CheckpointError, NotFoundError, SourceError
from drafter_audit.sources.names import leaves_folder
from drafter_audit.sources.reference import Reference


@dataclass(frozen=True)
class LocalSource:
    """Files below `folder`. Symlinks are followed: the Hub's cache is made of them."""

    ref: str
    folder: Path
    weights_file: str | None = None

    @property
    def kind(self) -> Literal["local"]:
        return "local"

    @property
    def name(self) -> str:
        return str(self.folder)

    @property
    def revision(self) -> None:
        return None

    def files(self) -> Mapping[str, int | None]:
        """Name to size in bytes (None: a dead link) of the files in the folder and its subfolders, hidden ones not."""
        return self._files

    @cached_property
    def _files(self) -> dict[str, int | None]:
        found: dict[str, int | None] = {}
        for folder, subfolders, names in os.walk(self.folder, onerror=self._refuse):
            # No deeper than a folder of shards lies: the folder named may be a home, or the root of a disk.
            inner = Path(folder) != self.folder
            subfolders[:] = [] if inner else sorted(name for name in subfolders if not name.startswith("."))
            for name in names:
                path = Path(folder, name)
                found[path.relative_to(self.folder).as_posix()] = _size(path)
        return dict(sorted(found.items()))

    def read(self, name: str, *, limit: int) -> bytes:
        """The whole file. Raises NotFoundError, AccessError; CheckpointError above `limit` bytes."""
        with self._open(name) as file:
            data = file.read(limit + 1)
        if len(data) > limit:
            raise CheckpointError(f"{name} is larger than {limit} bytes", self.name, "check that it is the right file")
        return data

    def read_range(self, name: str, start: int, stop: int, *, keep: bool = False) -> bytes:
        """Bytes `[start, stop)`, fewer where the file ends before. Raises NotFoundError, AccessError."""
        with self._open(name) as file:
            file.seek(start)
            return file.read(max(0, stop - start))

    def _refuse(self, error: OSError) -> None:
        """The folder itself must be readable; what others keep beside the checkpoint need not be."""
        if error.filename == str(self.folder):
            raise _refused(error, str(error.filename)) from error

    def _open(self, name: str) -> BinaryIO:
        if leaves_folder(name):
            raise CheckpointError(f"the file name {name!r} leaves its folder", self.name, "name a file inside it")
        path = self.folder / name
        try:
            if not stat.S_ISREG(path.stat().st_mode):  # opening a pipe would wait for ever
                raise CheckpointError(f"{name} is not a regular file", self.name, "put a file there")
            return path.open("rb")
        except (FileNotFoundError, NotADirectoryError) as error:
            what = f"{name} is a link to nothing" if path.is_symlink() else f"no {name}"
            raise NotFoundError(what, self.name, "check the folder") from error
        except OSError as error:
            raise _refused(error, f"{self.name}/{name}") from error


def open_local(reference: Reference) -> LocalSource:
    """The folder that `reference` names; nothing is read yet."""
    return LocalSource(reference.ref, Path(reference.name), reference.weights_file)


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None


def _refused(error: OSError, where: str) -> SourceError:
    if isinstance(error, PermissionError):
        return AccessError("no permission to read", where, "check who may read it")
    return SourceError(f"cannot be read ({error.strerror})", where, "check the disk")
