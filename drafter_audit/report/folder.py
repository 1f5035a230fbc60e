"""Makes the folder of `lint --write-config`: a config.json, its diff, and links to all else."""

from __future__ import annotations

import os
from pathlib import Path

from drafter_audit.audit.written_config import OPTION, Written
from drafter_audit.errors import AuditError, UsageError

_OWN = ("config.json", "config.json.diff")


def write_folder(written: Written) -> None:
    """Writes `written`. The drafter's own folder is never touched, no weight copied.

    Raises UsageError where the folder is not empty or lies in the drafter's own, AuditError where the disk refuses.
    """
    folder, source = written.folder.resolve(), written.source.resolve()
    _check(folder, source)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for entry in sorted(source.iterdir()):
            if entry.name not in _OWN:
                os.symlink(entry.resolve(), folder / entry.name, target_is_directory=entry.is_dir())
        (folder / "config.json").write_text(written.text, encoding="utf-8")
        (folder / "config.json.diff").write_text(written.diff, encoding="utf-8")
    except OSError as error:
        where = str(error.filename2 or error.filename or folder)
        raise AuditError(f"cannot write: {error.strerror}", where, f"choose another folder for {OPTION}") from error


def _check(folder: Path, source: Path) -> None:
    if folder == source or source in folder.parents:
        raise UsageError("it lies in the drafter's own folder", f"{OPTION} {folder}", "name a folder outside it")
    if os.path.lexists(folder) and not folder.is_dir():
        raise UsageError("it is no folder", f"{OPTION} {folder}", "name a folder")
    if folder.is_dir() and any(folder.iterdir()):
        raise UsageError("it is not empty", f"{OPTION} {folder}", "name a new or empty folder")
