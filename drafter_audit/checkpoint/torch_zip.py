"""The zip archive that torch.save writes: its directory, its one pickle, and where each storage lies.

Layout, by torch's serialization.py and caffe2/serialize/inline_container.cc: `NAME/data.pkl` describes the tensors,
`NAME/data/KEY` holds the bytes of one storage, stored and not compressed, from a multiple of 64 bytes on;
`NAME/byteorder` says "little" or "big". Of the archive its directory, its head and the pickle are read, no storage.
"""

from __future__ import annotations

import struct
import zipfile
import zlib
from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from typing import IO, NoReturn, cast

from drafter_audit.checkpoint.range_file import BLOCK_BYTES, RangeFile
from drafter_audit.errors import PickledError
from drafter_audit.sources.base import Source
from drafter_audit.sources.names import leaves_folder

MAX_DIRECTORY_BYTES = 8 * 2**20
"""About 100,000 entries."""

MAX_PICKLE_BYTES = 64 * 2**20

_PICKLE = "data.pkl"
_LOCAL_BYTES = 30  # a local header without its name and extra field
_LOCAL_MAGIC = b"PK\x03\x04"
_ENCRYPTED, _HAS_DESCRIPTOR = 0x1, 0x8
_ALIGNMENT = 64
_MOST_EXTRA = 28 + 4 + _ALIGNMENT  # sizes of 64 bits, the head of the padding, the padding
# What zipfile raises over damaged bytes; NotImplementedError is its word for a compression or version it does not know.
_DAMAGED = (zipfile.BadZipFile, NotImplementedError, ValueError, OverflowError, EOFError, struct.error)
_REDOWNLOAD, _DISTRUST = "download the real file", "do not trust this file; torch.save writes no such archive"


@dataclass(frozen=True)
class TorchZip:
    """An archive whose directory has been read and checked. `prefix` is the folder that all its entries lie in."""

    file: RangeFile
    entries: dict[str, zipfile.ZipInfo]
    prefix: str
    directory: int  # where the entries end and the directory begins, in bytes from the file's start

    def pickle(self) -> bytes:
        """The description of the tensors. Raises PickledError above MAX_PICKLE_BYTES or where it is damaged."""
        return self._content(self.prefix + _PICKLE, MAX_PICKLE_BYTES)

    @property
    def is_big_endian(self) -> bool:
        name = f"{self.prefix}byteorder"
        return name in self.entries and self._content(name, 16) == b"big"

    def storage(self, key: str) -> tuple[int, int]:
        """Where the bytes of storage `key` begin in the file, and how many they are. Raises PickledError."""
        name = f"{self.prefix}data/{key}"
        entry = self.entries.get(name)
        if entry is None:
            self._refuse(f"the storage {name!r} is not in the archive", _REDOWNLOAD)
        start = self._aligned_start(entry)
        return (self._start(entry) if start is None else start), entry.file_size

    def _content(self, name: str, limit: int) -> bytes:
        entry = self.entries[name]
        if entry.file_size > limit:
            self._refuse(f"{name} has {entry.file_size} bytes, more than {limit}", "check that it is the right file")
        self.file.limit = limit
        start = self._start(entry)
        data = self.file.part(start, start + entry.file_size)
        if entry.CRC not in (0, zlib.crc32(data)):  # torch writes 0 where it was told to leave checksums out
            self._refuse(f"{name} is damaged: its checksum is wrong", _REDOWNLOAD)
        return data

    def _aligned_start(self, entry: zipfile.ZipInfo) -> int | None:
        """Where torch put the bytes, by the directory alone: a request for each of hundreds of headers is saved.

        They end where the next entry begins, less a descriptor of 16 or 24 bytes, and begin at a multiple of 64 that
        the entry's header reaches. None where that gives no place.
        """
        after = bisect_right(self._offsets, entry.header_offset)
        end = min([self.directory, *self._offsets[after : after + 1]])
        least = entry.header_offset + _LOCAL_BYTES + len(entry.filename.encode())
        for descriptor in (16, 24) if entry.flag_bits & _HAS_DESCRIPTOR and entry.file_size else (0,):
            start = end - descriptor - entry.file_size
            if start % _ALIGNMENT == 0 and least <= start <= least + _MOST_EXTRA:
                return start
        return None

    def _start(self, entry: zipfile.ZipInfo) -> int:
        """Where the bytes begin, by the entry's own header."""
        at, name = entry.header_offset, entry.filename.encode()
        if at < 0 or at + _LOCAL_BYTES + len(name) + entry.file_size > self.directory:
            self._refuse(f"{entry.filename!r} leaves the archive", _REDOWNLOAD)
        in_head = at + _LOCAL_BYTES + len(name) <= BLOCK_BYTES
        read = self.file.part if in_head else self.file.exactly
        head = read(at, at + _LOCAL_BYTES + len(name))
        # The lengths of the name and of the extra field, whose size the directory does not tell.
        start = at + _LOCAL_BYTES + int.from_bytes(head[26:28], "little") + int.from_bytes(head[28:30], "little")
        if head[:4] != _LOCAL_MAGIC or head[_LOCAL_BYTES:] != name or start + entry.file_size > self.directory:
            self._refuse(f"the header of {entry.filename!r} is not what the directory says", _DISTRUST)
        return start

    @cached_property
    def _offsets(self) -> list[int]:
        return sorted(entry.header_offset for entry in self.entries.values())

    def _refuse(self, what: str, mend: str) -> NoReturn:
        raise PickledError(what, self.file.where, mend)


def open_file(source: Source, name: str) -> RangeFile:
    """The file `name`, of which no read takes more than a directory may. Raises what RangeFile raises."""
    return RangeFile(source, name, limit=MAX_DIRECTORY_BYTES)


def open_torch_zip(file: RangeFile) -> TorchZip:
    """The archive in `file`, which begins as one. Raises PickledError for one that torch.save cannot have written."""
    file.fetch(file.size - BLOCK_BYTES, file.size)
    try:
        with zipfile.ZipFile(cast("IO[bytes]", file)) as archive:
            infos, directory = archive.infolist(), int(archive.start_dir)
    except _DAMAGED as error:
        what = f"cut short or damaged: it begins as a zip archive and its directory cannot be read ({error})"
        raise PickledError(what, file.where, _REDOWNLOAD) from error
    for entry in infos:
        _check_entry(entry, file.where)
    entries = {entry.filename: entry for entry in infos}
    if len(entries) < len(infos):
        raise PickledError("an archive with two entries of one name", file.where, _DISTRUST)
    return TorchZip(file, entries, _prefix(entries, file.where), directory)


def _check_entry(entry: zipfile.ZipInfo, where: str) -> None:
    if entry.flag_bits & _ENCRYPTED:
        raise PickledError(f"{entry.filename!r} is encrypted", where, _DISTRUST)
    if entry.compress_type != zipfile.ZIP_STORED or entry.compress_size != entry.file_size:
        raise PickledError(f"{entry.filename!r} is compressed", where, _DISTRUST)
    if leaves_folder(entry.orig_filename) or entry.orig_filename != entry.filename:
        raise PickledError(f"the entry name {entry.orig_filename!r} leaves its folder", where, _DISTRUST)


def _prefix(entries: dict[str, zipfile.ZipInfo], where: str) -> str:
    """The one folder, `NAME/`, that the archive's entries lie in."""
    pickles = [name for name in entries if name.rpartition("/")[2] == _PICKLE]
    if len(pickles) != 1:
        what = f"an archive with {len(pickles)} pickles named {_PICKLE}" if pickles else f"an archive without {_PICKLE}"
        raise PickledError(what, where, _DISTRUST if pickles else "name a file that torch.save wrote")
    prefix = pickles[0].removesuffix(_PICKLE)
    stray = next((name for name in entries if not name.startswith(prefix)), None)
    if stray is not None:
        raise PickledError(f"the entry {stray!r} lies outside {prefix!r}", where, _DISTRUST)
    if f"{prefix}constants.pkl" in entries:
        mend = "save its state_dict() instead of the program"
        raise PickledError("a TorchScript program, not a checkpoint", where, mend)
    return prefix
