"""A shard index, read strictly, and set against what its shards really hold. What it says is never used as a count."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from drafter_audit.checkpoint.strict_json import strict_loads
from drafter_audit.checkpoint.table import FaultKind, IndexFault, TensorInfo
from drafter_audit.errors import ShardIndexError
from drafter_audit.sources.base import Source
from drafter_audit.sources.names import leaves_folder

MAX_INDEX_BYTES = 100_000_000

_SHARD = re.compile(r"(?P<series>.+)-\d+-of-\d+\.\w+")

Places = Mapping[str, tuple[str, ...]]
"""Tensor name -> the files that hold it, in the order of their names."""


@dataclass(frozen=True)
class ShardIndex:
    """`weight_map` is tensor name to file name; `total_size` whatever stands there in `metadata`, None for nothing."""

    name: str
    weight_map: Mapping[str, str]
    total_size: object = None


def read_index(source: Source, name: str) -> ShardIndex:
    """The shard index `name`.

    Raises ShardIndexError where it is not JSON, has no weight_map, or names a file outside the folder.
    """
    where = f"{source.name}/{name}"
    try:
        index = strict_loads(source.read(name, limit=MAX_INDEX_BYTES))
    except (ValueError, RecursionError) as error:
        raise ShardIndexError(f"not JSON ({error})", where, "save the checkpoint again") from error
    weight_map = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(weight_map, dict) or not all(isinstance(file, str) for file in weight_map.values()):
        raise ShardIndexError("no weight_map of tensor names to files", where, "save the checkpoint again")
    for file in sorted(set(weight_map.values())):
        if leaves_folder(file):
            raise ShardIndexError(f"names {file!r}, outside its folder", where, "do not trust this checkpoint")
        if not _is_text(file):
            raise ShardIndexError(f"names {file!r}, which no file is called", where, "save the checkpoint again")
    metadata = index.get("metadata")
    return ShardIndex(name, weight_map, metadata.get("total_size") if isinstance(metadata, dict) else None)


def _is_text(name: str) -> bool:
    """Whether `name` has no half of a surrogate pair, which JSON can write and no file system takes."""
    return not any("\ud800" <= character <= "\udfff" for character in name)


def find_faults(
    index: ShardIndex, places: Places, tensors: Collection[TensorInfo], files: Collection[str]
) -> Iterator[IndexFault]:
    """Where `index` and its shards disagree, both ways.

    `places` are the shards that hold each tensor, `tensors` those that count, `files` all files beside the index.
    """
    if not _agree(index.weight_map, places):
        yield from _disagreements(index.weight_map, places)
    yield from _fault("unread", {file: file for file in _unread_shards(index, files)})
    stored = sum(tensor.nbytes for tensor in tensors)
    if index.total_size not in (None, stored) and index.total_size != _apart(tensors):
        yield IndexFault("total", numbers=(index.total_size, stored))


def _agree(listed: Mapping[str, str], places: Places) -> bool:
    """Whether each tensor lies where it is listed, once; told apart as a large target has 100,000 of them."""
    held = places.get
    return len(listed) == len(places) and all(held(name) == (file,) for name, file in listed.items())


def _disagreements(listed: Mapping[str, str], places: Places) -> Iterator[IndexFault]:
    yield from _fault("absent", {name: f"{name} ({file})" for name, file in listed.items() if name not in places})
    yield from _fault(
        "misplaced",
        {
            name: f"{name} ({listed[name]}, lies in {', '.join(held)})"
            for name, held in places.items()
            if name in listed and listed[name] not in held
        },
    )
    unlisted = {name: f"{name} ({', '.join(held)})" for name, held in places.items() if name not in listed}
    yield from _fault("unlisted", unlisted)
    twice = {name: f"{name} ({', '.join(held)})" for name, held in places.items() if len(held) > 1}
    yield from _fault("duplicate", twice)


def _apart(tensors: Collection[TensorInfo]) -> int:
    """Bytes where those that two tensors of a pickled file share count once, as transformers counts them."""
    return sum(nbytes for _, _, nbytes in {(tensor.file, tensor.start, tensor.nbytes) for tensor in tensors})


def _fault(kind: FaultKind, said: Mapping[str, str]) -> Iterator[IndexFault]:
    if said:
        yield IndexFault(kind, tuple(said), tuple(said.values()))


def _unread_shards(index: ShardIndex, files: Collection[str]) -> list[str]:
    """Files of the same series of shards (`model-00003-of-00003.safetensors`) that the index does not name."""
    named = set(index.weight_map.values())
    series = {(match["series"], name.rpartition(".")[2]) for name in named if (match := _SHARD.fullmatch(name))}
    return [
        name
        for name in sorted(set(files) - named)
        if (match := _SHARD.fullmatch(name)) and (match["series"], name.rpartition(".")[2]) in series
    ]
