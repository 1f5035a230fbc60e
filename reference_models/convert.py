"""What a note on a published model becomes: the groups of its record. build.py tells the format of the notes."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from drafter_audit.facts import schema
from drafter_audit.facts.records import most_per_round

Raw = dict[str, Any]
CONFIDENCES = ("low", "medium", "high")

_STEPS = ("steps", "num_speculative_tokens", "k", "draft_length")  # one count, by the names engines and papers give it
_LONGEST_LABEL = 120  # characters of a dataset's name; beyond, it is prose
_TIMES = {"": 1, "K": 10**3, "M": 10**6, "B": 10**9}


def drafter(raw: Raw, left_out: Counter[str]) -> Raw | None:
    """The record of a drafter; None, counted in `left_out`, where the note holds no fact that a record takes."""
    if "kind" in raw or not schema.REPO.fullmatch(raw["repo_id"]):
        left_out["training templates" if "kind" in raw else "notes without a repository id"] += 1
        return None
    origins = Origins(raw["repo_id"], tuple(raw["sources"]), raw["confidence"])
    facts: Raw = {
        "training": _training(raw, origins),
        "published_parameters": _published_parameters(raw, origins),
        **_drafter_config(raw, origins),
        "accept_len": list(_accept_len(raw, origins, left_out)),
    }
    if not any(facts.values()):
        left_out["drafters without config, results, training or count"] += 1
        return None
    groups = {"license": _license(raw, origins), "target": _target_of(raw, origins), **facts}
    record = {"schema_version": schema.SCHEMA_VERSION, "role": "drafter", "repo": raw["repo_id"]}
    return record | {name: group for name, group in groups.items() if group}


def target(raw: Raw, left_out: Counter[str]) -> Raw | None:
    """The record of a target; None, counted in `left_out`, where the note names no repository of its own."""
    if not schema.REPO.fullmatch(raw["repo_id"]):
        left_out["notes without a repository id"] += 1
        return None
    origin = Origins(raw["repo_id"], tuple(raw["source"]), raw["confidence"]).config()
    quantised = raw.get("hf_quant_config", {})
    known = {key: quantised[key] for key in ("quant_algo", "kv_cache_quant_algo", "group_size") if quantised.get(key)}
    record: Raw = {"schema_version": schema.SCHEMA_VERSION, "role": "target", "repo": raw["repo_id"]}
    return record | ({"hf_quant_config": known | origin} if known else {}) | _config(_target_config(raw), origin)


@dataclass(frozen=True)
class Origins:
    """Where a note's facts were read, and how sure they are. Each method gives a group's `source` and `confidence`."""

    repo: str
    sources: tuple[str, ...]
    confidence: str

    def config(self) -> Raw:
        """Of a config: the repository's own config.json, else any, else the repository's page."""
        return self._first(lambda text: self._own(text) and "config.json" in text, lambda text: "config.json" in text)

    def card(self) -> Raw:
        """Of what a model card says: the card, else the repository's page, else its owner's pages."""
        return self._first(
            lambda text: self._own(text) and "README.md" in text,
            lambda text: self._own(text) and "config.json" not in text,
            self._own,
            lambda text: self.names_owner(_url(text)),
        )

    def containing(self, part: str) -> Raw:
        """Of what is said where `part` is in the address or in the remark behind it."""
        return self._first(lambda text: part in text)

    def names_owner(self, url: str) -> bool:
        """Whether the page belongs to the organisation that owns the repository."""
        return self.repo.split("/")[0].lower() in url.lower().split("/")[3:]

    def _own(self, text: str) -> bool:
        return self.repo.lower() in text.lower()

    def _first(self, *wanted: Callable[[str], bool]) -> Raw:
        """The source that the earliest of `wanted` holds for, else the first one."""
        urls = [text for text in self.sources if text.startswith("https://")]
        if not urls:
            raise ValueError(f"{self.repo}: none of its sources is a URL")
        source = next((text for holds in wanted for text in urls if holds(text)), urls[0])
        if "(mirror" not in source:
            return {"source": _url(source), "confidence": self.confidence}
        # A mirror of the Hub's page was read: the page is named, and the fact is second-hand.
        return {"source": _unmirrored(_url(source)), "confidence": at_most("medium", self.confidence)}


def at_most(limit: str, confidence: str) -> str:
    """The lower of two confidences.

    >>> at_most("medium", "high"), at_most("medium", "low")
    ('medium', 'low')
    """
    return min(limit, confidence, key=CONFIDENCES.index)


def _url(source: str) -> str:
    return source.split(" ")[0]


def _unmirrored(url: str) -> str:
    path = "/".join(url.split("/")[3:])
    return "https://huggingface.co/" + re.sub(r"^(huggingface|hf)/", "", path)


def _license(raw: Raw, origins: Origins) -> Raw | None:
    return {"id": raw["license"].lower().replace(" ", "-"), **origins.card()} if "license" in raw else None


def _target_of(raw: Raw, origins: Origins) -> Raw | None:
    """A repository id; with a remark in brackets behind it, it was inferred. Other text names no repository."""
    found = re.fullmatch(rf"({schema.REPO.pattern})( \(.*\))?", raw.get("target", ""), re.ASCII)
    if found is None:
        return None
    origin = origins.card()
    if found[2]:
        origin["confidence"] = at_most("medium", origin["confidence"])
    return {"repo": found[1], **origin}


def _training(raw: Raw, origins: Origins) -> Raw | None:
    told = raw.get("training", {})
    dataset = told.get("dataset", "")
    known = {
        "dataset": dataset if len(dataset) <= _LONGEST_LABEL and ";" not in dataset else None,
        "samples": samples(told.get("samples", "")),
        "framework": told.get("framework"),
    }
    known = {key: value for key, value in known.items() if value}
    return {**known, **origins.card()} if known else None


def samples(text: str) -> int | None:
    """A count of training samples, None where the text does not give one and only one.

    >>> samples("1.4M"), samples("~55k"), samples("148112 rows"), samples("600K samples, 1B tokens")
    (1400000, 55000, 148112, 600000)
    >>> samples("2 phases of 20k steps"), samples("240k math")
    (None, None)
    """
    found = re.fullmatch(r"~?([\d.]+[kKM]?)( (samples|rows|prompts))?(, [\d.]+[BT] tokens)?", text)
    return found and _number(found[1])


def _number(text: str) -> int | None:
    """
    >>> _number("0.25B"), _number("6.08M"), _number("1.2.3")
    (250000000, 6080000, None)
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([KMB]?)", text.upper())
    return int(Decimal(found[1]) * _TIMES[found[2]]) if found else None


def _published_parameters(raw: Raw, origins: Origins) -> Raw | None:
    """The Hub's count where it was seen, else the one that the trainer's own list gives."""
    written = str(raw.get("hf_param_count", raw.get("readme_param_count", ""))).split(" (")[0]
    count = _number(written)
    if count is None:
        return None
    origin = origins.containing("huggingface.co" if "hf_param_count" in raw else "(README")
    return {"count": count, "written": written, **origin}


def _drafter_config(raw: Raw, origins: Origins) -> Raw:
    """[config] and [config_origin]. What the trainer's repository holds is completed by published fields, if any."""
    if "config_from_repo" not in raw:
        return _config(_kept(raw["config"]), origins.config()) if "config" in raw else {}
    trainers = {key: value for key, value in raw["config_from_repo"].items() if key != "source"}
    source = raw["config_from_repo"]["source"]
    origin = {"source": source} if source.startswith("https://") else {"source": origins.config()["source"]}
    origin |= {"confidence": at_most("medium", origins.confidence), "origin": "trainer_repo"}
    return _config(_kept(trainers | raw.get("config", {})), origin)


def _target_config(raw: Raw) -> Raw:
    config, nested = _kept(raw["config"]), _kept(raw.get("text_config", {}))
    if raw.get("text_quantization"):
        nested["quantization_config"] = _quantization(raw["text_quantization"])
    if nested:
        config["text_config"] = nested
    if raw["quantization"]:
        config["quantization_config"] = _quantization(raw["quantization"])
    elif raw["confidence"] == "high" and not raw.get("text_quantization"):
        config["quantization_config"] = None  # the whole file was looked through for it
    return config


def _kept(config: Raw) -> Raw:
    """The fields of config.json, without what sums up a long list."""
    return {key: value for key, value in config.items() if not key.startswith("layer_types_")}


def _quantization(told: Raw) -> Raw:
    """`quantization_config` without what sums up a long list; the first group's `weights` back in their place."""
    summaries = ("ignore_count", "ignore_first", "weights")
    kept = {key: value for key, value in told.items() if key not in summaries and value is not None}
    if isinstance(kept.get("modules_to_not_convert"), dict):
        del kept["modules_to_not_convert"]
    weights = {key: value for key, value in told.get("weights", {}).items() if value is not None}
    return kept | ({"config_groups": {"group_0": {"weights": weights}}} if weights else {})


def _config(config: Raw, origin: Raw) -> Raw:
    null_keys = sorted(_null_keys(config))
    whole = {"source": origin["source"], "confidence": origin["confidence"], "complete": False, "null_keys": null_keys}
    return {"config_origin": whole | origin, "config": _without_nulls(config)}


def _null_keys(config: Raw, prefix: str = "") -> Iterator[str]:
    for key, value in config.items():
        if value is None:
            yield prefix + key
        elif isinstance(value, dict):
            yield from _null_keys(value, f"{prefix}{key}.")


def _without_nulls(config: Raw) -> Raw:
    """TOML has no null."""
    return {
        key: _without_nulls(value) if isinstance(value, dict) else value
        for key, value in config.items()
        if value is not None
    }


def _accept_len(raw: Raw, origins: Origins, left_out: Counter[str]) -> Iterator[Raw]:
    for told in raw["results"]:
        rows = list(_rows(told, origins))
        if not rows:
            left_out["results without an accept_len"] += 1
        for row in rows:
            most = most_per_round(row.get("steps"), row.get("num_draft_tokens"))
            if row["value"] < 1 or (most is not None and row["value"] > most):
                left_out["accept_len rows beyond what their settings allow"] += 1
                bound = f"{row['value']} is not from 1 to {most or 'any'}"
                print(f"left out: {raw['repo_id']}, {row['benchmark']}: {bound}", file=sys.stderr)
            else:
                yield row


def _rows(told: Raw, origins: Origins) -> Iterator[Raw]:
    """One row, or one for each number of steps that was measured."""
    if told.get("accept_len") is not None:
        yield _row(told, told["accept_len"], next((told[key] for key in _STEPS if key in told), None), origins)
    for steps, value in told.get("accept_len_by_k", {}).items():
        yield _row(told, value, int(steps), origins)


def _row(told: Raw, value: float, steps: int | None, origins: Origins) -> Raw:
    engine = told.get("engine", "").lower().split(" (")[0]
    publisher, origin = _publisher(told, origins)
    row = {
        "benchmark": told["benchmark"],
        "value": value,
        "steps": steps,
        **{key: told.get(key) for key in ("topk", "num_draft_tokens", "temperature", "batch_size")},
        "engine": engine or None,
        "tokens_per_s": told.get("throughput"),
        "plain_tokens_per_s": told.get("baseline_throughput"),
        "publisher": publisher,
        **origin,
    }
    return {key: value for key, value in row.items() if value is not None}


def _publisher(told: Raw, origins: Origins) -> tuple[str, Raw]:
    """Who measured, and where that was read: the author where the page belongs to the repository's owner."""
    if told.get("source", "").startswith("SpecBundle"):
        return "SpecBundle", origins.containing("spec_bundle")
    origin = origins.card()
    if "measured_by" in told:
        return told["measured_by"].removesuffix(" card"), origin
    url = origin["source"]
    return "author" if origins.names_owner(url) else "/".join(url.split("/")[3:5]), origin
