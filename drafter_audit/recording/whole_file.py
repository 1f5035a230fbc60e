"""A file that is there whole or not at all, whatever ends the process that writes it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

from drafter_audit.errors import AuditError

PART = ".part"


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Gives a name beside `path` to write to, which becomes `path` at the end, once its bytes are on the disk.

    Raises AuditError where the disk refuses; what was written so far is then taken away.
    """
    part = path.with_name(path.name + PART)
    try:
        yield part
        _to_disk(part)
        part.replace(path)
        if os.name == "posix":  # elsewhere a folder cannot be opened
            _to_disk(path.parent)
    except (OSError, SafetensorError) as error:
        part.unlink(missing_ok=True)
        reason = getattr(error, "strerror", None) or str(error)
        mend = "make room, and run the same command again: it goes on where this one stopped"
        raise AuditError(f"cannot write: {reason}", str(path), mend) from error
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def write_text(path: Path, text: str) -> None:
    """`text` as a whole file. Raises AuditError."""
    with whole_file(path) as part:
        part.write_text(text, encoding="utf-8")


def _to_disk(path: Path) -> None:
    """A rename that outlives its content, after a power cut, would leave an empty file under the final name."""
    descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
