"""From a source's files to its tensor table: headers are read, weights are not.

Which files count, the first that fits:

1. the one file that the reference named;
2. the shards that a `*.safetensors.index.json` names, as vLLM and SGLang do, even beside a whole model.safetensors;
3. model.safetensors;
4. every other .safetensors file of the folder;
5. where it has none, the one .gguf file;
6. where it has none either, the same of what torch.save wrote: the shards that a `*.bin.index.json` names,
   pytorch_model.bin, every other pytorch_model-*.bin. No other pickle is guessed to hold weights.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any

from drafter_audit.checkpoint.header import Header, header_end, parse_header
from drafter_audit.checkpoint.shard_index import ShardIndex, find_faults, read_index
from drafter_audit.checkpoint.shard_reads import FIRST_READ_BYTES, first_reads, no_garbage
from drafter_audit.checkpoint.table import TensorInfo, TensorTable
from drafter_audit.errors import CheckpointError, NotFoundError, ShardIndexError
from drafter_audit.sources.base import Source
from drafter_audit.sources.names import is_weight_name

_CONSOLIDATED = "consolidated.safetensors"  # Mistral's own layout of the whole model
_SUFFIX = ".safetensors"
_GGUF_SUFFIX = ".gguf"
_PICKLED_SUFFIXES = (".bin", ".pt", ".pth", ".ckpt")
_PARALLEL_READS = 32


@dataclass(frozen=True)
class _Chosen:
    """The weight files that count, sorted, and the index that named them, if one did."""

    names: list[str]
    index: ShardIndex | None = None


@dataclass(frozen=True)
class _Family:
    """File names of one format: of the whole checkpoint, and the pattern of what else may hold weights."""

    suffix: str
    whole: str
    others: re.Pattern[str]


_SAFETENSORS = _Family(_SUFFIX, "model.safetensors", re.compile(r".+\.safetensors"))
_GGUF = _Family(_GGUF_SUFFIX, "model.gguf", re.compile(r"(?i).+\.gguf"))
_PICKLED = _Family(".bin", "pytorch_model.bin", re.compile(r"pytorch_model-.+\.bin"))


def load_table(source: Source) -> TensorTable | None:
    """Every tensor in the source's weight files, from their headers; None where it has a config.json and no weights.

    Raises HeaderError for a file that is no safetensors file, PickledError for one that torch.save did not write or
    whose pickle is more than a state dict, ShardIndexError for an index that names absent files, CheckpointError for a
    folder that holds no readable weights; NetworkError, AccessError.
    """
    with no_garbage():
        chosen = _choose(source)
        return _table(source, chosen) if chosen.names else None


def _table(source: Source, chosen: _Chosen) -> TensorTable:
    names, index = chosen.names, chosen.index
    headers = _read_headers(source, chosen)
    if not any(header.entries for header in headers.values()):
        raise CheckpointError("no tensors", f"{source.name}/{names[0]}", "save the checkpoint again")
    places = _places(headers)
    tensors = tuple(sorted(_merge(source, headers, places, index), key=attrgetter("name")))
    return TensorTable(
        tensors,
        tuple(names),
        index.name if index else None,
        metadata={key: value for header in headers.values() for key, value in header.metadata.items()},
        index_faults=tuple(find_faults(index, places, tensors, _top_level(source))) if index else (),
        notes=tuple(f"{file}: {note}" for file, header in headers.items() for note in header.notes),
        ignored=_ignored(source, names),
    )


def checkpoint_files(source: Source) -> tuple[list[str], str | None]:
    """The weight files that count, sorted, and the index that named them, if one did; no files where there are none.

    Raises ShardIndexError, CheckpointError, NetworkError, AccessError.
    """
    chosen = _choose(source)
    return chosen.names, chosen.index.name if chosen.index else None


def _choose(source: Source) -> _Chosen:
    if source.weights_file is not None:
        return _Chosen([_supported(source, source.weights_file)])
    for family in (_SAFETENSORS, _GGUF, _PICKLED):
        index = _index_name(source, family)
        if index is not None:
            return _shards(source, index, family)
        found = _of_family(source, family)
        if family is _GGUF and len(found) > 1:
            what = f"{len(found)} GGUF files ({', '.join(found[:3])}), each of which may be the whole model"
            raise CheckpointError(what, source.name, f"name one: {source.name}/{found[0]}")
        if found:
            return _Chosen(found)
    _explain_absence(source)
    return _Chosen([])


def read_header(source: Source, name: str, *, first_read: int = FIRST_READ_BYTES) -> Header:
    """What the weight file `name` holds, safetensors, GGUF or pickled; of the former `__metadata__` too.

    A safetensors header takes one read, or two if it is above `first_read` bytes.

    Raises HeaderError, PickledError, NotFoundError, NetworkError, AccessError.
    """
    if name.lower().endswith(_SUFFIX):
        return _read_safetensors(source, name, first_read)
    if name.lower().endswith(_GGUF_SUFFIX):
        from drafter_audit.checkpoint.gguf import read_gguf  # for such files alone

        return read_gguf(source, name)
    from drafter_audit.checkpoint.pickled import read_pickled  # with zipfile and pickletools, for pickles alone

    return read_pickled(source, name)


def _read_safetensors(source: Source, name: str, first_read: int) -> Header:
    head = source.read_range(name, 0, first_read, keep=True)
    size = source.files().get(name)
    where = f"{source.name}/{name}"
    end = header_end(head, size, where)
    if end > len(head):
        head += source.read_range(name, len(head), end, keep=True)
    return parse_header(head, size, where)


def _top_level(source: Source) -> list[str]:
    return sorted(name for name in source.files() if "/" not in name)


def _of_family(source: Source, family: _Family) -> list[str]:
    names = _top_level(source)
    return [family.whole] if family.whole in names else [name for name in names if family.others.fullmatch(name)]


def _ignored(source: Source, names: list[str]) -> tuple[str, ...]:
    """Pickled weights beside the safetensors that are read; none are looked for where one file was named."""
    if source.weights_file is not None or not names[0].endswith(_SUFFIX):
        return ()
    return tuple(_of_family(source, _PICKLED))


def _supported(source: Source, name: str) -> str:
    if not name.lower().endswith((_SUFFIX, _GGUF_SUFFIX, *_PICKLED_SUFFIXES)):
        _refuse_format(source, [name])
    return name


def _index_name(source: Source, family: _Family) -> str | None:
    found = [name for name in _top_level(source) if name.endswith(f"{family.suffix}.index.json")]
    usual = f"{family.whole}.index.json"
    if len(found) > 1 and usual not in found:
        names = ", ".join(found)
        raise ShardIndexError(f"several shard indexes ({names})", source.name, "keep the one that is meant")
    return usual if usual in found else next(iter(found), None)


def _shards(source: Source, index: str, family: _Family) -> _Chosen:
    found = read_index(source, index)
    shards = sorted(set(found.weight_map.values()))
    absent = [name for name in shards if name not in source.files()]
    if absent:
        _explain_absent_shards(source, index, absent)
    if not shards:
        raise ShardIndexError("an empty weight_map", f"{source.name}/{index}", "save the checkpoint again")
    wrong = next((name for name in shards if not name.endswith(family.suffix)), None)
    if wrong is not None:
        what = f"names {wrong!r}, which is no {family.suffix} file"
        raise ShardIndexError(what, f"{source.name}/{index}", "save the checkpoint again")
    return _Chosen(shards, found)


def _explain_absent_shards(source: Source, index: str, absent: list[str]) -> None:
    _ask_once_more(source, absent[0])
    some = ", ".join(absent[:3]) + (f" and {len(absent) - 3} more" if len(absent) > 3 else "")
    whole = [name for name in _top_level(source) if name in (_SAFETENSORS.whole, _CONSOLIDATED, _PICKLED.whole)]
    mend = f"remove the stale index: {whole[0]} is there" if whole else "download the absent files or mend the index"
    raise ShardIndexError(f"names files that are not there ({some})", f"{source.name}/{index}", mend)


def _ask_once_more(source: Source, name: str) -> None:
    """Offline, a file absent from the cache may well exist: there the source itself says so, with a NetworkError."""
    try:
        source.read_range(name, 0, 1)
    except NotFoundError:
        return


def _explain_absence(source: Source) -> None:
    """Raises CheckpointError unless the source has a config.json and nothing that could be weights."""
    if source.kind != "bundled":
        _ask_once_more(source, _SAFETENSORS.whole)
    files = source.files()
    others = [name for name in _top_level(source) if is_weight_name(name)]
    if others:
        _refuse_format(source, others)
    deeper = sorted({name.rpartition("/")[0] for name in files if name.endswith((_SUFFIX, f"/{_PICKLED.whole}"))})
    if deeper:
        folders = ", ".join(deeper[:3])
        raise CheckpointError("no weights", source.name, f"name one of its folders instead ({folders})")
    if "config.json" not in files and source.kind != "bundled":
        what = "neither config.json nor weights" if files else "empty"
        raise CheckpointError(what, source.name, "name the folder or repository that holds the checkpoint")


def _refuse_format(source: Source, names: list[str]) -> None:
    raise CheckpointError(
        "no safetensors, no pytorch_model.bin, and other pickles are not guessed to be weights",
        f"{source.name}/{names[0]}",
        "name the weight file itself",
    )


def _read_headers(source: Source, chosen: _Chosen) -> dict[str, Header]:
    names = chosen.names
    if len(names) == 1:
        return {names[0]: read_header(source, names[0])}
    from concurrent.futures import ThreadPoolExecutor  # for shards alone

    first = first_reads(chosen.index.weight_map) if chosen.index else {}

    def read(name: str) -> Header:
        return read_header(source, name, first_read=first.get(name, FIRST_READ_BYTES))

    with ThreadPoolExecutor(max_workers=_PARALLEL_READS) as pool:
        return dict(zip(names, pool.map(read, names), strict=True))


def _places(headers: Mapping[str, Header]) -> dict[str, tuple[str, ...]]:
    """Tensor name -> the files that hold it."""
    places: dict[str, tuple[str, ...]] = {}
    for file, header in headers.items():
        alone = (file,)  # one for all: a large target has 100,000 tensors
        for entry in header.entries:
            places[entry.name] = (*places[entry.name], file) if entry.name in places else alone
    return places


def _merge(
    source: Source, headers: Mapping[str, Header], places: Mapping[str, tuple[str, ...]], index: ShardIndex | None
) -> list[TensorInfo]:
    """One entry per tensor name. Where two files hold a name, the index chooses, else its first; without an index it
    is an error."""
    chosen: dict[str, str] = {}  # where there is a choice
    for name, files in places.items():
        if len(files) > 1:
            if index is None:
                both = " and ".join(files[:2])
                raise CheckpointError(f"tensor {name!r} is in {both}", source.name, "keep one of them")
            listed = index.weight_map.get(name)
            chosen[name] = listed if listed in files else files[0]
    # A named tuple's own constructor is a Python call, too dear for 100,000 tensors.
    made: Callable[[tuple[Any, ...]], TensorInfo] = partial(tuple.__new__, TensorInfo)
    return [
        made((name, dtype, shape, file, start, nbytes, strides))
        for file, header in headers.items()
        for name, dtype, shape, start, nbytes, strides in header.entries
        if not chosen or chosen.get(name, file) == file
    ]
