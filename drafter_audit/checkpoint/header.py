"""The header of a safetensors file, read strictly and without the weights behind it.

The format: 8 bytes, little endian, the header's length N; N bytes of JSON; the tensors' bytes, back to back
(https://github.com/huggingface/safetensors#format). A header is accepted when the safetensors library accepts it,
bar two things the library lets pass: a key that stands twice, which the format forbids, and an entry that is no
object (`["U8", [2], [0, 2]]`, `{"dtype": {"U8": null}}`), which only its JSON parser understands.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple, NoReturn, TypeGuard, cast

from drafter_audit.checkpoint.strict_json import finite_float, refuse_constant, unique_object
from drafter_audit.errors import HeaderError

MAX_HEADER_BYTES = 100_000_000
"""The format's own limit on N."""

LENGTH_BYTES = 8

DTYPE_BITS = MappingProxyType(
    {
        "F4": 4,
        **dict.fromkeys(("F6_E2M3", "F6_E3M2"), 6),
        **dict.fromkeys(("BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"), 8),
        **dict.fromkeys(("U16", "I16", "F16", "BF16"), 16),
        **dict.fromkeys(("U32", "I32", "F32"), 32),
        **dict.fromkeys(("U64", "I64", "F64", "C64"), 64),
    }
)
"""Bits per element of every dtype the format knows."""

_MAX_UINT = 2**64 - 1
_MAX_DEPTH = 126  # what the library's JSON parser follows
_DOWNLOAD = "download the real file"

# A header as writers write it, with or without a space after commas and colons, and no escape in its strings.
_STRING = r'"[^"\\\x00-\x1f]*+"'
_SIZE = "(?:0|[1-9][0-9]*+)"
_METADATA = re.compile(rf'\{{(?:"__metadata__": ?(\{{(?:{_STRING}: ?{_STRING}(?:, ?)?)*+\}}), ?)?')
_ENTRIES = re.compile(
    r'"([^"\\\x00-\x1f]*+)": ?\{"dtype": ?"'
    rf'([A-Z0-9_]++", ?"shape": ?\[(?:{_SIZE}(?:, ?{_SIZE})*+)?)\], ?'
    rf'"data_offsets": ?\[({_SIZE}), ?({_SIZE})\]\}}(?:, ?(?=")|\}} *\Z)'
    "|(.++)",
    re.DOTALL,
)


class HeaderEntry(NamedTuple):
    """One tensor; `start` is its absolute byte offset in the file, `nbytes` its size in bytes.

    `strides` as in `TensorInfo`: only a pickled file has them.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    nbytes: int
    strides: tuple[int, ...] | None = None

    @property
    def end(self) -> int:
        return self.start + self.nbytes


@dataclass(frozen=True)
class Header:
    """The tensors in file order, and `__metadata__`, {} where there is none.

    `notes` are what a reader must know of the file beside its tensors; a safetensors file gives none.
    """

    entries: tuple[HeaderEntry, ...]
    metadata: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def header_end(head: bytes, file_size: int | None, where: str) -> int:
    """Where the header ends: the absolute offset of the first tensor byte.

    `head` is the file's first bytes, at least 8 where it has them, more to tell what a wrong file is instead;
    `file_size` is in bytes, None where nobody knows it: then nothing is checked against it. Raises HeaderError.
    """
    if not head:
        raise HeaderError("an empty file", where, _DOWNLOAD)
    length = int.from_bytes(head[:LENGTH_BYTES], "little")
    end = LENGTH_BYTES + length
    if len(head) < LENGTH_BYTES or length > MAX_HEADER_BYTES or (file_size is not None and end > file_size):
        raise HeaderError(*_misfit(head, length, file_size, where))
    return end


def parse_header(head: bytes, file_size: int | None, where: str) -> Header:
    """The header at the start of `head`, which holds all of it; `file_size` as in `header_end`.

    Raises HeaderError naming the tensor and the rule it breaks.
    """
    end = header_end(head, file_size, where)
    if len(head) < end:
        raise HeaderError(f"cut short: {len(head)} bytes came of a header of {end}", where, _DOWNLOAD)
    header = _usual_form(head, end) or _any_form(head, end, where)
    _check_end(header.entries[-1].end if header.entries else end, file_size, where)
    return header


def _any_form(head: bytes, end: int, where: str) -> Header:
    fields = _load(head, end, where)
    metadata = _metadata(fields.pop("__metadata__", None), where)
    entries = [_entry(name, value, end, where) for name, value in fields.items()]
    entries.sort(key=lambda entry: (entry.start, entry.nbytes))
    _check_cover(entries, end, where)
    return Header(tuple(entries), metadata)


def _usual_form(head: bytes, end: int) -> Header | None:
    """The header in a quarter of the time, where it is as writers write it; None leaves the judgement to the rest.

    Every byte is matched: what belongs to neither metadata nor entries ends up in the last group of `_ENTRIES`.
    """
    try:
        text = head[LENGTH_BYTES:end].decode("utf-8")
        start = _METADATA.match(text)
        found = _ENTRIES.findall(text, start.end()) if start else []
        if not start or not found or found[-1][-1]:
            return None
        metadata: dict[str, str] = json.loads(start[1] or "{}", object_pairs_hook=unique_object)
        entries = tuple(_usual_entries(found, end))
    except (ValueError, LookupError, RecursionError):
        return None
    names = {entry.name for entry in entries}
    return Header(entries, metadata) if len(names) == len(entries) and "__metadata__" not in names else None


def _usual_entries(found: list[tuple[str, str, str, str, str]], base: int) -> Iterator[HeaderEntry]:
    """Raises ValueError or LookupError for what is not clearly right, and where the order is not the file's."""
    specs: dict[str, tuple[str, tuple[int, ...], int]] = {}
    # A named tuple's own constructor is a Python call, too dear for 100,000 tensors.
    made: Callable[[tuple[Any, ...]], HeaderEntry] = partial(tuple.__new__, HeaderEntry)
    end = 0
    for name, spec, first, last, _ in found:
        if spec not in specs:
            specs[spec] = _usual_spec(spec)
        dtype, shape, nbytes = specs[spec]
        start, end = end, int(last)
        if int(first) != start or end - start != nbytes or end > _MAX_UINT:
            raise ValueError
        yield made((name, dtype, shape, base + start, nbytes, None))


def _usual_spec(spec: str) -> tuple[str, tuple[int, ...], int]:
    """dtype, shape and bytes of `F32","shape":[2,3`; many tensors have the same."""
    dtype, _, sizes = spec.replace(" ", "").partition('","shape":[')
    shape = [int(size) for size in sizes.split(",") if size]
    bits = _bits(dtype, shape)
    if bits is None or bits % 8:
        raise ValueError
    return sys.intern(dtype), tuple(shape), bits // 8


def _misfit(head: bytes, length: int, file_size: int | None, where: str) -> tuple[str, str, str]:
    """What, where and how to mend for a file whose first 8 bytes are no possible header length."""
    known = what_it_is(head)
    if known:
        return f"not a safetensors file but {known}", where, _remedy(known)
    if len(head) < LENGTH_BYTES:
        return f"cut short: {len(head)} bytes", where, _DOWNLOAD
    if length > MAX_HEADER_BYTES:
        limit = f"the format allows {MAX_HEADER_BYTES}"
        return f"not a safetensors file: its header would be {length} bytes and {limit}", where, _DOWNLOAD
    return f"cut short: its header is {length} bytes and the file has {file_size}", where, _DOWNLOAD


def what_it_is(head: bytes) -> str | None:
    """The name of what `head` starts, where that is no safetensors file but something often found in its place."""
    start = head.lstrip()[:64].lower()
    if start.startswith(b"version https://git-lfs"):
        return "a git-lfs pointer"
    if start.startswith((b"<!doctype", b"<html", b"<?xml", b"<head")):
        return "an HTML page"
    if head.startswith(b"PK\x03\x04"):
        return "a zip archive, as torch.save writes"
    if head[:1] == b"\x80" and head[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"):
        return "a pickle, as torch.save writes"
    return "a GGUF file" if head.startswith(b"GGUF") else None


def _remedy(known: str) -> str:
    if "git-lfs" in known:
        return "fetch it with git lfs pull or hf download"
    return "save it with safetensors.torch.save_file" if "torch.save" in known else _DOWNLOAD


def _load(head: bytes, end: int, where: str) -> dict[str, Any]:
    try:
        text = head[LENGTH_BYTES:end].decode("utf-8")
        fields = json.loads(
            text,
            object_pairs_hook=unique_object,
            parse_constant=refuse_constant,
            parse_float=finite_float,
            parse_int=_parse_int,
        )
        _check_strings(fields)
    except UnicodeDecodeError as error:
        _not_json(f"not UTF-8 at byte {LENGTH_BYTES + error.start}", head, where, error)
    except (ValueError, RecursionError) as error:
        _not_json(str(error), head, where, error)
    if not isinstance(fields, dict):
        raise HeaderError("a header that is not a JSON object", where, _DOWNLOAD)
    return fields


def _not_json(reason: str, head: bytes, where: str, error: Exception) -> NoReturn:
    known = what_it_is(head)
    what = f"not a safetensors file but {known}" if known else f"a header that is not valid JSON ({reason})"
    raise HeaderError(what, where, _remedy(known or "")) from error


def _parse_int(text: str) -> int | float:
    # -0 and what 64 bits cannot hold are floating point to the library, and a float is no size.
    if text == "-0" or len(text) > 20:
        return finite_float(text)
    return int(text)


def _check_strings(value: object, depth: int = 0) -> None:
    """Refuses half a surrogate pair, which is no text, and nesting that the library does not follow."""
    if isinstance(value, str):
        value.encode("utf-8")  # UnicodeEncodeError is a ValueError
    elif isinstance(value, dict | list):
        if depth > _MAX_DEPTH:
            raise ValueError("nested too deep")
        for item in (*value, *value.values()) if isinstance(value, dict) else value:
            _check_strings(item, depth + 1)


def _metadata(value: object, where: str) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(item, str) for item in value.values()):
        raise HeaderError("__metadata__ is not a map of strings to strings", where, "save the file again")
    return cast("dict[str, str]", value)


def _entry(name: str, value: object, base: int, where: str) -> HeaderEntry:
    def refuse(reason: str) -> NoReturn:
        raise HeaderError(f"tensor {name!r} {reason}", where, "save the file again")

    if not isinstance(value, dict):
        refuse("is not described by an object")
    dtype, shape, offsets = (value.get(key) for key in ("dtype", "shape", "data_offsets"))
    if not isinstance(dtype, str) or dtype not in DTYPE_BITS:
        refuse(f"has the unknown dtype {dtype!r}")
    if not _are_sizes(shape):
        refuse(f"has the shape {shape!r}, not a list of sizes")
    if not _are_sizes(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        refuse(f"has the data_offsets {offsets!r}, not a start and an end")
    bits = _bits(dtype, shape)
    if bits is None or bits % 8 or bits // 8 != offsets[1] - offsets[0]:
        refuse(f"is {dtype} of shape {shape} and cannot take {offsets[1] - offsets[0]} bytes")
    return HeaderEntry(name, dtype, tuple(shape), base + offsets[0], bits // 8)


def _are_sizes(value: object) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(type(item) is int and 0 <= item <= _MAX_UINT for item in value)


def _bits(dtype: str, shape: list[int]) -> int | None:
    """Bits of the tensor; None where a partial product, in the library's order, does not fit 64 bits."""
    bits = 1
    for size in (*shape, DTYPE_BITS[dtype]):
        bits *= size
        if bits > _MAX_UINT:
            return None
    return bits


def _check_cover(entries: list[HeaderEntry], base: int, where: str) -> None:
    """The format wants the tensors back to back from the header's end."""
    end = base
    for entry in entries:
        if entry.start != end:
            fault = "overlaps the tensor before it" if entry.start < end else "leaves a hole before it"
            raise HeaderError(f"tensor {entry.name!r} {fault}", where, "save the file again")
        end = entry.end


def _check_end(end: int, file_size: int | None, where: str) -> None:
    """The format wants the file to end where its last tensor does."""
    if file_size is None:
        return
    if file_size < end:
        raise HeaderError(f"cut short: its tensors end at byte {end} and the file has {file_size}", where, _DOWNLOAD)
    if file_size > end:
        raise HeaderError(f"{file_size - end} bytes after its last tensor", where, "save the file again")
