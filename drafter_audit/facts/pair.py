"""The reference pair: a trained target and its drafter, which travel with the package and are read as folders."""

from __future__ import annotations

from pathlib import Path

from drafter_audit.facts import registry

_FOLDERS = {"tiny": ("tiny", "drafter"), "tiny-target": ("tiny", "target")}

NAMES = tuple(_FOLDERS)


def folder_of(name: str) -> Path | None:
    """Where the checkpoint called `name` lies; None for any other name.

    >>> folder_of("tiny-target").parts[-3:]
    ('reference_models', 'tiny', 'target')
    """
    parts = _FOLDERS.get(name)
    return None if parts is None else registry.folder().joinpath(*parts)
