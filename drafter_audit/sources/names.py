"""File names inside a checkpoint: which are weights, and which would leave the checkpoint's folder."""

from __future__ import annotations

from pathlib import PurePosixPath, PureWindowsPath

WEIGHT_SUFFIXES = (".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".gguf")


def is_weight_name(name: str) -> bool:
    """Whether `name` ends as a weight file does, in whatever format.

    >>> is_weight_name("model-00001-of-00002.safetensors"), is_weight_name("config.json")
    (True, False)
    """
    return name.lower().endswith(WEIGHT_SUFFIXES)


def leaves_folder(name: str) -> bool:
    r"""Whether `name`, joined to a folder, could point outside it; on Windows as well as on POSIX.

    >>> [leaves_folder(name) for name in ("sub/a.json", "../a.json", "/a.json", "c:\\a.json", "a\0b")]
    [False, True, True, True, True]
    """
    windows = PureWindowsPath(name)
    parts = {*PurePosixPath(name).parts, *windows.parts}
    return not name or "\0" in name or ".." in parts or name.startswith(("/", "\\")) or bool(windows.drive)
