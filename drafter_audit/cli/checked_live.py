"""The live part of `check`: each drafter beside its target, which is loaded once for all that share it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from drafter_audit.cli.prompt_options import Answers
from drafter_audit.cli.ran import Loaded, asked_for, planned_for
from drafter_audit.cli.target_options import TargetOptions
from drafter_audit.drafter.open import open_drafter
from drafter_audit.errors import AuditError, RankError
from drafter_audit.measure.shape import shape_of
from drafter_audit.ranks import Rank

if TYPE_CHECKING:
    from drafter_audit.check.job import Job
    from drafter_audit.check.measurement import Measurement
    from drafter_audit.decode.result import DecodeResult
    from drafter_audit.decode.settings import Settings

MAX_NEW_TOKENS = 256


@dataclass
class Answering:
    """How targets are run and asked; prompts and longest answers are each job's. The target that was loaded last is
    kept, with what it was asked."""

    target: TargetOptions
    answers: Answers
    _held: tuple[object, Loaded] | None = field(default=None, init=False)

    def __call__(self, job: Job) -> tuple[DecodeResult, Measurement]:
        """Raises AuditError. Every rank calls it, for the same drafters in the same order."""
        from drafter_audit.check.measurement import of_live

        longest, prompts = job.bars.max_new_tokens or MAX_NEW_TOKENS, job.bars.prompts or "pack"
        answers = replace(self.answers, prompts=prompts, max_new_tokens=longest)
        target = replace(self.target, ref=job.target or open_drafter(job.ref).target.ref)
        settings = answers.settings(shape_of(job.steps), plain=False)
        with _all_or_none():
            loaded = self._loaded(job, target, answers, settings)
            result = loaded.decoded(planned_for(job.ref, loaded.asked, target), settings, target.dtype)
        return result, of_live(result, _told(loaded))

    def _loaded(self, job: Job, target: TargetOptions, answers: Answers, settings: Settings) -> Loaded:
        key = (target.ref, answers, settings)
        if self._held is None or self._held[0] != key:
            self._held = None  # lets go of the last target before the next one is loaded
            ref, asked = asked_for([job.ref], target, answers, settings)
            self._held = (key, Loaded(target.load(ref), asked, answers))
        return self._held[1]


@contextmanager
def _all_or_none() -> Iterator[None]:
    """What fails on one rank, as for memory, may not fail on the others, which then wait for it: all must end."""
    try:
        yield
    except AuditError as error:
        if Rank.here().size == 1:
            raise
        raise RankError(error.what, error.where, error.mend) from error


def _told(loaded: Loaded) -> dict[str, object]:
    """What a recording's manifest would hold of this run."""
    from drafter_audit.recording.describe import config_sha256, tokens_sha256
    from drafter_audit.sources.open import open_source

    asked, answers = loaded.asked, loaded.answers
    return {
        "max_new_tokens": answers.max_new_tokens,
        "tokens_sha256": tokens_sha256(asked.given),
        **asked.hashes(raw=answers.raw),
        "target_config_sha256": config_sha256(open_source(loaded.model.ref)),
    }
