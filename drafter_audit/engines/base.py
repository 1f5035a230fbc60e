"""What an engine's folder gives: its rules, and its answer for a drafter. `serving.py` sets it against the drafter.

It holds the engine's rules, each with the release range it holds in and the source line it was read at, and one
function that applies them to a drafter. It says nothing of findings: `audit/rules/engines.py` does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from packaging.version import Version

from drafter_audit.drafter.boundaries import Ids
from drafter_audit.drafter.spec import DrafterSpec
from drafter_audit.drafter.wiring import Wiring

Proof = Literal["run", "read", "deduced"]
SECTION = "eagle_config"  # of config.json, in which some trainers write


@dataclass(frozen=True)
class Rule:
    """One thing that an engine does, from release `since` to before `until`; None: as far back, or on, as is known.

    `proof`: "run", the engine, or that function of it on its own, was seen to do it; "read", its source says so;
    "deduced", it follows from what was read.
    `source` is the release and the line, or the pull request.
    """

    name: str
    text: str
    source: str
    proof: Proof = "read"
    since: str | None = None
    until: str | None = None

    def holds(self, release: Release) -> bool:
        number = release.number
        begun = self.since is None or number >= Version(self.since)
        return begun and (self.until is None or number < Version(self.until))


@dataclass(frozen=True)
class Release:
    """An engine at one version; `runner` where one release has two code paths that differ (vLLM)."""

    engine: str
    version: str
    runner: str | None = None

    @property
    def number(self) -> Version:
        return Version(self.version)

    @property
    def label(self) -> str:
        return f"{self.engine}@{self.version}" + (f" ({self.runner})" if self.runner else "")


@dataclass(frozen=True)
class Effect:
    """What an engine makes of a drafter.

    - `loads` is None where it cannot be told; `refusals` are the rules by which it would not, or would stop at the
      first request, each with its own words.
    - `wiring` is None where the kind is not known to it; `because` names the rule behind each knob that it decides.
    - `read` are the keys of this config.json that it reads, nested ones as "eagle_config.key"; `ignored` those that are
      set, of consequence, and not read.
    - `notes` are rules to know of that change no knob, `faults` what happens, unsaid, beyond what `wiring` says:
      defects, and what stands in for a tensor that is not stored.
    - `launch` are settings of the engine's own start, nested as it takes them, that bring what no key of config.json
      can; empty where none is needed. The rest of an answer assumes that the user passes none of them.
    """

    loads: bool | None
    wiring: Wiring | None
    because: Mapping[str, Rule] = field(default_factory=dict)
    refusals: tuple[tuple[Rule, str], ...] = ()
    read: tuple[str, ...] = ()
    ignored: tuple[tuple[str, Rule], ...] = ()
    notes: tuple[tuple[Rule, str], ...] = ()
    faults: tuple[tuple[Rule, str], ...] = ()
    launch: Mapping[str, Any] = field(default_factory=dict)


def one_runner(_version: str) -> tuple[str | None, ...]:
    """Of an engine with one code path."""
    return (None,)


@dataclass(frozen=True)
class Engine:
    """One serving engine. `oldest` and `newest` are the releases whose sources were read.

    `effect`: what it would do with a drafter on the target that the spec names. `edit`: the keys of config.json, nested
    as there, null to remove one, that bring it nearest to a wiring. `runners`: the code paths of a version, the default
    one first; (None,) where there is one.
    """

    name: str
    oldest: str
    newest: str
    rules: tuple[Rule, ...]
    effect: Callable[[DrafterSpec, Release], Effect]
    edit: Callable[[DrafterSpec, Release, Wiring], Mapping[str, Any]]
    runners: Callable[[str], tuple[str | None, ...]] = one_runner


@dataclass(frozen=True)
class Difference:
    """One knob on which an engine departs from what the drafter declares, and the rule by which it does.

    `mended`: whether the engine's edit of config.json brings them together.
    """

    knob: str
    declared: Any
    effective: Any
    rule: Rule | None
    mended: bool


@dataclass(frozen=True)
class Served:
    """An engine's answer beside the declared wiring. `edit` are the keys of config.json to set, empty where nothing is
    to be gained; `proof` is the weakest of the rules behind the answer. What only a setting at launch mends
    (`effect.launch`) counts as unmended: the edit is of config.json alone."""

    release: Release
    effect: Effect
    differs: tuple[Difference, ...]
    edit: Mapping[str, Any]
    proof: Proof

    @property
    def boundaries(self) -> Ids | None:
        return self.effect.wiring.boundaries if self.effect.wiring else None

    def to_dict(self) -> dict[str, Any]:
        effect, boundaries = self.effect, self.boundaries
        return {
            "name": self.release.engine,
            "version": self.release.version,
            "runner": self.release.runner,
            "loads": effect.loads,
            "refusals": [text for _, text in effect.refusals],
            "faults": [text for _, text in effect.faults],
            "boundaries": None if boundaries is None else list(boundaries),
            "wiring": {} if effect.wiring is None else effect.wiring.to_dict(),
            "differs": [difference.knob for difference in self.differs],
            "unmended": [difference.knob for difference in self.differs if not difference.mended],
            "ignored_keys": [key for key, _ in effect.ignored],
            "evidence": self.proof,
            "rules": [rule.name for rule in _applied(effect)],
            "config": dict(self.edit),
            "launch": dict(effect.launch),
        }


def merged(config: Mapping[str, Any], edit: Mapping[str, Any]) -> dict[str, Any]:
    """`config` with `edit` merged in: nested objects key by key, null removes a key (RFC 7386)."""
    result = {key: value for key, value in config.items() if edit.get(key, value) is not None or key not in edit}
    for key, value in edit.items():
        if isinstance(value, Mapping):
            inner = config.get(key)
            result[key] = merged(inner if isinstance(inner, Mapping) else {}, value)
        elif value is not None:
            result[key] = value
    return result


def joined(edit: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """Two edits as one, `change` having the last word; unlike `merged`, a null stays: it says that a key goes."""
    result = {**edit, **change}
    for key in edit.keys() & change.keys():
        one, other = edit[key], change[key]
        if isinstance(one, Mapping) and isinstance(other, Mapping):
            result[key] = joined(one, other)
    return result


def _applied(effect: Effect) -> tuple[Rule, ...]:
    """Every rule behind an answer, once each."""
    return tuple(dict.fromkeys(_all_rules(effect)))


def _all_rules(effect: Effect) -> Iterator[Rule]:
    yield from effect.because.values()
    yield from (rule for rule, _ in effect.refusals)
    yield from (rule for _, rule in effect.ignored)
    yield from (rule for rule, _ in (*effect.notes, *effect.faults))
