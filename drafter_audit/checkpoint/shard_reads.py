"""What makes a checkpoint of many shards quick to read: one request for each header, and no garbage collection."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

FIRST_READ_BYTES = 100_000
"""Holds the header of most files, so that one request per file does."""

SPECULATIVE_BYTES = 131_072
"""Read at most beyond what the tensor names in an index make sure of, so that one request per shard does."""

_MAX_FIRST_READ_BYTES = 4_000_000  # an index can promise anything

# `"":{"dtype":"I8","shape":[],"data_offsets":[0,0]},` beside the name itself, and what most entries take beyond it.
_ENTRY_BYTES = 50
_ENTRY_SPARE_BYTES = 45
_METADATA_SPARE_BYTES = 4096


def first_reads(weight_map: Mapping[str, str]) -> dict[str, int]:
    """Bytes to read of each shard, so that its header lies in them; `weight_map` is tensor name to shard.

    A header cannot be shorter than its tensors' names with the least that belongs to each; what is read beyond that is
    a guess, of SPECULATIVE_BYTES at most. Never less than FIRST_READ_BYTES.
    """
    counts = Counter(weight_map.values())
    sure = {file: _ENTRY_BYTES * count for file, count in counts.items()}
    for name, file in weight_map.items():
        sure[file] += len(name)
    return {file: _first_read(sure[file], counts[file]) for file in counts}


def _first_read(sure: int, tensors: int) -> int:
    guessed = min(SPECULATIVE_BYTES, _METADATA_SPARE_BYTES + _ENTRY_SPARE_BYTES * tensors)
    return min(_MAX_FIRST_READ_BYTES, max(FIRST_READ_BYTES, sure + guessed))


@contextmanager
def no_garbage() -> Iterator[None]:
    """For building a table: no cycle arises, and the collector would walk each of 100,000 objects again and again."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
