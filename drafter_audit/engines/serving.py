"""An engine's answer set against what the drafter declares, and the edit of config.json that mends it, tried."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from drafter_audit.drafter.dialects import NOTE
from drafter_audit.drafter.open import with_config
from drafter_audit.drafter.spec import DrafterSpec
from drafter_audit.drafter.wiring import Wiring, declared_wiring
from drafter_audit.engines.base import SECTION, Difference, Effect, Engine, Proof, Release, Served, merged

_STRENGTH: tuple[Proof, ...] = ("deduced", "read", "run")
_CAPTURE = ("boundaries", "slot_order")  # which states ids name, and how they are captured: two rules


def serve(engine: Engine, spec: DrafterSpec, release: Release, wanted: Wiring | None = None) -> Served:
    """What `engine` would do with the drafter, where that departs from what it declares, and the edit that mends it.

    `wanted` is what the drafter should declare, where that is not what it does. The edit is tried, not promised: it is
    kept only where it leaves fewer differences and refusals, and makes the drafter declare what is wanted.
    """
    declared, effect = wanted or declared_wiring(spec), engine.effect(spec, release)
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
    faulty = before or effect.refusals or effect.faults or effect.ignored
    edit = engine.edit(spec, release, declared) if declared and faulty else {}
    if declared is None or not edit:
        return {}, before
    trial = _Trial(engine, spec, release, declared)
    reached = trial.badness(edit)
    if reached is None or reached >= _badness(effect, before):
        return {}, before
    edit = _least(trial, edit, reached)
    return {**edit, **note(spec, edit)}, trial.left(edit)


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

    def badness(self, edit: Mapping[str, Any]) -> tuple[int, ...] | None:
        """None where the drafter would not declare what it should."""
        edited = self._edited(edit)
        again, after = declared_wiring(edited), self.engine.effect(edited, self.release)
        same = again is not None and not again.differs(self.declared)
        return _badness(after, _knobs(self.declared, after)) if same else None

    def _edited(self, edit: Mapping[str, Any]) -> DrafterSpec:
        return with_config(self.spec, merged(self.spec.config.raw, edit))


def _least(trial: _Trial, edit: Mapping[str, Any], reached: tuple[int, ...]) -> Mapping[str, Any]:
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


def _badness(effect: Effect, differs: tuple[str, ...]) -> tuple[int, ...]:
    """How bad an answer is, the worst first."""
    return len(effect.refusals), len(differs), len(effect.faults), len(effect.ignored)


def note(spec: DrafterSpec, edit: Mapping[str, Any]) -> dict[str, Any]:
    """What the edited config does not tell by itself: which boundaries its ids mean, and who wrote it.

    As an edit, empty where it tells both. An empty `edit` leaves what the user said of the ids.
    """
    alone, aux = with_config(spec, merged(spec.config.raw, edit), told=False), spec.aux_layers
    unclear = aux.boundaries is not None and (alone.aux_layers.boundaries, alone.aux_layers.confidence) != (
        aux.boundaries,
        aux.confidence,
    )
    told: dict[str, Any] = {"boundaries": list(aux.boundaries or ())} if unclear else {}
    told |= {"dialect": spec.dialect.name} if alone.dialect.name != spec.dialect.name else {}
    return {NOTE: told} if told else {}


def _knobs(declared: Wiring | None, effect: Effect) -> tuple[str, ...]:
    return () if declared is None or effect.wiring is None else declared.differs(effect.wiring)


def _proof(effect: Effect, differs: Sequence[Difference]) -> Proof:
    """The weakest of what the answer rests on: the captured states, what differs, refusals, faults and notes."""
    knobs = (effect.because.get(knob) for knob in (*_CAPTURE, *(difference.knob for difference in differs)))
    rules = [rule for rule in knobs if rule] + [rule for rule, _ in (*effect.refusals, *effect.faults, *effect.notes)]
    return min((rule.proof for rule in rules), key=_STRENGTH.index, default="deduced")
