"""accept_len as model cards print it: pipe tables, and the settings told around them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from drafter_audit.facts.markdown import Table
from drafter_audit.facts.records import AcceptLen, most_per_round

Settings = dict[str, int | None]

# No card is known above it; a larger number in such a column is something else.
MAX_ACCEPT_LEN = 20.0

_ACCEPT_LEN = re.compile(
    r"(?<![a-z])acc(?:ept(?:ance|ed)?)?[\s_-]?(?:tokens?[\s_-])?len(?:gth)?s?(?![a-z])|^τ$", re.IGNORECASE
)
_BENCHMARK = re.compile(r"\b(?:benchmark|data ?set|task|test set)s?\b", re.IGNORECASE)
_CATEGORY = re.compile(r"\b(?:category|categories|domain|type)\b", re.IGNORECASE)
_MODEL = re.compile(r"\b(?:model|draft(?:er)?|method|checkpoint|variant|version|engine|system)s?\b", re.IGNORECASE)
_THIS_MODEL = re.compile(
    r"\b(?:this (?:model|drafter|draft|checkpoint|repo(?:sitory)?|release|work)|ours?)\b", re.IGNORECASE
)
_MODEL_LIKE = re.compile(
    r"eagle|draft|dflash|official|baseline|vanilla|this model|\bours?\b|\binit\b|mtp|\w/\w|"
    r"kimi|qwen|llama|deepseek|glm|minimax|gpt-oss|gemma|mistral",
    re.IGNORECASE,
)
_OTHER_MEASURE = re.compile(
    r"\b(?:speed-?up|tok(?:ens?)?/s|tps|throughput|latency|rate|accuracy|score|time|loss)\b", re.IGNORECASE
)
_SUMMARY = re.compile(r"(?:average|avg\.?|mean|overall|total)\b", re.IGNORECASE)
_DECIMAL = re.compile(r"\d{1,2}(?:\.\d{1,6})?")
_NOTE = re.compile(r"\s*(?:\([^()]*\)|[†‡*]+)$")

_NUMBER = r"[\"']?\s{0,3}(?:=|:|\s)\s{0,3}[\"']?(\d{1,3})(?![\w.,]*\d|[km]\b)"
_SETTINGS = {
    "steps": re.compile(
        rf"(?<![\w-])(?:(?:--)?speculative[-_])?(?:num[-_]steps|num_speculative_tokens){_NUMBER}"
        rf"|(?<![\w-])steps\s?=\s?(\d{{1,3}})(?!\d)",
        re.IGNORECASE,
    ),
    "topk": re.compile(rf"(?<![\w-])(?:(?:--)?speculative[-_])?(?:eagle[-_])?topk{_NUMBER}", re.IGNORECASE),
    "num_draft_tokens": re.compile(
        rf"(?<![\w-])(?:(?:--)?speculative[-_])?num[-_]draft[-_]tokens{_NUMBER}", re.IGNORECASE
    ),
    "batch_size": re.compile(
        r"(?<![\w-])(?:bs|batch_size)\s?=\s?(\d{1,4})(?!\d)[^\n]{0,80}?(?:topk|draft)", re.IGNORECASE
    ),
}
_COLUMNS = {
    "steps": re.compile(r"(?:num[_ ])?steps", re.IGNORECASE),
    "topk": re.compile(r"top-?k", re.IGNORECASE),
    "num_draft_tokens": re.compile(r"(?:num[_ ])?draft[_ ]tokens", re.IGNORECASE),
    "batch_size": re.compile(r"bs|batch[_ ]size", re.IGNORECASE),
}
_TEMPERATURE = re.compile(r"\btemperature\s?(?:=|of|:)?\s?(\d(?:\.\d{1,3})?)(?![\d.]\d)", re.IGNORECASE)
_ENGINE = re.compile(
    r"\b(sglang|vllm)(?:\s?(?:==|version|v|,)?\s?v?(\d{1,3}\.\d{1,3}(?:\.\d{1,3})?(?:\.?(?:post|rc|dev)\d{1,3})?))?\b",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class _Columns:
    """Which column holds what; `is_named`: the value column's own header says accept length."""

    value: int
    benchmark: int | None
    model: int | None
    is_named: bool


def accept_lens(tables: list[Table], body: str, source: str) -> tuple[AcceptLen, ...]:
    """The rows of every table of a card that can only be read as this drafter's accept_len.

    `body` is the card's text, for the settings: a setting told twice with different values is None.
    """
    settings = {name: _only(pattern, body) for name, pattern in _SETTINGS.items()}
    engine = _engine(body)
    return tuple(row for table in tables for row in _rows(table, settings, engine, source))


def _rows(table: Table, settings: Settings, engine: str | None, source: str) -> Iterator[AcceptLen]:
    columns = _columns(table)
    if columns is None:
        return
    own = [(row, value) for row in _own_rows(table, columns) if (value := _value(row[columns.value])) is not None]
    most = most_per_round(settings["steps"], settings["num_draft_tokens"])
    if most is not None and any(value > most for _, value in own):
        # No round emits so many tokens: the settings told are not this table's.
        if not columns.is_named:
            return
        settings = dict.fromkeys(settings)
    for row, value in own:
        name = None if columns.benchmark is None else _benchmark(row[columns.benchmark])
        if name != "":
            yield _accept_len(value, name, {**settings, **_row_settings(table, row)}, engine, table.lead, source)


def _accept_len(
    value: float, benchmark: str | None, settings: Settings, engine: str | None, lead: str, source: str
) -> AcceptLen:
    return AcceptLen(
        value=value,
        benchmark=benchmark,
        steps=settings["steps"],
        topk=settings["topk"],
        num_draft_tokens=settings["num_draft_tokens"],
        temperature=_temperature(lead),
        engine=engine,
        source=source,
        batch_size=settings["batch_size"],
    )


def _columns(table: Table) -> _Columns | None:
    """Which column is which; None where the accept_len column, or whose rows these are, cannot be told."""
    named = _matching(table, _ACCEPT_LEN)
    told = named or (_candidates(table) if _ACCEPT_LEN.search(f"{table.lead} {table.heading}") else [])
    if len(told) > 1:
        told = [index for index in told if _THIS_MODEL.search(table.header[index])]
    if len(told) != 1:
        return None
    words = [index for index in range(len(table.header)) if index != told[0] and not _is_numeric(table, index)]
    model = _first(table, words, _MODEL)
    benchmark = _first(table, words, _BENCHMARK)
    if benchmark is None and model is None:
        benchmark = _first(table, words, _CATEGORY)
    if benchmark is None and model is None:
        benchmark = next((index for index in words if not _has_models(table, index)), None)
        if benchmark is None:
            return None
    return _Columns(told[0], benchmark, model, is_named=bool(named))


def _candidates(table: Table) -> list[int]:
    """Columns of plausible accept lengths, not all whole numbers, whose header names no other measure."""
    wanted = []
    for index, header in enumerate(table.header):
        cells = [row[index] for row in table.rows if row[index]]
        fits = all(_value(cell) is not None for cell in cells) and any("." in cell for cell in cells)
        if fits and not _OTHER_MEASURE.search(header):
            wanted.append(index)
    return wanted


def _own_rows(table: Table, columns: _Columns) -> list[tuple[str, ...]]:
    """The rows that are about this drafter: all, unless a column tells models apart."""
    if columns.model is None:
        return list(table.rows)
    own = [row for row in table.rows if _THIS_MODEL.search(row[columns.model])]
    if columns.benchmark is None:
        return own if len(own) == 1 else []
    is_one = len({row[columns.model] for row in table.rows}) == 1
    return list(table.rows) if is_one else own


def _matching(table: Table, pattern: re.Pattern[str]) -> list[int]:
    return [index for index, header in enumerate(table.header) if pattern.search(header)]


def _first(table: Table, indices: list[int], pattern: re.Pattern[str]) -> int | None:
    return next((index for index in indices if pattern.search(table.header[index])), None)


def _is_numeric(table: Table, index: int) -> bool:
    return all(_DECIMAL.fullmatch(row[index]) or row[index].isdecimal() for row in table.rows)


def _has_models(table: Table, index: int) -> bool:
    return any(_MODEL_LIKE.search(row[index]) for row in table.rows)


def _value(cell: str) -> float | None:
    text = _NOTE.sub("", cell[:40])
    value = float(text) if _DECIMAL.fullmatch(text) else 0.0
    return value if 1.0 <= value <= MAX_ACCEPT_LEN else None


def _benchmark(cell: str) -> str:
    """The name without remarks; "" for a row that sums up others."""
    name = _NOTE.sub("", cell[:80]).strip()
    return "" if _SUMMARY.match(name) else name


def _row_settings(table: Table, row: tuple[str, ...]) -> Settings:
    told = {}
    for name, pattern in _COLUMNS.items():
        for index in (index for index, header in enumerate(table.header) if pattern.fullmatch(header)):
            told[name] = int(row[index]) if re.fullmatch(r"[0-9]{1,4}", row[index]) else None
    return told


def _only(pattern: re.Pattern[str], text: str) -> int | None:
    values = {int(next(group for group in match.groups() if group)) for match in pattern.finditer(text)}
    return values.pop() if len(values) == 1 else None


def _engine(text: str) -> str | None:
    """The one engine a card speaks of, with its version if just one is told."""
    found = [(match[1].lower(), match[2]) for match in _ENGINE.finditer(text)]
    names, versions = {name for name, _ in found}, {version for _, version in found if version}
    if len(names) != 1:
        return None
    return " ".join([*names, *(versions if len(versions) == 1 else ())])


def _temperature(lead: str) -> float | None:
    values = {float(match[1]) for match in _TEMPERATURE.finditer(lead)}
    return values.pop() if len(values) == 1 else None
