"""The whole check: the search, the profile of the best wiring, the engines, and from all of that the verdict."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from drafter_audit.engines.base import Release
from drafter_audit.errors import AuditError
from drafter_audit.model.drafter import Drafter
from drafter_audit.recording.recording import Recording
from drafter_audit.wiring.claims import claims
from drafter_audit.wiring.evidence import Damage, Evidence, Live
from drafter_audit.wiring.fix import edits, fault_edits
from drafter_audit.wiring.probe import Probe, Watch, open_probe
from drafter_audit.wiring.profile import Profile
from drafter_audit.wiring.profiled import profiled
from drafter_audit.wiring.result import Found, Standing
from drafter_audit.wiring.search import search
from drafter_audit.wiring.verdict import Verdict, explained, judged


@dataclass(frozen=True)
class Asked:
    """What a check is asked for. `releases` are the engines whose edits are made, `named` whether the user named them;
    `engine_accept_len` is what the one named reached."""

    min_gain: float
    releases: tuple[Release, ...]
    named: bool = False
    engine_accept_len: float | None = None
    min_accept_len: float | None = None
    train_acc: tuple[float, ...] = ()


@dataclass(frozen=True)
class Files:
    """What the drafter's files say of it: damage that is proven, a code of lint's and a sentence each, and what looks
    like it, in sentences."""

    damage: tuple[tuple[str, str], ...] = ()
    suspected: tuple[str, ...] = ()


@dataclass(frozen=True)
class Checked:
    """All that a check found, and its verdict."""

    evidence: Evidence
    verdict: Verdict

    def with_live(self, live: Sequence[Live]) -> Checked:
        return replace(self, evidence=replace(self.evidence, live=tuple(live)))

    def to_dict(self) -> dict[str, Any]:
        """The JSON of `wiring`, but for `findings` and the engines' own entries."""
        found = self.evidence.found.to_dict()
        for fault, told, mends in zip(
            self.evidence.found.faults, found["faults"], self.evidence.fault_edits, strict=True
        ):
            told |= {"explanation": explained(fault), "fix": [edit.to_dict() for edit in mends if edit.set]}
        return self.verdict.to_dict() | found | self.evidence.to_dict()


def probe_here(
    ref: str, recording: Recording, steps: int, *, target: str | None, dtype: str | None, watch: Watch
) -> Probe:
    """The drafter on that recording, on the GPU where there is one. Without a `dtype` in the recorded target's there,
    in float32 on a CPU. Raises as `open_probe`."""
    gpu = torch.cuda.is_available()
    kind = dtype or (recording.manifest.dtype if gpu else "float32")
    device = "cuda" if gpu else "cpu"
    return open_probe(ref, recording, steps=steps, target=target, dtype=kind, device=device, watch=watch)


def checked(probe: Probe, files: Files, asked: Asked) -> Checked:
    """Raises CannotRunError where a control fails, and what loading and reading raise."""
    found = search(probe, asked.min_gain)
    told = probe.corpus.manifest
    answers = told.answers
    profile, notes = _profiled(probe, found)
    best = found.best.wiring
    mends = edits(probe.spec, best, asked.releases)
    evidence = Evidence(
        found,
        profile,
        damage=(
            *(Damage(words, code) for code, words in files.damage),
            *map(Damage, _broken(probe.under(found.declared.wiring))),
        ),
        suspected=files.suspected,
        claims=claims(probe, best, asked.releases, mends, asked.engine_accept_len) if asked.named else (),
        edits=mends,
        fault_edits=tuple(fault_edits(probe.spec, fault, best, asked.releases) for fault in found.faults),
        min_accept_len=asked.min_accept_len,
        train_acc=asked.train_acc,
        answers=len(answers),
        capped=sum(answer.capped for answer in answers),
        looping=sum(answer.degenerate for answer in answers),
        remarks=(*told.notes, *probe.under(best).loaded.notes),
        notes=(*([] if probe.assumed is None else [probe.assumed]), *_short_of_stated(probe, found.best), *notes),
    )
    return Checked(evidence, judged(evidence))


def _broken(drafter: Drafter) -> Iterator[str]:
    """Tensors that no training leaves so, of all that were read and are the drafter's own: `lint` samples a few."""
    loaded, stored = drafter.loaded, drafter.spec.clues.tensors
    lent = {each.name for each in loaded.borrowed}
    names = {name: info.name for name, info in stored.items()}  # a part of a fused one goes by its own name
    for name, count in loaded.non_finite:
        if name not in lent:
            yield f"{names.get(name, name)}: values that are NaN or infinite, {count} of them"
    yield from (f"{names.get(name, name)} is nothing but zeros" for name in loaded.all_zero if name not in lent)
    if "fc.weight" not in loaded.all_zero:
        yield from _blind_slots(drafter)


def _blind_slots(drafter: Drafter) -> Iterator[str]:
    """States that fc does not read at all."""
    fc, read = drafter.network.fc, drafter.wiring.boundaries or ()
    for slot, block in enumerate(fc.weight.chunk(len(read), dim=1) if fc is not None and read else ()):
        if not bool(block.any()):
            where = f"slot {slot}, the state at boundary {read[slot]}"
            yield f"fc.weight is nothing but zeros in the columns of {where}: the drafter does not read it"


def _short_of_stated(probe: Probe, best: Standing) -> Iterator[str]:
    """Published figures of such rounds of which less than half the drafts are accepted here."""
    for row in probe.spec.accept_len:
        chain = row.steps == probe.steps and row.topk in (None, 1)
        if chain and best.accept_len_rounds - 1 < (row.value - 1) / 2:
            stated = f"{row.source} states accept_len {row.value:g} at {row.steps} steps"
            on = f" on {row.benchmark}" if row.benchmark else ""
            yield f"{stated}{on}; here it is {best.accept_len_rounds:.3f}: other prompts, or weights that are not those"


def _profiled(probe: Probe, found: Found) -> tuple[Profile | None, tuple[str, ...]]:
    """Under the best wiring; what cannot be replayed has none, and the note says why."""
    try:
        return profiled(probe.under(found.best.wiring), probe.corpus.recording, probe.steps), ()
    except AuditError as error:
        return None, (f"no profile by rounds: {error.what}",)
