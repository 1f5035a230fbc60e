"""Makes the folder of `lint --write-config`: a config.json, its diff, and links to all else."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from drafter_audit.audit.written_config import OPTION, Written
from drafter_audit.errors import AuditError, UsageError

_OWN = ("config.json", "config.json.diff")


def check_folder(named: str, output: str | None) -> None:
    """Raises UsageError where `named` names no folder, or the report, `output`, would lie in it."""
    if not named.strip():
        raise UsageError("no folder name", OPTION, "name the folder to make")
    folder = Path(named).resolve()
    if output is not None and folder in Path(output).resolve().parents:  # a link there would lead to the weights
        raise UsageError("the report would lie in the new folder", f"-o {output}", "write it elsewhere")


@contextmanager
def new_folder(written: Written) -> Iterator[None]:
    """Writes `written`, and takes it away again where what follows fails, so that the same command can be repeated.

    The drafter's own folder is never touched, no weight copied; hidden files (.git, .cache) are not linked, as a tool
    would follow them back. Raises UsageError where the folder lies in the drafter's own, AuditError where the disk
    refuses.
    """
    folder, source = written.folder.resolve(), written.source.resolve()
    _check_place(folder, source)
    first = _first_new(folder)
    try:
        _fill(folder, source, written)
        yield
    except BaseException:
        _empty(folder, first)
        raise


def _check_place(folder: Path, source: Path) -> None:
    if folder == source or source in folder.parents:
        raise UsageError("it lies in the drafter's own folder", f"{OPTION} {folder}", "name a folder outside it")
    if os.path.lexists(folder) and not folder.is_dir():
        raise UsageError("it is no folder", f"{OPTION} {folder}", "name a folder")
    if folder.is_dir() and any(folder.iterdir()):
        raise UsageError("it is not empty", f"{OPTION} {folder}", "name a new or empty folder")


def _fill(folder: Path, source: Path, written: Written) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for entry in sorted(source.iterdir()):
            if entry.name not in _OWN and not entry.name.startswith("."):
                os.symlink(entry.resolve(), folder / entry.name, target_is_directory=entry.is_dir())
        (folder / "config.json").write_text(written.text, encoding="utf-8")
        (folder / "config.json.diff").write_text(written.diff, encoding="utf-8")
    except OSError as error:
        where = str(error.filename2 or error.filename or folder)
        raise AuditError(f"cannot write: {error.strerror}", where, f"choose another folder for {OPTION}") from error


def _first_new(folder: Path) -> Path | None:
    """The outermost folder that has to be made, None where `folder` is there."""
    missing = [each for each in (folder, *folder.parents) if not os.path.lexists(each)]
    return missing[-1] if missing else None


def _empty(folder: Path, first: Path | None) -> None:
    """Removes the entries of `folder`, which was empty before, and the folders made for it from `first` on."""
    if first is not None:
        shutil.rmtree(first, ignore_errors=True)  # links are unlinked, not followed
    elif folder.is_dir():
        for entry in folder.iterdir():
            entry.unlink()
