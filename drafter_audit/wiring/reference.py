"""The reference loop under the wiring that an engine claims: what the engine itself is set beside."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from packaging.version import Version

from drafter_audit.decode.loading import Planned, replay_dtype
from drafter_audit.decode.reference import Reference, ReferencePrompt, reference_prompts
from drafter_audit.decode.replay import replay_shapes
from drafter_audit.decode.ties import tie_below
from drafter_audit.drafter.wiring import Wiring
from drafter_audit.engines import engine_of, read_releases
from drafter_audit.errors import AuditError, CannotRunError
from drafter_audit.measure.shape import Shape
from drafter_audit.recording.recording import Recording
from drafter_audit.wiring.claims import Claimed, claimed

Declared: TypeAlias = tuple[tuple[ReferencePrompt, ...] | None, tuple[str, ...]]
"""The prompts under the declared wiring, None where they were not replayed, and what is to be said of that."""

_NONE: Declared = (None, ())


@dataclass(frozen=True)
class Replays:
    """A drafter to be replayed on a recording, in rounds of `shape`. `dtype` is the engine's, where it tells that:
    what is a tie follows from the widest of all that computed."""

    plan: Planned
    recording: Recording
    shape: Shape
    dtype: str | None

    def under(self, wiring: Wiring) -> tuple[ReferencePrompt, ...]:
        """Raises what loading and replaying raise."""
        manifest = self.recording.manifest
        ours = replay_dtype(manifest)
        (run,) = replay_shapes(replace(self.plan, wiring=wiring).load(ours), self.recording, [self.shape])
        below = max(tie_below(each) for each in (manifest.dtype, ours, self.dtype or manifest.dtype))
        return reference_prompts(run, self.recording, below)


def references(replays: Replays, engine: str, version: str | None) -> tuple[Reference, ...]:
    """The reference under each wiring that the runners of this version claim. Raises AuditError where none is claimed,
    or it cannot be replayed."""
    if version is None:
        raise CannotRunError("it does not tell its version, so its wiring is not known", engine, "update the engine")
    releases = read_releases([f"{engine}@{version}"])
    claims = claimed(replays.plan.spec, replays.plan.wiring, releases)
    if not claims:
        what = "what it does with drafters of this kind is not known"
        raise CannotRunError(what, f"{engine}@{version}", "leave --reference out")
    declared = _declared(replays) if any(claim.differs for claim in claims) else _NONE
    return tuple(_reference(replays, claim, claims, declared if claim.differs else _NONE) for claim in claims)


def _reference(replays: Replays, claim: Claimed, claims: Sequence[Claimed], beside: Declared) -> Reference:
    declared, lacks = beside
    notes = (*_notes(claim, claims), *lacks)
    return Reference(claim.release.label, claim.wiring, claim.differs, replays.under(claim.wiring), declared, notes)


def _declared(replays: Replays) -> Declared:
    """Under the declared wiring; what cannot be replayed is said."""
    try:
        return replays.under(replays.plan.wiring), ()
    except AuditError as error:
        return None, (f"what the engine's wiring costs is not known: {error.what}",)


def _notes(claim: Claimed, claims: Sequence[Claimed]) -> Iterator[str]:
    release, newest = claim.release, engine_of(claim.release).newest
    if release.number > Version(newest):
        yield f"{release.label} is newer than what was read: its wiring is taken to be that of {newest}"
    if len(claims) > 1:
        names = ", ".join(each.release.label for each in claims)
        yield f"the server does not tell its runner: of {names} the one is taken whose figure lies nearest"
    yield from (f"by what was read of it, it would refuse this drafter: {words}" for words in claim.refused)
