"""Facts of published drafters and targets that travel with the package: one TOML file per repository.

A file's name is its repository id in lower case with `-` for `/`, so one record is found without reading
the others. The files lie in reference_models/, whose README documents the schema checked here.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal, cast

from drafter_audit.errors import AuditError, BadReferenceError
from drafter_audit.facts import schema
from drafter_audit.facts.records import AcceptLen, Confidence, Facts, Training

Role = Literal["drafter", "target"]
ConfigOrigin = Literal["published", "trainer_repo"]


@dataclass(frozen=True)
class Provenance:
    """Where a group of facts was read (a URL), and how sure it is."""

    source: str
    confidence: Confidence


@dataclass(frozen=True)
class PublishedParameters:
    """A parameter count as its page states it: `written` verbatim ("2B"), `count` the number that this is."""

    count: int
    written: str


@dataclass(frozen=True)
class Record:
    """What is published about one repository.

    `config` is its config.json, nulls included; whole only if `config_complete`. `config_origin` is "trainer_repo"
    where only the config that its trainer starts from was seen, None (and `config` empty) where none was.
    `hf_quant_config` is what ModelOpt writes beside config.json. `left_out` names the modules its weight file is
    known not to hold, None where nothing is known. `provenance` is by group name (schema.GROUPS).
    """

    name: str
    repo: str
    role: Role
    config: Mapping[str, Any]
    config_complete: bool
    license: str | None = None
    target: str | None = None
    training: Training | None = None
    framework: str | None = None
    left_out: tuple[str, ...] | None = None
    published_parameters: PublishedParameters | None = None
    hf_quant_config: Mapping[str, Any] | None = None
    config_origin: ConfigOrigin | None = None
    accept_len: tuple[AcceptLen, ...] = ()
    provenance: Mapping[str, Provenance] = field(default_factory=dict)

    def held(self) -> tuple[str, ...]:
        """What the record says beside its repository and role, in words for a message."""
        groups = [name.replace("_", " ") for name in schema.GROUPS if name in self.provenance]
        rows = len(self.accept_len)
        return (*groups, *([f"{rows} accept_len row{'s' * (rows != 1)}"] if rows else []))

    def facts(self) -> Facts:
        """The record's target, training and accept_len rows; each source is "bundled record, URL"."""
        target = self.provenance.get("target")
        return Facts(
            target=self.target,
            target_source=_says(target.source) if target else None,
            training=self.training,
            accept_len=self.accept_len,
        )


def names() -> tuple[str, ...]:
    """The names of all records, sorted; a directory listing, no file is read."""
    return tuple(sorted(path.stem for path in folder().glob("*.toml")))


def load(name: str) -> Record:
    """The record called `name`. Raises BadReferenceError, naming what is near, if there is none."""
    if name not in names():
        raise BadReferenceError(f"no bundled record is called {name!r}", "reference_models", _nearest(name))
    return _load(name)


def find(repo: str) -> Record | None:
    """The record of the repository `repo` ("org/name", in any case), else None; reads one file at most."""
    name = name_of(repo)
    if not schema.REPO.fullmatch(repo) or not os.path.isfile(_file(name)):
        return None
    record = _load(name)
    return record if record.repo.lower() == repo.lower() else None


def drafters_of(target_repo: str) -> tuple[Record, ...]:
    """The drafters made for `target_repo` ("org/name", in any case), by name."""
    wanted = target_repo.lower()
    # Searching the text first spares parsing the files that cannot match.
    found = (_load(name) for name in names() if wanted in _read(_file(name)).lower())
    return tuple(record for record in found if record.target is not None and record.target.lower() == wanted)


def name_of(repo: str) -> str:
    """The record name of a repository id.

    >>> name_of("moonshotai/Kimi-K2.5")
    'moonshotai-kimi-k2.5'
    """
    return repo.lower().replace("/", "-")


def parse(text: str, name: str) -> Record:
    """The record written in `text`, TOML. Raises AuditError where it does not follow the schema."""
    import tomllib

    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _invalid(name, f"not TOML: {error}") from None
    problems = schema.problems(raw)
    if problems:
        raise _invalid(name, problems[0])
    return _record(raw, name)


def _record(raw: dict[str, Any], name: str) -> Record:
    origin = raw.get("config_origin", {})
    return Record(
        name=name,
        repo=raw["repo"],
        role=cast(Role, raw["role"]),
        config=_with_nulls(raw.get("config", {}), origin.get("null_keys", [])),
        config_complete=origin.get("complete", False),
        config_origin=cast(ConfigOrigin, origin.get("origin", "published")) if origin else None,
        license=raw["license"]["id"] if "license" in raw else None,
        target=raw["target"]["repo"] if "target" in raw else None,
        training=_training(raw["training"]) if "training" in raw else None,
        framework=raw.get("training", {}).get("framework"),
        left_out=tuple(raw["stored_tensors"]["left_out"]) if "stored_tensors" in raw else None,
        published_parameters=_published_parameters(raw.get("published_parameters")),
        hf_quant_config=_bare(raw["hf_quant_config"]) if "hf_quant_config" in raw else None,
        accept_len=tuple(_accept_len(row) for row in raw.get("accept_len", [])),
        provenance={group: _provenance(raw[group]) for group in schema.GROUPS if group in raw},
    )


@cache
def folder() -> Path:
    """Where the records lie, and the reference pair beside them."""
    # An installed wheel holds the records inside the package, a checkout beside it.
    package = Path(__file__).resolve().parent.parent
    inside = package / "reference_models"
    return inside if inside.is_dir() else package.parent / "reference_models"


@cache
def _load(name: str) -> Record:
    return parse(_read(_file(name)), name)


def _file(name: str) -> Path:
    return folder() / f"{name}.toml"


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _with_nulls(config: dict[str, Any], null_keys: list[str]) -> dict[str, Any]:
    # TOML has no null: the keys that were null in config.json are listed apart, dotted.
    whole = deepcopy(config)
    for dotted in null_keys:
        *tables, key = dotted.split(".")
        table = whole
        for part in tables:
            table = table.setdefault(part, {})
        table[key] = None
    return whole


def _training(raw: dict[str, Any]) -> Training:
    return Training(raw.get("dataset"), raw.get("samples"), _says(raw["source"]))


def _accept_len(row: dict[str, Any]) -> AcceptLen:
    told = {key.rstrip("?"): row.get(key.rstrip("?")) for key in schema.ACCEPT_LEN}
    return AcceptLen(**cast(dict[str, Any], told), source=_says(row["source"]))


def _published_parameters(raw: dict[str, Any] | None) -> PublishedParameters | None:
    return None if raw is None else PublishedParameters(raw["count"], raw["written"])


def _bare(group: dict[str, Any]) -> dict[str, Any]:
    """A group without its provenance."""
    return {key: value for key, value in group.items() if key not in schema.PROVENANCE}


def _provenance(raw: dict[str, Any]) -> Provenance:
    return Provenance(raw["source"], raw["confidence"])


def _says(source: str) -> str:
    return f"bundled record, {source}"


def _nearest(name: str) -> str:
    import difflib

    near = difflib.get_close_matches(name, names(), n=3, cutoff=0.5)
    return f"take {' or '.join(near)}" if near else "list them: drafter-audit models"


def _invalid(name: str, problem: str) -> AuditError:
    return AuditError(problem, f"reference_models/{name}.toml", "reinstall drafter-audit, or mend the file")
