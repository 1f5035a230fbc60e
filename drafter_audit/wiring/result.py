"""What the wiring check found, as plain data: no torch, and `to_dict` gives the JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from drafter_audit.drafter.wiring import Wiring

Interval = tuple[float, float]
Outcome = Literal["better", "worse", "indistinguishable", "same"]
"""Of a hypothesis against the wiring it departs from: better is a confirmed gain of at least the least one asked for;
worse, the interval lies above zero, or it fell behind in the race; same, it computes the same numbers."""

CHANCE = 1.1
"""accept_len up to which a drafter drafts at random. A control above it counts something else than the drafter's own
logits."""


@dataclass(frozen=True)
class Standing:
    """How a wiring does on the whole recording.

    `kl` in nats: the mean over `positions` of KL(target ‖ drafter), first draft step; `kl_later` of the steps after it,
    None where one step was drafted. `accept_len`: 1 + the mean number of accepted drafts over every position of the
    answers as a round's start, with its `interval`; `accept_len_rounds`: the same over the rounds that a live loop
    would run. `unseen` positions have no known target logit in the draft vocabulary and count for accept_len alone.
    `omitted` bounds the target's mean probability in the draft vocabulary that the recording's top logits leave out.
    """

    wiring: Wiring
    kl: float | None
    kl_later: float | None
    accept_len: float
    interval: Interval | None
    accept_len_rounds: float
    positions: int
    unseen: int
    omitted: float

    def to_dict(self) -> dict[str, Any]:
        return _plain(self) | {"wiring": self.wiring.to_dict()}


@dataclass(frozen=True)
class Tried:
    """One hypothesis beside the declared wiring. Differences are hypothesis less declared, paired by prompt, over the
    `positions` that it was tried at; `kl` and `accept_len` are the declared wiring's on all plus that difference.

    `steps` says whose KL decides: the first draft step's, or the later ones', where a knob shows first. `also` names
    hypotheses that compute the same. `prompts_needed`: how many would settle an indistinguishable one, by the variance
    seen here; None where it is settled, a gain of the least size being outside the interval. `confirmed`: a gain in
    both halves.
    """

    name: str
    knob: str
    value: Any
    wiring: Wiring
    steps: Literal["first", "later"]
    kl: float | None
    delta_kl: float | None
    delta_kl_interval: Interval | None
    accept_len: float
    delta_accept_len: float
    delta_accept_len_interval: Interval | None
    positions: int
    prompts: int
    outcome: Outcome
    prompts_needed: int | None = None
    also: tuple[str, ...] = ()

    @property
    def confirmed(self) -> bool:
        return self.outcome == "better"

    def to_dict(self) -> dict[str, Any]:
        return _plain(self) | {
            "wiring": self.wiring.to_dict(),
            "confirmed": self.confirmed,
            "rounds": self.positions,
        }


@dataclass(frozen=True)
class Fault:
    """A knob that was trained otherwise than declared.

    Before is the best wiring with this knob alone as declared, after the best wiring: what the fault costs where all
    else is mended, on the prompts that have the states of both. `kl` is the later steps' where `steps` says so. `gain`
    is the lowering of KL on the prompts that took no part in the choice, with `kl_interval`; `interval` is that of the
    gain in accept_len, over all. `costs`: it lies above zero.
    """

    knob: str
    declared: Any
    trained: Any
    steps: Literal["first", "later"]
    kl_before: float
    kl_after: float
    gain: float
    kl_interval: Interval
    accept_len_before: float
    accept_len_after: float
    interval: Interval | None

    @property
    def costs(self) -> bool:
        return self.interval is not None and self.interval[0] > 0

    def to_dict(self) -> dict[str, Any]:
        told = _plain(self)
        return {"knob": told.pop("knob"), "from": told.pop("declared"), "to": told.pop("trained")} | told | {
            "costs": self.costs
        }  # fmt: skip


@dataclass(frozen=True)
class SlotCurve:
    """One slot moved over the boundaries 0..L, all else as declared; None where a boundary was not recorded. `best` has
    the lowest KL."""

    slot: int
    declared: int
    best: int
    kl_curve: tuple[float | None, ...]
    accept_len_curve: tuple[float | None, ...]

    def to_dict(self) -> dict[str, Any]:
        return _plain(self)


@dataclass(frozen=True)
class NotObservable:
    """A value of a knob that this drafter or this recording cannot tell from the declared one, and why."""

    knob: str
    value: Any
    reason: str

    def to_dict(self) -> dict[str, Any]:
        return _plain(self)


@dataclass(frozen=True)
class Control:
    """accept_len of the declared wiring with the head's rows permuted, and with draft ids taken for target ids, None
    where the vocabulary is not reduced or some draft ids are the target's."""

    accept_len: float
    identity_map: float | None

    def to_dict(self) -> dict[str, Any]:
        return _plain(self)


@dataclass(frozen=True)
class TapsWorth:
    """The best wiring with its states shuffled among positions: by how much KL rises, and accept_len falls, with
    their intervals, None of one prompt."""

    kl: float | None
    accept_len: float
    kl_without: float | None
    accept_len_without: float
    kl_interval: Interval | None = None
    accept_len_interval: Interval | None = None

    @property
    def drafts(self) -> bool:
        """Whether the states make drafts right, as far as the prompts tell."""
        return self.accept_len_interval is None or self.accept_len_interval[0] > 0

    @property
    def counts(self) -> bool:
        """Whether they bring the drafter nearer to the target, be it in what it drafts or in how sure it is."""
        return self.drafts or self.kl_interval is None or self.kl_interval[0] > 0

    def to_dict(self) -> dict[str, Any]:
        return _plain(self)


@dataclass(frozen=True)
class Step:
    """One step of the search: what it went on with, and the KL by which it was chosen, before and after."""

    name: str
    knob: str
    value: Any
    kl_before: float
    kl_after: float

    def to_dict(self) -> dict[str, Any]:
        return _plain(self)


@dataclass(frozen=True)
class Found:
    """All that the search found. `inconclusive` says why nothing is blamed, and what it takes; None where it could be.

    `path` are the steps from the declared wiring to the best one before what proved needless was taken back.
    """

    declared: Standing
    best: Standing
    faults: tuple[Fault, ...]
    path: tuple[Step, ...]
    slots: tuple[SlotCurve, ...]
    hypotheses: tuple[Tried, ...]
    not_observable: tuple[NotObservable, ...]
    control: Control
    taps_worth: TapsWorth
    steps: int
    min_gain: float
    prompts: tuple[int, int]
    inconclusive: str | None = None
    recording: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """The JSON of `wiring`, but for what the verdict adds: verdict, engines, findings, explanations and fixes."""
        parts = ("faults", "path", "slots", "hypotheses", "not_observable")
        return {
            "declared": self.declared.to_dict(),
            "best": self.best.to_dict(),
            **{part: [each.to_dict() for each in getattr(self, part)] for part in parts},
            "control": self.control.to_dict(),
            "taps_worth": self.taps_worth.to_dict(),
            "steps": self.steps,
            "min_gain": self.min_gain,
            "prompts": list(self.prompts),
            "inconclusive": self.inconclusive,
            "recording": dict(self.recording),
        }


def _plain(one: Any) -> dict[str, Any]:  # noqa: ANN401 - any dataclass of this file
    """Its fields as JSON knows them."""
    return {name: listed(getattr(one, name)) for name in one.__dataclass_fields__}


def listed(value: Any) -> Any:  # noqa: ANN401 - a knob's value, or a field's
    """Tuples as lists, and sorted pairs, as `rope_scaling` has, as an object."""
    if isinstance(value, tuple) and value and all(isinstance(v, tuple) and isinstance(v[0], str) for v in value):
        return dict(value)
    return list(map(listed, value)) if isinstance(value, tuple) else value
