"""A file that is there whole or not at all, whatever ends the process that writes it."""

from __future__ import annotations

import errno
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

from drafter_audit.errors import AuditError, UsageError

PARTS = ".parts"
"""The folder beside a file where it is written: what a killed run, or a library in it, leaves behind lies there."""


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Gives a name to write to, which becomes `path` at the end, once its bytes are on the disk.

    Raises AuditError where the disk refuses; what was written so far is then taken away.
    """
    parts = path.parent / PARTS
    try:
        parts.mkdir(exist_ok=True)
        yield parts / path.name
        (parts / path.name).chmod(0o666 & ~_mask())  # safetensors gives its files to their owner alone
        _to_disk(parts / path.name)
        (parts / path.name).replace(path)
        if os.name == "posix":  # elsewhere a folder cannot be opened
            _to_disk(path.parent)
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        mend = "make room, and run the same command again: it goes on where this one stopped"
        raise AuditError(f"cannot write: {reason}", str(path), mend) from error
    finally:
        shutil.rmtree(parts, ignore_errors=True)


_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EBADF, errno.EINVAL)
"""What a file system without locks answers; one over a network may want a file that is open for writing."""


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Holds `folder`, made where it is not there, for this process until it ends in whatever way: two runs in it would
    take each other's machine and files. Where a file system knows no locks, as some over a network, nothing is held.

    Raises UsageError where another run holds it, AuditError where it cannot be made or held.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise AuditError(f"cannot write: {error.strerror}", str(folder), "choose another folder") from error
    if sys.platform == "win32":
        yield
        return
    import fcntl

    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            mend = "wait until that has ended, or name another folder"
            raise UsageError("another run is at work in it", str(folder), mend) from error
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                what = f"cannot be held for this run: {error.strerror}"
                raise AuditError(what, str(folder), "choose another folder") from error
        yield
    finally:
        os.close(descriptor)


def write_text(path: Path, text: str) -> None:
    """`text` as a whole file. Raises AuditError."""
    with whole_file(path) as part:
        part.write_text(text, encoding="utf-8")


def _mask() -> int:
    """What new files are denied; it can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _to_disk(path: Path) -> None:
    """A rename that outlives its content, after a power cut, would leave an empty file under the final name."""
    descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
