"""Make the bundled records from notes on published models: one TOML file per repository, beside this script.

    python -m reference_models.build DRAFTERS.jsonl TARGETS.jsonl [--out FOLDER] [--by-hand FOLDER]

The same input gives the same bytes. What is left out is told on stderr, with the reason.

The notes are JSON objects, one a line. Fields in angle brackets are checked for their type and not taken over: they
are prose, arithmetic or claims. A field that is not listed here, or that has another type, is refused.

Drafters:

- `repo_id` "org/name"; a training template has `kind` and is left out, and so is a display name.
- `target` "org/name"; a remark after it in brackets makes it an inference. Any other text names no repository.
- `sources` [URL], each with an optional remark in brackets: "(mirror)" for a copy of the Hub's page, "(README table)".
- `confidence` "high", "medium" or "low", for all that the object says.
- `license`, `training` {dataset, samples, framework, <the rest>}, `hf_param_count` "2B" and `readme_param_count`.
- `config` {the fields of the published config.json that were seen}.
- `config_from_repo` {source, the fields of the config in its trainer's repository}.
- `results` [{benchmark, accept_len or accept_len_by_k {steps: value}, steps or num_speculative_tokens or k or
  draft_length, topk, num_draft_tokens, temperature, batch_size, engine, throughput, baseline_throughput,
  source, measured_by, <the rest>}].
- <config_claims, config_partial, config_template, tensors, files, format, recommended, claims, notes and others>.

Targets: `repo_id`, `role` "target", `source` [URL], `confidence`, `config` and `text_config` {fields of config.json and
of its language model's section}, `quantization` and `text_quantization` {their `quantization_config`, abridged; null
where config.json has none, which counts only with confidence "high"}, `hf_quant_config` {that file, abridged}, <notes>.
"""

from __future__ import annotations

import argparse
import json
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import tomlkit

from drafter_audit.facts import registry, schema
from reference_models.convert import CONFIDENCES, Raw, drafter, target

Fields = Mapping[str, tuple[type, ...]]

_TEXT, _LIST, _OBJECT, _NUMBER = (str,), (list,), (dict,), (int, float)
_NULL = type(None)
DRAFTER_FIELDS: Fields = {
    "repo_id": _TEXT, "kind": _TEXT, "target": _TEXT, "sources": _LIST, "confidence": _TEXT, "license": _TEXT,
    "training": _OBJECT, "hf_param_count": _TEXT, "readme_param_count": _TEXT, "config": _OBJECT,
    "config_from_repo": _OBJECT, "results": _LIST,
    # Not taken over.
    "config_claims": _OBJECT, "config_partial": _OBJECT, "config_template": _OBJECT, "tensors": _OBJECT,
    "tensors_inferred": _OBJECT, "tensors_note": _TEXT, "tensor_types": _LIST, "derived_param_counts": _OBJECT,
    "files": (list, dict), "format": _TEXT, "recommended": _OBJECT, "claims": _LIST, "notes": _TEXT, "release": _TEXT,
    "engine": _TEXT, "paired_with": (str, _NULL),
}  # fmt: skip
RESULT_FIELDS: Fields = {
    "benchmark": _TEXT, "accept_len": (*_NUMBER, _NULL), "accept_len_by_k": _OBJECT, "steps": (int,),
    "num_speculative_tokens": (int,), "k": (int,), "draft_length": (int,), "topk": (int,), "num_draft_tokens": (int,),
    "temperature": _NUMBER, "batch_size": (int,), "engine": _TEXT, "throughput": _NUMBER,
    "baseline_throughput": _NUMBER, "source": _TEXT, "measured_by": _TEXT,
    # Not taken over.
    "accept_len_phase1": _NUMBER, "accept_len_samples": _LIST, "accept_rate": _NUMBER, "accuracy": _NUMBER,
    "block_size": (int,), "concurrency": (int,), "cond_acc": _LIST, "dflash_accept_len": _NUMBER,
    "dflash_throughput": _NUMBER, "dtype": _TEXT, "full_acc": _LIST, "hardware": _TEXT, "max_new_tokens": (int,),
    "mismatched_eagle3_k26_head_accept_len": _NUMBER, "n": (int,), "native_mtp_accept_len": _NUMBER,
    "native_mtp_throughput": _NUMBER, "note": _TEXT, "per_position_accept": _LIST, "range": _LIST,
    "target_quant": _TEXT, "thinking": (bool,), "top_p": _NUMBER, "tp": (int,), "val_loss": _NUMBER,
}  # fmt: skip
TARGET_FIELDS: Fields = {
    "repo_id": _TEXT, "role": _TEXT, "source": _LIST, "confidence": _TEXT, "config": _OBJECT, "text_config": _OBJECT,
    "quantization": (dict, _NULL), "text_quantization": (dict, _NULL), "hf_quant_config": _OBJECT, "notes": _TEXT,
}  # fmt: skip
# The order of a record's groups.
_GROUPS = (
    "schema_version", "role", "repo", "license", "target", "training", "stored_tensors", "published_parameters",
    "hf_quant_config", "config_origin", "config", "accept_len",
)  # fmt: skip


def main(arguments: list[str] | None = None) -> int:
    """Read, build, write; tell on stderr what was left out. Returns 1, after one line, on notes it cannot read."""
    here = Path(__file__).parent
    parser = argparse.ArgumentParser(description="Make the bundled records from notes on published models.")
    parser.add_argument("drafters", type=Path, metavar="DRAFTERS.jsonl")
    parser.add_argument("targets", type=Path, metavar="TARGETS.jsonl")
    parser.add_argument("--out", type=Path, default=here, help="where the records go")
    parser.add_argument("--by-hand", type=Path, default=here / "by_hand", help="groups that replace built ones")
    given = parser.parse_args(arguments)
    try:
        records, left_out = build(given.drafters, given.targets, given.by_hand)
        texts = {registry.name_of(record["repo"]): text_of(record) for record in records}
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    for name, text in texts.items():
        (given.out / f"{name}.toml").write_text(text, encoding="utf-8")
    _summarise(records, left_out)
    return 0


def build(drafters: Path, targets: Path, by_hand: Path) -> tuple[list[Raw], Counter[str]]:
    """The records, and how much was left out by reason. Raises ValueError where the notes do not follow the format."""
    left_out: Counter[str] = Counter()
    records = [drafter(raw, left_out) for raw in read(drafters, DRAFTER_FIELDS)]
    records += [target(raw, left_out) for raw in read(targets, TARGET_FIELDS)]
    kept = [_completed(record, by_hand) for record in records if record is not None]
    twice = [repo for repo, count in Counter(record["repo"].lower() for record in kept).items() if count > 1]
    if twice:
        raise ValueError(f"{twice[0]} is described twice")
    return kept, left_out


def text_of(record: Raw) -> str:
    """The record as TOML, groups and keys in a fixed order. Raises ValueError where it breaks the schema."""
    problems = schema.problems(record)
    if problems:
        raise ValueError(f"{record['repo']}: {problems[0]}")
    ordered = {group: record[group] for group in _GROUPS if group in record}
    if "config" in ordered:
        ordered["config"] = _sorted(ordered["config"])
    return tomlkit.dumps(ordered)


def _sorted(table: Raw) -> Raw:
    """Keys in order, plain values before tables."""
    keys = sorted(table, key=lambda key: (isinstance(table[key], dict), key))
    return {key: _sorted(table[key]) if isinstance(table[key], dict) else table[key] for key in keys}


def _completed(record: Raw, by_hand: Path) -> Raw:
    """The record with the groups read by hand in place of its own; accept_len rows replace those of their publisher."""
    file = by_hand / f"{registry.name_of(record['repo'])}.toml"
    if not file.is_file():
        return record
    groups = tomllib.loads(file.read_text(encoding="utf-8"))
    rows = groups.get("accept_len", [])
    publishers = {row["publisher"] for row in rows}
    rows += [row for row in record.get("accept_len", []) if row["publisher"] not in publishers]
    return record | groups | ({"accept_len": rows} if rows else {})


def _summarise(records: list[Raw], left_out: Counter[str]) -> None:
    roles = Counter(record["role"] for record in records)
    rows = sum(len(record.get("accept_len", ())) for record in records)
    print(f"wrote {roles['drafter']} drafters, {roles['target']} targets, {rows} accept_len rows", file=sys.stderr)
    for reason, count in sorted(left_out.items()):
        print(f"left out: {count} {reason}", file=sys.stderr)


def read(path: Path, fields: Fields) -> Iterator[Raw]:
    """The objects of a JSON Lines file, checked. Raises ValueError that names file, line, record and field."""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            raw = json.loads(line)
        except json.JSONDecodeError as error:
            raise ValueError(f"{path.name}:{number}: not JSON: {error}") from None
        where = f"{path.name}:{number}: {raw.get('repo_id') if isinstance(raw, dict) else 'no object'}"
        _check(raw, fields, where)
        for row in raw.get("results", ()):
            _check(row, RESULT_FIELDS, f"{where}: results")
        yield raw


def _check(raw: object, fields: Fields, where: str) -> None:
    if not isinstance(raw, dict):
        raise ValueError(f"{where}: not an object")
    for key, value in raw.items():
        if key not in fields:
            raise ValueError(f"{where}: unknown field {key!r}")
        if not isinstance(value, fields[key]) or (isinstance(value, bool) and bool not in fields[key]):
            wanted = " or ".join(kind.__name__ for kind in fields[key])
            raise ValueError(f"{where}: {key} is {value!r:.60}, not {wanted}")
    if fields is not RESULT_FIELDS:
        _check_required(raw, "source" if "source" in fields else "sources", where)


def _check_required(raw: Raw, sources: str, where: str) -> None:
    for key in ("repo_id", "confidence", sources):
        if key not in raw:
            raise ValueError(f"{where}: lacks {key}")
    if raw["confidence"] not in CONFIDENCES:
        raise ValueError(f"{where}: confidence is {raw['confidence']!r}, not {', '.join(CONFIDENCES)}")


if __name__ == "__main__":
    sys.exit(main())
