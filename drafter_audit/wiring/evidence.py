"""What the verdict is drawn from, and what is shown beside it: plain data, without torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from drafter_audit.engines.base import Release
from drafter_audit.wiring.fix import Edit
from drafter_audit.wiring.profile import Profile, promised
from drafter_audit.wiring.result import Found, Interval
from drafter_audit.wiring.signs import signs


@dataclass(frozen=True)
class Damage:
    """What is broken, in a sentence, and lint's `code` for it; None where the tensors themselves tell."""

    words: str
    code: str | None = None


@dataclass(frozen=True)
class Claim:
    """An engine beside the reference loop, wired as that engine says it wires the drafter.

    `differs` are the knobs on which that departs from the best wiring. `accept_len` and `interval` are the reference
    loop's, None where it was not run, and `why_not` says why. `measured` is what the engine itself reached.
    """

    release: Release
    differs: tuple[str, ...]
    accept_len: float | None
    interval: Interval | None
    why_not: str | None = None
    measured: float | None = None
    edit: Edit | None = None

    @property
    def below(self) -> bool:
        """Whether the engine is worse than chance lets the reference loop be."""
        return self.measured is not None and self.interval is not None and self.measured < self.interval[0]

    def to_dict(self) -> dict[str, Any]:
        return {
            "accept_len": self.accept_len,
            "accept_len_interval": None if self.interval is None else list(self.interval),
            "not_run": self.why_not,
            "engine_accept_len": self.measured,
            "below": self.below,
        }


@dataclass(frozen=True)
class Live:
    """accept_len in the live loop, with the target beside it; None where it was not run, and `why_not` says why."""

    wiring: str
    accept_len: float | None = None
    interval: Interval | None = None
    rounds: int = 0
    why_not: str | None = None

    def to_dict(self) -> dict[str, Any]:
        interval = None if self.interval is None else list(self.interval)
        return {"wiring": self.wiring, "accept_len": self.accept_len, "accept_len_interval": interval,
                "rounds": self.rounds, "not_run": self.why_not}  # fmt: skip


@dataclass(frozen=True)
class Evidence:
    """`damage` is proven by the files, `suspected` only looks so. `profile` is of the best wiring, None where it cannot
    be replayed. `capped` and `looping` of `answers` were cut off, or repeat themselves. `train_acc` are the accuracies
    by step that training told. `remarks` are those of the recording and of the loaded drafter; `notes`, on the check
    itself, are warnings too."""

    found: Found
    profile: Profile | None
    damage: tuple[Damage, ...] = ()
    suspected: tuple[str, ...] = ()
    claims: tuple[Claim, ...] = ()
    edits: tuple[Edit, ...] = ()
    fault_edits: tuple[tuple[Edit, ...], ...] = ()
    min_accept_len: float | None = None
    train_acc: tuple[float, ...] = ()
    live: tuple[Live, ...] = ()
    answers: int = 0
    capped: int = 0
    looping: int = 0
    remarks: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default=())

    def to_dict(self) -> dict[str, Any]:
        """What the JSON has beside the search's own and the verdict."""
        profile = self.profile
        return {
            "profile": None if profile is None else profile.to_dict(),
            "signs": [] if profile is None else [sign.to_dict() for sign in signs(profile)],
            "damage": [each.words for each in self.damage],
            "suspected": list(self.suspected),
            "fix": [edit.to_dict() for edit in self.edits],
            "min_accept_len": self.min_accept_len,
            "train_acc": self.training(),
            "live": [each.to_dict() for each in self.live],
            "answers": {"count": self.answers, "capped": self.capped, "degenerate": self.looping},
            "notes": [*self.remarks, *self.notes],
        }

    def training(self) -> dict[str, Any] | None:
        """What the training metrics promise against what was measured, None where they were not told."""
        if not self.train_acc:
            return None
        profile = self.profile
        shown = len(self.train_acc)
        return {
            "accuracies": list(self.train_acc),
            "accept_len": promised(self.train_acc),
            "measured_accuracies": None if profile is None else list(profile.teacher_forced[:shown]),
            "measured_accept_len": None if profile is None else profile.accept_len,
        }
