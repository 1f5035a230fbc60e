"""From a source's files to its tensor table: headers are read, weights are not.

Which files count, the first that fits:

1. the one file that the reference named;
2. the shards that a `*.safetensors.index.json` names, as vLLM and SGLang do, even beside a whole model.safetensors;
3. model.safetensors;
4. every other .safetensors file of the folder.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from drafter_audit.checkpoint.header import Header, header_end, parse_header
from drafter_audit.checkpoint.strict_json import refuse_constant, unique_object
from drafter_audit.checkpoint.table import TensorInfo, TensorTable
from drafter_audit.errors import CheckpointError, NotFoundError, ShardIndexError
from drafter_audit.sources.base import Source
from drafter_audit.sources.names import is_weight_name, leaves_folder

FIRST_READ_BYTES = 100_000
"""Holds the header of most files, so that one request per file does."""

MAX_INDEX_BYTES = 100_000_000

_WHOLE = "model.safetensors"
_CONSOLIDATED = "consolidated.safetensors"  # Mistral's own layout of the whole model
_SUFFIX = ".safetensors"
_INDEX_SUFFIX = ".safetensors.index.json"
_PARALLEL_READS = 8


def load_table(source: Source) -> TensorTable | None:
    """Every tensor in the source's weight files, from their headers; None where it has a config.json and no weights.

    Raises HeaderError for a file that is no safetensors file, ShardIndexError for an index that does not fit its
    files, CheckpointError for a folder that holds no readable weights; NetworkError, AccessError.
    """
    names, index = checkpoint_files(source)
    if not names:
        return None
    headers = _read_headers(source, names)
    if not any(header.entries for header in headers.values()):
        raise CheckpointError("no tensors", f"{source.name}/{names[0]}", "save the checkpoint again")
    tensors = _merge(source, headers, read_index(source, index) if index else {})
    metadata = {key: value for header in headers.values() for key, value in header.metadata.items()}
    return TensorTable(tuple(sorted(tensors, key=lambda tensor: tensor.name)), tuple(names), index, metadata)


def checkpoint_files(source: Source) -> tuple[list[str], str | None]:
    """The weight files that count, sorted, and the index that named them, if one did; no files where there are none.

    Raises ShardIndexError, CheckpointError, NetworkError, AccessError.
    """
    if source.weights_file is not None:
        return [_supported(source, source.weights_file)], None
    index = _index_name(source)
    if index is not None:
        return _shards(source, index), index
    found = [name for name in _top_level(source) if name.endswith(_SUFFIX)]
    if _WHOLE in found:
        return [_WHOLE], None
    if not found:
        _explain_absence(source)
    return found, None


def read_header(source: Source, name: str) -> Header:
    """The header of the weight file `name`, `__metadata__` included: one read, two where it is above 100 kB.

    Raises HeaderError, NotFoundError, NetworkError, AccessError.
    """
    head = source.read_range(name, 0, FIRST_READ_BYTES)
    size = source.files().get(name)
    where = f"{source.name}/{name}"
    end = header_end(head, size, where)
    if end > len(head):
        head += source.read_range(name, len(head), end)
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
    if not isinstance(weight_map, dict) or not all(isinstance(file, str) for file in weight_map.values()):
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


def _shards(source: Source, index: str) -> list[str]:
    shards = sorted(set(read_index(source, index).values()))
    absent = [name for name in shards if name not in source.files()]
    if absent:
        _explain_absent_shards(source, index, absent)
    if not shards:
        raise ShardIndexError("an empty weight_map", f"{source.name}/{index}", "save the checkpoint again")
    for name in shards:
        _supported(source, name)
    return shards


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


def _read_headers(source: Source, names: list[str]) -> dict[str, Header]:
    if len(names) == 1:
        return {names[0]: read_header(source, names[0])}
    from concurrent.futures import ThreadPoolExecutor  # for shards alone

    with ThreadPoolExecutor(max_workers=_PARALLEL_READS) as pool:
        return dict(zip(names, pool.map(lambda name: read_header(source, name), names), strict=True))


def _merge(source: Source, headers: Mapping[str, Header], weight_map: Mapping[str, str]) -> Iterable[TensorInfo]:
    """One entry per tensor name. Where two files hold a name, the index chooses; without its word it is an error."""
    found: dict[str, TensorInfo] = {}
    for file, header in headers.items():
        for entry in header.entries:
            chosen = weight_map.get(entry.name)
            if entry.name in found and chosen not in (file, found[entry.name].file):
                both = f"{found[entry.name].file} and {file}"
                raise CheckpointError(f"tensor {entry.name!r} is in {both}", source.name, "keep one of them")
            if entry.name not in found or chosen == file:
                found[entry.name] = TensorInfo(entry.name, entry.dtype, entry.shape, file, entry.start, entry.nbytes)
    return found.values()
