"""From a source's files to its tensor table: headers are read, weights are not.

Which files count, the first that fits:

1. the one file that the reference named;
2. the shards that a `*.safetensors.index.json` names, as vLLM and SGLang do, even beside a whole model.safetensors;
3. model.safetensors;
4. every other .safetensors file of the folder.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from drafter_audit.checkpoint.header import Header, header_end, parse_header
from drafter_audit.checkpoint.shard_reads import FIRST_READ_BYTES, first_reads, no_garbage
from drafter_audit.checkpoint.strict_json import refuse_constant, unique_object
from drafter_audit.checkpoint.table import TensorInfo, TensorTable
from drafter_audit.errors import CheckpointError, NotFoundError, ShardIndexError
from drafter_audit.sources.base import Source
from drafter_audit.sources.names import is_weight_name, leaves_folder

MAX_INDEX_BYTES = 100_000_000

_WHOLE = "model.safetensors"
_CONSOLIDATED = "consolidated.safetensors"  # Mistral's own layout of the whole model
_SUFFIX = ".safetensors"
_INDEX_SUFFIX = ".safetensors.index.json"
_PARALLEL_READS = 32


@dataclass(frozen=True)
class _Chosen:
    """The weight files that count, sorted; the index that named them, if one did, and what it says."""

    names: list[str]
    index: str | None = None
    weight_map: Mapping[str, str] = field(default_factory=dict)


def load_table(source: Source) -> TensorTable | None:
    """Every tensor in the source's weight files, from their headers; None where it has a config.json and no weights.

    Raises HeaderError for a file that is no safetensors file, ShardIndexError for an index that does not fit its
    files, CheckpointError for a folder that holds no readable weights; NetworkError, AccessError.
    """
    with no_garbage():
        chosen = _choose(source)
        if not chosen.names:
            return None
        headers = _read_headers(source, chosen)
        tensors = _merge(source, headers, chosen.weight_map)
        metadata = {key: value for header in headers.values() for key, value in header.metadata.items()}
        sorted_tensors = tuple(tensors[name] for name in sorted(tensors))
        return TensorTable(sorted_tensors, tuple(chosen.names), chosen.index, metadata)


def checkpoint_files(source: Source) -> tuple[list[str], str | None]:
    """The weight files that count, sorted, and the index that named them, if one did; no files where there are none.

    Raises ShardIndexError, CheckpointError, NetworkError, AccessError.
    """
    chosen = _choose(source)
    return chosen.names, chosen.index


def _choose(source: Source) -> _Chosen:
    if source.weights_file is not None:
        return _Chosen([_supported(source, source.weights_file)])
    index = _index_name(source)
    if index is not None:
        return _shards(source, index)
    found = [name for name in _top_level(source) if name.endswith(_SUFFIX)]
    if _WHOLE in found:
        return _Chosen([_WHOLE])
    if not found:
        _explain_absence(source)
    return _Chosen(found)


def read_header(source: Source, name: str, *, first_read: int = FIRST_READ_BYTES) -> Header:
    """The header of the weight file `name`, `__metadata__` included: one read, or two if above `first_read` bytes.

    Raises HeaderError, NotFoundError, NetworkError, AccessError.
    """
    head = source.read_range(name, 0, first_read, keep=True)
    size = source.files().get(name)
    where = f"{source.name}/{name}"
    end = header_end(head, size, where)
    if end > len(head):
        head += source.read_range(name, len(head), end, keep=True)
    return parse_header(head, size, where)


def read_index(source: Source, name: str) -> Mapping[str, str]:
    """The `weight_map` of the shard index `name`: tensor name to file name.

    Raises ShardIndexError where it is not JSON, has no weight_map, or names a file outside the folder.
    """
    where = f"{source.name}/{name}"
    try:
        index = json.loads(
            source.read(name, limit=MAX_INDEX_BYTES),
            object_pairs_hook=unique_object,
            parse_constant=refuse_constant,
        )
    except (ValueError, RecursionError) as error:
        raise ShardIndexError(f"not JSON ({error})", where, "save the checkpoint again") from error
    weight_map = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(weight_map, dict) or set(map(type, weight_map.values())) - {str}:
        raise ShardIndexError("no weight_map of tensor names to files", where, "save the checkpoint again")
    for file in sorted(set(weight_map.values())):
        if leaves_folder(file):
            raise ShardIndexError(f"names {file!r}, outside its folder", where, "do not trust this checkpoint")
    return weight_map


def _top_level(source: Source) -> list[str]:
    return sorted(name for name in source.files() if "/" not in name)


def _supported(source: Source, name: str) -> str:
    if not name.endswith(_SUFFIX):
        _refuse_format(source, [name])
    return name


def _index_name(source: Source) -> str | None:
    found = [name for name in _top_level(source) if name.endswith(_INDEX_SUFFIX)]
    usual = f"{_WHOLE}.index.json"
    if len(found) > 1 and usual not in found:
        names = ", ".join(found)
        raise ShardIndexError(f"several shard indexes ({names})", source.name, "keep the one that is meant")
    return usual if usual in found else next(iter(found), None)


def _shards(source: Source, index: str) -> _Chosen:
    weight_map = read_index(source, index)
    shards = sorted(set(weight_map.values()))
    absent = [name for name in shards if name not in source.files()]
    if absent:
        _explain_absent_shards(source, index, absent)
    if not shards:
        raise ShardIndexError("an empty weight_map", f"{source.name}/{index}", "save the checkpoint again")
    for name in shards:
        _supported(source, name)
    return _Chosen(shards, index, weight_map)


def _explain_absent_shards(source: Source, index: str, absent: list[str]) -> None:
    _ask_once_more(source, absent[0])
    some = ", ".join(absent[:3]) + (f" and {len(absent) - 3} more" if len(absent) > 3 else "")
    whole = [name for name in _top_level(source) if name in (_WHOLE, _CONSOLIDATED)]
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
        _ask_once_more(source, _WHOLE)
    files = source.files()
    others = [name for name in _top_level(source) if is_weight_name(name)]
    if others:
        _refuse_format(source, others)
    deeper = sorted({name.rpartition("/")[0] for name in files if name.endswith(_SUFFIX)})
    if deeper:
        folders = ", ".join(deeper[:3])
        raise CheckpointError("no weights", source.name, f"name one of its folders instead ({folders})")
    if "config.json" not in files and source.kind != "bundled":
        what = "neither config.json nor weights" if files else "empty"
        raise CheckpointError(what, source.name, "name the folder or repository that holds the checkpoint")


def _refuse_format(source: Source, names: list[str]) -> None:
    if all(name.lower().endswith(".gguf") for name in names):
        raise CheckpointError("only GGUF weights", f"{source.name}/{names[0]}", "name the safetensors checkpoint")
    raise CheckpointError(
        "only pickled weights, which this release does not read",
        f"{source.name}/{names[0]}",
        "convert them: load with torch.load(weights_only=True), save with safetensors.torch.save_file",
    )


def _read_headers(source: Source, chosen: _Chosen) -> dict[str, Header]:
    if len(chosen.names) == 1:
        return {chosen.names[0]: read_header(source, chosen.names[0])}
    from concurrent.futures import ThreadPoolExecutor  # for shards alone

    first = first_reads(chosen.weight_map)

    def read(name: str) -> Header:
        return read_header(source, name, first_read=first.get(name, FIRST_READ_BYTES))

    with ThreadPoolExecutor(max_workers=_PARALLEL_READS) as pool:
        return dict(zip(chosen.names, pool.map(read, chosen.names), strict=True))


def _merge(source: Source, headers: Mapping[str, Header], weight_map: Mapping[str, str]) -> dict[str, TensorInfo]:
    """One entry per tensor name. Where two files hold a name, the index chooses; without its word it is an error."""
    found: dict[str, TensorInfo] = {}
    for file, header in headers.items():
        for name, dtype, shape, start, nbytes in header.entries:
            if name in found:
                chosen = weight_map.get(name)
                if chosen not in (file, found[name].file):
                    both = f"{found[name].file} and {file}"
                    raise CheckpointError(f"tensor {name!r} is in {both}", source.name, "keep one of them")
                if chosen != file:
                    continue
            found[name] = TensorInfo(name, dtype, shape, file, start, nbytes)
    return found
