"""The tensors of a file that torch.save wrote, by name, dtype and shape, without running it.

The file is a zip archive (`torch_zip`) whose pickle describes the tensors. The pickle is followed opcode by opcode
over plain data (`pickle_machine`); the names that it may use are a closed list (`torch_objects`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod

from drafter_audit.checkpoint.header import DTYPE_BITS, Header, HeaderEntry, what_it_is
from drafter_audit.checkpoint.pickle_machine import run
from drafter_audit.checkpoint.range_file import BLOCK_BYTES, RangeFile
from drafter_audit.checkpoint.torch_objects import Refused, Tensor
from drafter_audit.checkpoint.torch_zip import TorchZip, open_file, open_torch_zip
from drafter_audit.errors import PickledError
from drafter_audit.sources.base import Source

STATE_DICT_KEYS = ("state_dict", "model_state_dict", "model", "module")
"""Where trainers put the weights in a dict that holds more than weights."""

_ZIP = b"PK\x03\x04"
_PICKLE = tuple(b"\x80" + bytes([protocol]) for protocol in range(2, 6))
_MAGIC = b"\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."  # torch's magic number 0x1950a86a20f9469cfc6c, a pickle of its own
_TAR = slice(257, 262)
_CONVERT = 'safetensors.torch.save_file(torch.load(FILE, weights_only=True), "model.safetensors")'
_DOWNLOAD = "download the real file"


def read_pickled(source: Source, name: str) -> Header:
    """The tensors of `name`, in the order of its state dict; two requests for most files, no weight is read.

    `start` is where a tensor's first element lies in the file. Tensors may share bytes: `notes` says which do, which
    are views with strides of their own, and what else the file holds. Raises PickledError for a pickle that asks for
    anything else than a state dict needs, for the formats before torch 1.6, for a damaged file; what the source raises.
    """
    file = open_file(source, name)
    _check_format(file)
    archive = open_torch_zip(file)
    try:
        tensors, notes = _state_dict(run(archive.pickle()))
    except Refused as refusal:
        raise PickledError(str(refusal), file.where, refusal.mend) from refusal
    if archive.is_big_endian:
        raise PickledError("big-endian weights", file.where, f"convert it on a machine of its kind: {_CONVERT}")
    entries = tuple(_entries(tensors, archive))
    return Header(entries, notes=(*notes, *_views(tensors)))


def _check_format(file: RangeFile) -> None:
    head = file.fetch(0, BLOCK_BYTES)
    if head.startswith(_ZIP):
        return
    if not head:
        raise PickledError("an empty file", file.where, _DOWNLOAD)
    if head.startswith(_PICKLE) and _MAGIC in head[:64]:  # protocol 4 and later put a frame before it
        raise PickledError("the format of torch before 1.6, a bare pickle", file.where, f"convert it: {_CONVERT}")
    if head.startswith(_PICKLE):
        raise PickledError(
            "a bare pickle, which torch.save did not write", file.where, "save a state_dict() as safetensors"
        )
    if head[_TAR] == b"ustar":
        raise PickledError("a tar archive, the format of torch before 0.1.10", file.where, f"convert it: {_CONVERT}")
    what = f"not a zip archive, as torch.save writes, but {what_it_is(head) or 'something else'}"
    raise PickledError(what, file.where, "fetch it with git lfs pull" if "git-lfs" in what else _DOWNLOAD)


def _state_dict(saved: object) -> tuple[dict[str, Tensor], tuple[str, ...]]:
    """The named tensors, and notes on what lay around them. Raises Refused where it is not plain which they are."""
    if not isinstance(saved, dict):
        raise Refused(f"it holds {'a tensor' if isinstance(saved, Tensor) else type(saved).__name__}, no state dict")
    if not _has_tensors(saved):
        key = _wrapped_at(saved)
        tensors, notes = _named(saved[key])
        return tensors, (f"the tensors lie under {key!r}", *notes, *_left_out(saved.keys() - {key}))
    return _named(saved)


def _has_tensors(value: object) -> bool:
    return isinstance(value, dict) and any(isinstance(item, Tensor) for item in value.values())


def _wrapped_at(saved: Mapping[object, object]) -> object:
    """The key of the one state dict in a dict of more."""
    found = [key for key, value in saved.items() if _has_tensors(value)]
    if len(found) > 1:
        names = ", ".join(repr(key) for key in found[:4])
        raise Refused(f"it holds several state dicts ({names}), and which is meant is not plain")
    if not found or found[0] not in STATE_DICT_KEYS:
        under = f" but under {found[0]!r}" if found else ""
        raise Refused(f"it holds no tensors{under}")
    return found[0]


def _named(saved: object) -> tuple[dict[str, Tensor], tuple[str, ...]]:
    assert isinstance(saved, dict)
    unnamed = next((key for key, value in saved.items() if isinstance(value, Tensor) and type(key) is not str), None)
    if unnamed is not None:
        raise Refused(f"it names a tensor by {unnamed!r}, which is no string")
    tensors = {str(key): value for key, value in saved.items() if isinstance(value, Tensor)}
    return tensors, _left_out(saved.keys() - tensors.keys())


def _left_out(keys: set[object]) -> tuple[str, ...]:
    return tuple(sorted(f"{key!r} is no tensor and is left out" for key in keys))


def _entries(tensors: Mapping[str, Tensor], archive: TorchZip) -> Iterator[HeaderEntry]:
    where = archive.file.where
    found: dict[str, tuple[int, int]] = {}
    for name, tensor in tensors.items():
        key = tensor.storage.key
        if key not in found:
            found[key] = archive.storage(key)
        start, stored = found[key]
        size = DTYPE_BITS[tensor.dtype] // 8
        held = tensor.storage.numel * (1 if tensor.storage.dtype is None else size)
        if held != stored:
            raise PickledError(f"storage {key!r} has {stored} bytes, its pickle says {held}", where, _DOWNLOAD)
        if tensor.reach * size > held:
            raise PickledError(f"tensor {name!r} of {list(tensor.shape)} leaves its storage", where, "save it again")
        strides = None if tensor.is_row_major else tensor.strides
        nbytes = prod(tensor.shape) * size
        yield HeaderEntry(name, tensor.dtype, tensor.shape, start + tensor.offset * size, nbytes, strides)


def _views(tensors: Mapping[str, Tensor]) -> Iterator[str]:
    """Tensors that share a storage are counted one by one, each by its shape; that is said."""
    first: dict[str, str] = {}
    for name, tensor in tensors.items():
        other = first.setdefault(tensor.storage.key, name)
        if other != name:
            yield f"{name} shares its storage with {other}"
        if not tensor.is_row_major:
            yield f"{name} {list(tensor.shape)} is a view with the strides {list(tensor.strides)}"
