"""What engines say they do with a drafter, tried in the reference loop."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from drafter_audit.drafter.spec import DrafterSpec
from drafter_audit.drafter.wiring import Wiring
from drafter_audit.engines import engine_of
from drafter_audit.engines.base import Release
from drafter_audit.errors import AuditError
from drafter_audit.wiring.evidence import Claim
from drafter_audit.wiring.fix import Edit
from drafter_audit.wiring.hypotheses import told
from drafter_audit.wiring.probe import Probe
from drafter_audit.wiring.profiled import profiled


def claims(
    probe: Probe, best: Wiring, releases: Sequence[Release], edits: Sequence[Edit], measured: float | None
) -> tuple[Claim, ...]:
    """Each release's effective wiring, replayed; `measured` is what one of them reached, None where it was not told."""
    return tuple(_claims(probe, best, releases, edits, measured))


def _claims(
    probe: Probe, best: Wiring, releases: Sequence[Release], edits: Sequence[Edit], measured: float | None
) -> Iterator[Claim]:
    by_engine = {edit.engine: edit for edit in edits}
    for release in releases:
        effective = engine_of(release).effect(probe.spec, release).wiring
        edit = by_engine.get(release.label)
        if effective is None:
            yield Claim(release, (), None, None, "what it does with drafters of this kind is not known", measured)
            continue
        wiring = told(effective, best)
        try:
            found = profiled(probe.under(wiring), probe.corpus.recording, probe.steps)
        except AuditError as error:
            yield Claim(release, best.differs(wiring), None, None, error.what, measured, edit)
            continue
        yield Claim(release, best.differs(wiring), found.accept_len, found.interval, None, measured, edit)


@dataclass(frozen=True)
class Claimed:
    """The wiring that a release says it gives a drafter; `differs` are the knobs on which it departs from the declared
    one. `refused`: by its rules the release would not run the drafter at all."""

    release: Release
    wiring: Wiring
    differs: tuple[str, ...]
    refused: tuple[str, ...] = ()


def claimed(spec: DrafterSpec, declared: Wiring, releases: Sequence[Release]) -> tuple[Claimed, ...]:
    """What `releases`, the runners of one version, claim: those that claim the same once. Empty where it is not
    known."""
    found: dict[str, Claimed] = {}
    for release in releases:
        effect = engine_of(release).effect(spec, release)
        if effect.wiring is not None:
            wiring = told(effect.wiring, declared)
            refused = tuple(words for _, words in effect.refusals)
            found.setdefault(repr(wiring), Claimed(release, wiring, declared.differs(wiring), refused))
    return tuple(found.values())
