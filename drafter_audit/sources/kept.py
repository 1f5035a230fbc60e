"""What earlier runs read of the Hub by range, kept on disk: headers, large indexes, and listings, each by its commit.

A commit never changes, so what is kept of it needs no second look: a pinned reference costs no request, online or not.
The Hub's client keeps whole files only. These parts lie beside its cache, among the assets of HF_ASSETS_CACHE, in about
MAX_KEPT_BYTES. DRAFTER_AUDIT_NO_CACHE=1 turns them off.
"""

from __future__ import annotations

import logging
import os
import tempfile
import zlib
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from hashlib import sha256
from pathlib import Path

from huggingface_hub import constants

MAX_KEPT_BYTES = 256_000_000
MAX_ENTRY_BYTES = 32_000_000

_FORMAT = "1"
"""Of the entries. It is part of each key: a version that writes another one does not find these."""

_SWITCH = "DRAFTER_AUDIT_NO_CACHE"
_CHECK_BYTES = 4

_log = logging.getLogger(__name__)


def once(key: tuple[str, ...], fetch: Callable[[], bytes]) -> bytes:
    """The bytes kept under `key`, else those of `fetch`, which are then kept. Raises what `fetch` raises."""
    data = recall(key)
    if data is None:
        data = fetch()
        keep(key, data)
    return data


def recall(key: tuple[str, ...]) -> bytes | None:
    """What was kept under `key`; None where nothing is, or where it is damaged."""
    try:
        if _is_off():
            return None
        with _path(key).open("rb") as file:
            check, data = file.read(_CHECK_BYTES), file.read()
    except OSError:
        return None
    return data if check == _check(key, data) else None


def keep(key: tuple[str, ...], data: bytes) -> None:
    """Keeps `data` for later runs; a folder that cannot be written keeps nothing, and the log says so."""
    if _is_off() or len(data) > MAX_ENTRY_BYTES:
        return
    path = _path(key)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _make_room(path.parent)
        _write(path, _check(key, data) + data)
    except OSError as error:
        _log.info("nothing is kept in %s: %s", path.parent, error)


def _write(path: Path, data: bytes) -> None:
    """The whole of it or nothing, also where another process reads or writes the same."""
    handle, temporary = tempfile.mkstemp(dir=path.parent)
    try:
        with open(handle, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise


@cache
def _make_room(folder: Path) -> None:
    """Once per process: above MAX_KEPT_BYTES the oldest go, until half of it is left."""
    with os.scandir(folder) as found:
        entries = sorted((entry.stat().st_mtime, entry.stat().st_size, entry.path) for entry in found)
    total = sum(size for _, size, _ in entries)
    limit = MAX_KEPT_BYTES // 2 if total > MAX_KEPT_BYTES else total
    for _, size, path in entries:
        if total <= limit:
            return
        with suppress(FileNotFoundError):  # another process makes room too
            os.unlink(path)
        total -= size


def _path(key: tuple[str, ...]) -> Path:
    name = sha256("\0".join((_FORMAT, *key)).encode()).hexdigest()
    return Path(constants.HF_ASSETS_CACHE) / "drafter-audit" / "headers" / name


def _check(key: tuple[str, ...], data: bytes) -> bytes:
    """Over the key too: four zero bytes are the CRC-32 of nothing, and another entry's file is not this one."""
    return zlib.crc32(data, zlib.crc32("\0".join(key).encode())).to_bytes(_CHECK_BYTES, "little")


def _is_off() -> bool:
    return os.environ.get(_SWITCH, "0") not in ("", "0")
