"""What the file of an engine gives, and how its answer is set against what the drafter declares.

An engine's file holds its rules, each with the release range it holds in and the source line it was read at, and one
function that applies them to a drafter. It says nothing of findings: `audit/rules/engines.py` does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from packaging.version import Version

from drafter_audit.drafter.boundaries import Ids
from drafter_audit.drafter.dialects import NOTE
from drafter_audit.drafter.open import with_config
from drafter_audit.drafter.spec import DrafterSpec
from drafter_audit.drafter.wiring import Wiring, declared_wiring

Proof = Literal["run", "read", "deduced"]
_STRENGTH: tuple[Proof, ...] = ("deduced", "read", "run")
SECTION = "eagle_config"  # of config.json, in which some trainers write
_CAPTURE = ("boundaries", "slot_order")  # which states ids name, and how they are captured: two rules


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
    - `notes` are rules to know of that change no knob, `faults` defects by which more happens than `wiring` says.
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


class Engine(Protocol):
    """One serving engine. `oldest` and `newest` are the releases whose sources were read; `runners` may be empty."""

    @property
    def name(self) -> str: ...
    @property
    def oldest(self) -> str: ...
    @property
    def newest(self) -> str: ...
    @property
    def rules(self) -> tuple[Rule, ...]: ...

    def runners(self, version: str) -> tuple[str | None, ...]:
        """The code paths of a release, the default one first; (None,) where there is one."""
        ...

    def effect(self, spec: DrafterSpec, release: Release) -> Effect:
        """What it would do with a drafter on the target that `spec` names."""
        ...

    def edit(self, spec: DrafterSpec, release: Release, wanted: Wiring) -> Mapping[str, Any]:
        """The keys of config.json, nested as there, null to remove one, that bring it nearest to `wanted`."""
        ...


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


def serve(engine: Engine, spec: DrafterSpec, release: Release) -> Served:
    """What `engine` would do with the drafter, where that departs from what it declares, and the edit that mends it.

    The edit is tried, not promised: it is kept only where it leaves fewer differences and refusals, and means the same.
    """
    declared, effect = declared_wiring(spec), engine.effect(spec, release)
    edit, left = _edit(engine, spec, release, declared, effect)
    differs = tuple(
        Difference(
            knob, getattr(declared, knob), getattr(effect.wiring, knob), effect.because.get(knob), knob not in left
        )
        for knob in _knobs(declared, effect)
    )
    return Served(release, effect, differs, edit, _proof(effect, differs))


def _edit(
    engine: Engine, spec: DrafterSpec, release: Release, declared: Wiring | None, effect: Effect
) -> tuple[Mapping[str, Any], tuple[str, ...]]:
    """The edit worth making, and the knobs that still differ after it."""
    before = _knobs(declared, effect)
    faulty = before or effect.refusals or effect.ignored
    edit = engine.edit(spec, release, declared) if declared and faulty else {}
    if declared is None or not edit:
        return {}, before
    trial = _Trial(engine, spec, release, declared)
    reached = trial.badness(edit)
    if reached is None or reached >= _badness(effect, before):
        return {}, before
    edit = _least(trial, edit, reached)
    return {**edit, **_note(spec, edit)}, trial.left(edit)


@dataclass(frozen=True)
class _Trial:
    """What would come of edits of one drafter's config under one release."""

    engine: Engine
    spec: DrafterSpec
    release: Release
    declared: Wiring

    def left(self, edit: Mapping[str, Any]) -> tuple[str, ...]:
        """The knobs that still differ."""
        return _knobs(self.declared, self.engine.effect(self._edited(edit), self.release))

    def badness(self, edit: Mapping[str, Any]) -> tuple[int, int, int] | None:
        """None where the drafter would no longer declare what it does."""
        edited = self._edited(edit)
        again, after = declared_wiring(edited), self.engine.effect(edited, self.release)
        same = again is not None and not again.differs(self.declared)
        return _badness(after, _knobs(self.declared, after)) if same else None

    def _edited(self, edit: Mapping[str, Any]) -> DrafterSpec:
        return with_config(self.spec, merged(self.spec.config.raw, edit))


def _least(trial: _Trial, edit: Mapping[str, Any], reached: tuple[int, int, int]) -> Mapping[str, Any]:
    """`edit` without the keys that gain nothing. What it lifts out of a section stays: widths are no knobs."""
    lifted = trial.spec.config.layer
    for path in reversed(_paths(edit)):
        less = _without(edit, path)
        if path[0] not in lifted and (again := trial.badness(less)) is not None and again <= reached:
            edit = less
    return edit


def _paths(edit: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """The keys of an edit, those of a section one by one."""
    return [
        (key, *inner)
        for key, value in edit.items()
        for inner in ([(name,) for name in value] if key == SECTION and isinstance(value, Mapping) else [()])
    ]


def _without(edit: Mapping[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
    rest = {key: value for key, value in edit.items() if key != path[0]}
    section = {key: value for key, value in edit[path[0]].items() if key != path[1]} if path[1:] else {}
    return {**rest, path[0]: section} if section else rest


def _badness(effect: Effect, differs: tuple[str, ...]) -> tuple[int, int, int]:
    """How bad an answer is, the worst first."""
    return len(effect.refusals), len(differs), len(effect.ignored)


def _note(spec: DrafterSpec, edit: Mapping[str, Any]) -> dict[str, Any]:
    """What the edited config would no longer tell by itself: which boundaries its ids mean, and who wrote it."""
    alone, aux = with_config(spec, merged(spec.config.raw, edit), told=False), spec.aux_layers
    unclear = aux.boundaries is not None and (alone.aux_layers.boundaries, alone.aux_layers.confidence) != (
        aux.boundaries,
        aux.confidence,
    )
    note: dict[str, Any] = {"boundaries": list(aux.boundaries or ())} if unclear else {}
    note |= {"dialect": spec.dialect.name} if alone.dialect.name != spec.dialect.name else {}
    return {NOTE: note} if note else {}


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


def _knobs(declared: Wiring | None, effect: Effect) -> tuple[str, ...]:
    return () if declared is None or effect.wiring is None else declared.differs(effect.wiring)


def _applied(effect: Effect) -> tuple[Rule, ...]:
    """Every rule behind an answer, once each."""
    return tuple(dict.fromkeys(_all_rules(effect)))


def _all_rules(effect: Effect) -> Iterator[Rule]:
    yield from effect.because.values()
    yield from (rule for rule, _ in effect.refusals)
    yield from (rule for _, rule in effect.ignored)
    yield from (rule for rule, _ in (*effect.notes, *effect.faults))


def _proof(effect: Effect, differs: Sequence[Difference]) -> Proof:
    """The weakest of what the answer rests on: the captured states, what differs, refusals, faults and notes."""
    knobs = (effect.because.get(knob) for knob in (*_CAPTURE, *(difference.knob for difference in differs)))
    rules = [rule for rule in knobs if rule] + [rule for rule, _ in (*effect.refusals, *effect.faults, *effect.notes)]
    return min((rule.proof for rule in rules), key=_STRENGTH.index, default="deduced")
