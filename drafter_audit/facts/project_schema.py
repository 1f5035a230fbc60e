"""What drafter-audit.toml may hold: its keys, their types and their ranges. Anything else is an error."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_args

from drafter_audit.errors import ProjectFileError
from drafter_audit.facts.records import most_per_round
from drafter_audit.facts.schema import is_a

FailOn = Literal["error", "warning", "info"]

_TOP: dict[str, type] = {"drafter": object, "check": object}
_DRAFTER: dict[str, type] = {
    "path": str,
    "target": str,
    "recording": str,
    "training": object,
    "accept_len": object,
    "throughput": object,
    "check": object,
}
_TRAINING: dict[str, type] = {"dataset": str, "samples": object}
ACCEPT_LEN: dict[str, type] = {
    "value": float,
    "benchmark": str,
    "steps": int,
    "topk": int,
    "num_draft_tokens": int,
    "temperature": float,
    "batch_size": int,
    "engine": str,
    "tokens_per_s": float,
    "plain_tokens_per_s": float,
}
_THROUGHPUT: dict[str, type] = {"tokens_per_s": float, "plain_tokens_per_s": float}
CHECK: dict[str, type] = {
    "fail_on": str,
    "engines": list,
    "reference": str,
    "same_architecture": bool,
    "same_parameters": bool,
    "wiring": bool,
    "min_accept_len": float,
    "min_per_position": tuple,
    "baseline": str,
    "max_loss": float,
    "steps": int,
    "live": bool,
    "prompts": str,
    "max_new_tokens": int,
    "time_limit": float,
}
"""A tuple is an array of shares from 0 to 1."""

# The least value of a number; what may not be zero has no natural least and is checked to be above it.
_LEAST: dict[str, float] = {
    "value": 1,
    "min_accept_len": 1,
    "steps": 1,
    "topk": 1,
    "num_draft_tokens": 1,
    "batch_size": 1,
    "temperature": 0,
    "max_loss": 0,
    "max_new_tokens": 1,
}
_ABOVE_ZERO = {"tokens_per_s", "plain_tokens_per_s", "time_limit"}
_MOST = 1e9  # as options have it: clocks hold no more than some 9e9 seconds
_COUNT = re.compile(r"(\d{1,15}(?:\.\d{1,9})?) ?([KMB]?)", re.ASCII | re.IGNORECASE)
_SCALE = {"": 1, "K": 10**3, "M": 10**6, "B": 10**9}
_NAMES = {
    str: "a string",
    int: "an integer",
    float: "a number",
    bool: "true or false",
    list: "an array of strings",
    tuple: "an array of shares from 0 to 1",
}


def checked(raw: object, path: Path) -> dict[str, Any]:
    """`raw`, the parsed file, once all of it follows the schema; else ProjectFileError says what, where, and the
    nearest right thing.
    """
    top = _table(raw, _TOP, path, "the file")
    if "check" in top:
        _check_entry(top["check"], path, "[check]")
    for number, drafter in enumerate(_tables(top.get("drafter", []), path, "[[drafter]]"), 1):
        _drafter(drafter, path, f"[[drafter]] {number}")
    return top


def count(samples: int | str) -> int | None:
    """A number of samples, "1.4M" being 1400000; None where it is no whole number of at least 1.

    >>> count("1.4M"), count(37000), count("many"), count(True)
    (1400000, 37000, None, None)
    """
    if is_a(samples, int):
        return int(samples) if int(samples) >= 1 else None
    match = _COUNT.fullmatch(samples) if isinstance(samples, str) else None
    if match is None:
        return None
    number = float(match[1]) * _SCALE[match[2].upper()]
    # A float that cannot hold the decimal exactly, as 1.1 times 1000, still means the whole number beside it.
    is_whole = math.isclose(number, round(number), rel_tol=1e-12)
    return round(number) if is_whole and number >= 1 else None


def _drafter(raw: dict[str, Any], path: Path, where: str) -> None:
    _table(raw, _DRAFTER, path, where)
    if "training" in raw:
        training = _table(raw["training"], _TRAINING, path, f"{where} training")
        if "samples" in training and count(training["samples"]) is None:
            said = f"samples is {training['samples']!r}"
            raise _wrong(said, path, f"{where} training", 'give an integer from 1, or "1.4M"')
    for number, row in enumerate(_tables(raw.get("accept_len", []), path, f"{where} accept_len"), 1):
        _accept_len(_table(row, ACCEPT_LEN, path, f"{where} accept_len {number}", needs="value"), path, where, number)
    if "throughput" in raw:
        _table(raw["throughput"], _THROUGHPUT, path, f"{where} throughput", needs="tokens_per_s")
    if "check" in raw:
        _check_entry(raw["check"], path, f"{where} check")


def _accept_len(row: dict[str, Any], path: Path, where: str, number: int) -> None:
    limit = most_per_round(row.get("steps"), row.get("num_draft_tokens"))
    if limit is not None and row["value"] > limit:
        said = f"value is {row['value']}, and with these steps and num_draft_tokens a round emits {limit} at most"
        raise _wrong(said, path, f"{where} accept_len {number}", "give tokens per round and the engine's settings")


def _check_entry(raw: object, path: Path, where: str) -> None:
    check = _table(raw, CHECK, path, where)
    if "fail_on" in check and check["fail_on"] not in get_args(FailOn):
        near = _nearest(check["fail_on"], get_args(FailOn))
        raise _wrong(f"fail_on is {check['fail_on']!r}", path, where, f"did you mean {near!r}?")


def _tables(raw: object, path: Path, where: str) -> list[Any]:
    if not isinstance(raw, list):
        raise _wrong(f"{where} is not an array of tables", path, where, "write it in double brackets, [[...]]")
    return raw


def _table(
    raw: object, keys: Mapping[str, type], path: Path, where: str, *, needs: str | None = None
) -> dict[str, Any]:
    if not isinstance(raw, dict):
        raise _wrong(f"{where} is not a table", path, where, "write it as a table")
    for key, value in raw.items():
        if key not in keys:
            raise _wrong(f"unknown key {key!r}", path, where, f"did you mean {_nearest(key, tuple(keys))!r}?")
        _value(key, value, keys[key], path, where)
    if needs is not None and needs not in raw:
        raise _wrong(f"{needs!r} is missing", path, where, "give it")
    return raw


def _value(key: str, value: object, kind: type, path: Path, where: str) -> None:
    if not (_are_shares(value) if kind is tuple else is_a(value, kind)):
        raise _wrong(f"{key} is {value!r}", path, where, f"give {_NAMES[kind]}")
    if isinstance(value, str) and "\0" in value:
        raise _wrong(f"{key} holds a NUL", path, where, "leave it out")
    if not isinstance(value, (int, float)) or kind is object:
        return
    least = _LEAST.get(key)
    if least is not None and not least <= value <= _MOST:
        raise _wrong(f"{key} is {value!r}", path, where, f"give a number from {least}")
    if key in _ABOVE_ZERO and not 0 < value <= _MOST:
        raise _wrong(f"{key} is {value!r}", path, where, "give a number above 0")


def _are_shares(value: object) -> bool:
    return isinstance(value, list) and all(is_a(each, float) and 0 <= each <= 1 for each in value)


def _nearest(word: str, known: tuple[str, ...]) -> str:
    import difflib

    return difflib.get_close_matches(word, known, n=1, cutoff=0.0)[0]


def _wrong(what: str, path: Path, where: str, mend: str) -> ProjectFileError:
    return ProjectFileError(what, str(path), mend, where)
