"""Two config.json files key by key: what differs as written, the keys that are known to decide acceptance first.

Order and layout of the file are no difference, nor is a null from an absent key or 1 from 1.0.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from drafter_audit.audit.weights import ConfigKey

# By impact, as reports from the field rank it: ids, norm switches, RoPE, head size, vocabulary, other sizes.
_IMPACT = (
    re.compile(r"layer_ids?$"),
    re.compile(r"norm_before_|norm_output|fc_norm|use_aux_hidden_state|use_last_layernorm|residual"),
    re.compile(r"rope|rotary|max_position|sliding_window"),
    re.compile(r"head_dim|num_attention_heads|num_key_value_heads"),
    re.compile(r"vocab|tie_word_embeddings"),
    re.compile(r"hidden_size|intermediate_size|num_hidden_layers|lora_rank|hidden_act"),
)


def config_keys(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> tuple[ConfigKey, ...]:
    """The keys whose values differ, by dotted path, those of known impact first.

    >>> config_keys({"a": 1, "rope": {"theta": 1e4}}, {"rope": {"theta": 10000}, "a": 2, "b": None})
    (ConfigKey(key='a', values=(1, 2)),)
    """
    first, last = dict(_flat(theirs)), dict(_flat(ours))
    keys = [key for key in {**first, **last} if not _same(first.get(key), last.get(key))]
    return tuple(ConfigKey(key, (first.get(key), last.get(key))) for key in sorted(keys, key=_rank))


def _flat(section: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in section.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        elif value is not None:
            yield f"{prefix}{key}", value


def _same(one: object, other: object) -> bool:
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(_same(*pair) for pair in zip(one, other, strict=True))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    return isinstance(one, bool) == isinstance(other, bool) and one == other


def _rank(key: str) -> tuple[int, str]:
    return next((rank for rank, known in enumerate(_IMPACT) if known.search(key)), len(_IMPACT)), key
