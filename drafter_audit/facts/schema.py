"""What a record's TOML may hold: its keys, their types and their ranges.

The schema is told in reference_models/README.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, get_args

from drafter_audit.facts.records import Confidence, most_per_round

SCHEMA_VERSION = 1
ROLES = ("drafter", "target")
ORIGINS = ("published", "trainer_repo")
REPO = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)

_URL = re.compile(r"https?://[^\s/]+/\S+")

# Each group's keys and their types; a "?" marks a key that may be absent, `list` is a list of strings.
GROUPS: dict[str, dict[str, type]] = {
    "license": {"id": str},
    "target": {"repo": str},
    "training": {"dataset?": str, "samples?": int, "framework?": str},
    "stored_tensors": {"left_out": list},
    "published_parameters": {"count": int, "written": str},
    "hf_quant_config": {"quant_algo": str, "kv_cache_quant_algo?": str, "group_size?": int},
    "config_origin": {"complete": bool, "null_keys": list, "origin?": str},
}
ACCEPT_LEN: dict[str, type] = {
    "benchmark": str,
    "value": float,
    "steps?": int,
    "topk?": int,
    "num_draft_tokens?": int,
    "temperature?": float,
    "batch_size?": int,
    "engine?": str,
    "tokens_per_s?": float,
    "plain_tokens_per_s?": float,
    "publisher": str,
}
PROVENANCE: dict[str, type] = {"source": str, "confidence": str}
_TOP: dict[str, type] = {
    "schema_version": int,
    "role": str,
    "repo": str,
    "license?": dict,
    "target?": dict,
    "training?": dict,
    "stored_tensors?": dict,
    "published_parameters?": dict,
    "hf_quant_config?": dict,
    "config_origin?": dict,
    "config?": dict,
    "accept_len?": object,
}


def problems(raw: dict[str, Any]) -> list[str]:
    """What is wrong with a record as parsed from TOML, in reading order; empty where it follows the schema."""
    # What lies inside is only looked at once the outside is sound.
    return list(_key_problems(raw, _TOP, "top level")) or [
        *_top_problems(raw),
        *_group_problems(raw),
        *_null_problems(raw),
    ]


def _top_problems(raw: dict[str, Any]) -> Iterator[str]:
    if raw["schema_version"] != SCHEMA_VERSION:
        yield f"schema_version is {raw['schema_version']}, known is {SCHEMA_VERSION}"
    if raw["role"] not in ROLES:
        yield f"role is {raw['role']!r}, not {' or '.join(ROLES)}"
    if not REPO.fullmatch(raw["repo"]):
        yield f"repo is {raw['repo']!r}, not org/name"
    if ("config" in raw) != ("config_origin" in raw):
        yield "[config] and [config_origin] go together"
    origin = raw.get("config_origin", {}).get("origin", ORIGINS[0])
    if origin not in ORIGINS:
        yield f"[config_origin] origin is {origin!r}, not {' or '.join(ORIGINS)}"
    if origin == "trainer_repo" and raw["config_origin"].get("confidence") == "high":
        yield "[config_origin] confidence is 'high', more than a trainer's own config can give"


def _group_problems(raw: dict[str, Any]) -> Iterator[str]:
    for group, keys in GROUPS.items():
        if group in raw:
            yield from _fact_problems(raw[group], keys, f"[{group}]")
    rows = raw.get("accept_len", [])
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        yield "accept_len is not an array of tables"
        return
    for number, row in enumerate(rows, 1):
        where = f"[[accept_len]] {number}"
        yield from _fact_problems(row, ACCEPT_LEN, where) or _range_problems(row, where)


def _null_problems(raw: dict[str, Any]) -> Iterator[str]:
    for dotted in raw.get("config_origin", {}).get("null_keys", ()):
        *tables, key = str(dotted).split(".")
        table: object = raw.get("config", {})
        for part in tables:
            table = table.get(part, {}) if isinstance(table, dict) else None
        if not isinstance(table, dict) or key in table:
            yield f"[config_origin] null_keys names {dotted}, which [config] has another value for"


def _fact_problems(table: dict[str, Any], keys: dict[str, type], where: str) -> list[str]:
    wrong = list(_key_problems(table, {**keys, **PROVENANCE}, where))
    if wrong:
        return wrong
    if not _URL.fullmatch(table["source"]):
        wrong.append(f"{where} source is {table['source']!r}, not a URL")
    if table["confidence"] not in get_args(Confidence):
        wrong.append(f"{where} confidence is {table['confidence']!r}, not {', '.join(get_args(Confidence))}")
    return wrong


def _range_problems(row: dict[str, Any], where: str) -> list[str]:
    top = most_per_round(row.get("steps"), row.get("num_draft_tokens"))
    if row["value"] >= 1 and (top is None or row["value"] <= top):
        return []
    return [f"{where} value is {row['value']}, not from 1 to {'any' if top is None else top}"]


def _key_problems(table: dict[str, Any], keys: dict[str, type], where: str) -> Iterator[str]:
    kinds = {key.rstrip("?"): kind for key, kind in keys.items()}
    for key, value in table.items():
        if key not in kinds:
            yield f"{where} has an unknown key {key!r}"
        elif not is_a(value, kinds[key]):
            yield f"{where} {key} is {value!r}, not of type {kinds[key].__name__}"
    yield from (f"{where} lacks {key!r}" for key in keys if not key.endswith("?") and key not in table)


def is_a(value: object, kind: type) -> bool:
    """Whether a TOML value is of `kind`: an integer is a fine float, a bool is no number, a list holds strings.

    >>> is_a(3, float), is_a(True, int), is_a(["a"], list), is_a([1], list)
    (True, False, True, False)
    """
    if isinstance(value, bool):
        return kind in (bool, object)
    if kind is list:
        return isinstance(value, list) and all(isinstance(item, str) for item in value)
    return isinstance(value, (int, float) if kind is float else kind)
