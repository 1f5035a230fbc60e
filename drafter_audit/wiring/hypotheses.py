"""What might be true of a drafter instead of what it declares: every wiring that differs from one by one knob."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import combinations, permutations, product
from typing import Any

from drafter_audit.drafter.boundaries import Ids
from drafter_audit.drafter.spec import DrafterSpec
from drafter_audit.drafter.wiring import KNOBS, Side, Wiring
from drafter_audit.engines import engine_of, newest_releases
from drafter_audit.wiring.knob_values import SHIFTS, values_of
from drafter_audit.wiring.result import NotObservable, listed

STATES = ("boundaries", "slot_order")
"""Both say which state each slot reads: two knobs, one question."""


@dataclass(frozen=True)
class Hypothesis:
    """`wiring` is the base with `knob` at `value`. An engine's may turn several knobs: `knob` is then the first."""

    name: str
    knob: str
    value: Any
    wiring: Wiring
    engine: str | None = None

    def alone(self, base: Wiring) -> bool:
        """Whether it turns one knob: what it gains can then be laid to that."""
        return len({"boundaries" if knob in STATES else knob for knob in base.differs(self.wiring)}) == 1


@dataclass(frozen=True)
class Scope:
    """The drafter, the recorded target's number of layers, the boundaries that the recording has, and whether it has
    the last one behind the final norm too."""

    spec: DrafterSpec
    num_layers: int
    recorded: Ids
    last_normed: bool = False

    def holds(self, wiring: Wiring) -> bool:
        """Whether the last state is recorded from the side of the final norm on which `wiring` reads it."""
        return self.last_normed or wiring.last_state == "pre_norm" or self.num_layers not in (wiring.boundaries or ())


_OTHER_SIDE: Mapping[Side, Side] = {"pre_norm": "post_norm", "post_norm": "pre_norm"}


def hypotheses(scope: Scope, base: Wiring) -> tuple[tuple[Hypothesis, ...], tuple[NotObservable, ...]]:
    """All that turn one knob of `base`, each wiring once, the engines' own last; and what no recording shows."""
    found: dict[str, Hypothesis] = {}  # by their text: a wiring may hold a list, which has no hash
    for one in (*_states(scope, base), *_knobs(scope, base), *_engines(scope, base)):
        if base.differs(one.wiring) and scope.holds(one.wiring):
            found.setdefault(repr(one.wiring), one)
    return tuple(found.values()), tuple(_hidden(scope, base))


def completions(spec: DrafterSpec, declared: Wiring) -> tuple[Hypothesis, ...]:
    """`declared` with the knobs that nothing tells at each of their values; none where all are told."""
    left_open, values = _left_open(declared), values_of(spec)
    found = []
    for chosen in product(*(values[knob].items() for knob in left_open)):
        told = {knob: value for knob, (_, value) in zip(left_open, chosen, strict=True)}
        name = ", ".join(f"{knob} {name}" for knob, (name, _) in zip(left_open, chosen, strict=True))
        found.append(Hypothesis(name, ", ".join(left_open), listed(tuple(told.values())), replace(declared, **told)))
    return tuple(found) if left_open else ()


def with_boundaries(base: Wiring, boundaries: Ids) -> Wiring:
    """`base` reading those states, its `slot_order` written as `declared_wiring` writes it."""
    ascending = list(boundaries) == sorted(boundaries)
    return replace(base, boundaries=boundaries, slot_order="ascending" if ascending else "listed")


def moved(base: Wiring, slot: int, boundary: int) -> Wiring:
    """`base` with one slot at another boundary."""
    read = base.boundaries or ()
    return with_boundaries(base, (*read[:slot], boundary, *read[slot + 1 :]))


def _states(scope: Scope, base: Wiring) -> Iterator[Hypothesis]:
    """Slots over the recorded boundaries, all shifted alike, the usual defaults, and slots in another order."""
    read = base.boundaries or ()
    for name, knob, boundaries in _lists(scope, read):
        if set(boundaries) <= set(scope.recorded):
            yield Hypothesis(name, knob, list(boundaries), with_boundaries(base, boundaries))


def _lists(scope: Scope, read: Ids) -> Iterator[tuple[str, str, Ids]]:
    for slot in range(len(read)):
        for boundary in scope.recorded:
            yield f"slot {slot} at boundary {boundary}", "boundaries", (*read[:slot], boundary, *read[slot + 1 :])
    for by in SHIFTS if len(read) > 1 else ():
        yield f"all boundaries {by:+d}", "boundaries", tuple(boundary + by for boundary in read)
    if len(read) == 3:
        layers = scope.num_layers  # what engines take where a config names no ids, and outputs of those layers
        for name, by in (("default boundaries", 0), ("default boundaries, as outputs of layers", 1)):
            yield name, "boundaries", (2 + by, layers // 2 + by, layers - 3 + by)
    for order in _orders(len(read)):
        yield f"slots in the order {', '.join(map(str, order))}", "slot_order", tuple(read[slot] for slot in order)


def _orders(slots: int) -> Iterator[tuple[int, ...]]:
    """All orders of few slots; of many, each two exchanged, and the reverse."""
    if slots <= 3:
        yield from permutations(range(slots))
        return
    for one, other in combinations(range(slots), 2):
        exchanged = {one: other, other: one}
        yield tuple(exchanged.get(slot, slot) for slot in range(slots))
    yield tuple(reversed(range(slots)))


def _knobs(scope: Scope, base: Wiring) -> Iterator[Hypothesis]:
    if scope.num_layers in (base.boundaries or ()):
        other = _OTHER_SIDE[base.last_state]
        yield Hypothesis(f"last_state {other}", "last_state", other, replace(base, last_state=other))
    for knob, named in values_of(scope.spec).items():
        for name, value in named.items():
            yield Hypothesis(f"{knob} {name}", knob, listed(value), replace(base, **{knob: value}))


def _engines(scope: Scope, base: Wiring) -> Iterator[Hypothesis]:
    """What each engine does with the drafter at its newest release; of knobs that it leaves open, the base's."""
    for release in newest_releases():
        effective = engine_of(release).effect(scope.spec, release).wiring
        if effective is None:
            continue
        wiring = told(effective, base)
        differs = base.differs(wiring)
        if differs and set(wiring.boundaries or ()) <= set(scope.recorded):
            value = {knob: wiring.to_dict()[knob] for knob in differs}
            yield Hypothesis(f"as {release.label} wires it", differs[0], value, wiring, release.label)


def told(effective: Wiring, base: Wiring) -> Wiring:
    """`effective`, with the base's value of each knob that it leaves open."""
    return replace(effective, **{knob: getattr(base, knob) for knob in _left_open(effective)})


def _left_open(wiring: Wiring) -> list[str]:
    return [knob for knob in KNOBS if getattr(wiring, knob) is None and knob != "rope_scaling"]


def _hidden(scope: Scope, base: Wiring) -> Iterator[NotObservable]:
    """What a recording cannot show, whatever the drafter computes."""
    every = range(scope.num_layers + 1)
    missing = [boundary for boundary in every if boundary not in scope.recorded]
    if missing:
        yield NotObservable("boundaries", missing, "these boundaries were not recorded")
    if len(base.boundaries or ()) < 2:
        yield NotObservable("slot_order", None, "it reads one state")
    other = _OTHER_SIDE[base.last_state]
    read = scope.num_layers in (base.boundaries or ())
    if not (read and scope.holds(replace(base, last_state=other))):
        why = "this recording holds it before the final norm alone" if read else "no slot reads the last state"
        yield NotObservable("last_state", other, why)


def knob_of(wiring: Wiring, base: Wiring) -> Mapping[str, tuple[Any, Any]]:
    """Each knob on which `wiring` departs from `base`, with both values as JSON has them. Which states are read is one
    knob: `slot_order` where the same ones are read in another order."""
    ours, theirs = base.to_dict(), wiring.to_dict()
    differs = {knob: (ours[knob], theirs[knob]) for knob in base.differs(wiring) if knob not in STATES}
    if base.boundaries != wiring.boundaries:
        same = sorted(base.boundaries or ()) == sorted(wiring.boundaries or ())
        differs["slot_order" if same else "boundaries"] = (ours["boundaries"], theirs["boundaries"])
    return differs


def reverted(wiring: Wiring, base: Wiring, knob: str) -> Wiring:
    """`wiring` with `knob` as in `base`."""
    if knob in STATES:
        return with_boundaries(wiring, base.boundaries or ())
    return replace(wiring, **{knob: getattr(base, knob)})
