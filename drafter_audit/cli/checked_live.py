"""The live part of `check`: each drafter beside its target, which is loaded once for all that share it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from drafter_audit.cli.ran import Asked, decoded, planned_for, ready_for
from drafter_audit.cli.target_options import TargetOptions
from drafter_audit.drafter.open import open_drafter
from drafter_audit.errors import AuditError, RankError
from drafter_audit.ranks import Rank

if TYPE_CHECKING:
    from drafter_audit.check.job import Job
    from drafter_audit.check.measurement import Measurement
    from drafter_audit.cli.prompt_options import Asked as Ready
    from drafter_audit.decode.result import DecodeResult

MAX_NEW_TOKENS = 256


@dataclass
class Answering:
    """How targets are run and asked. The one that was loaded last is kept, with what it was asked."""

    target: TargetOptions
    raw: bool
    thinking: bool | None
    temperature: float
    seed: int
    _held: tuple[object, Ready] | None = field(default=None, init=False)

    def __call__(self, job: Job) -> tuple[DecodeResult, Measurement]:
        """Raises AuditError. Every rank calls it, for the same drafters in the same order."""
        from drafter_audit.check.measurement import of_live

        asked, target = self._asked(job), replace(self.target, ref=job.target or open_drafter(job.ref).target.ref)
        with _all_or_none():
            ready = self._ready(job, target, asked)
            result = decoded(planned_for(job.ref, ready, target), ready, target, asked)
        return result, of_live(result, _told(ready, asked))

    def _asked(self, job: Job) -> Asked:
        from drafter_audit.decode.settings import Settings

        longest = job.bars.max_new_tokens or MAX_NEW_TOKENS
        settings = Settings(job.steps, longest, self.temperature, self.seed, plain=False)
        return Asked(job.bars.prompts or "pack", self.raw, self.thinking, settings)

    def _ready(self, job: Job, target: TargetOptions, asked: Asked) -> Ready:
        key = (target.ref, asked)
        if self._held is None or self._held[0] != key:
            self._held = None  # lets go of the last target before the next one is loaded
            self._held = (key, ready_for([job.ref], target, asked))
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


def _told(ready: Ready, asked: Asked) -> dict[str, object]:
    """What a recording's manifest would hold of this run."""
    import hashlib
    import json

    from drafter_audit.checkpoint.config import MAX_CONFIG_BYTES
    from drafter_audit.sources.open import open_source

    tokenizer = ready.tokenizer
    tokens = json.dumps([prompt.ids for prompt in ready.given]).encode()
    config = open_source(ready.target.ref).read("config.json", limit=MAX_CONFIG_BYTES)
    return {
        "max_new_tokens": asked.settings.max_new_tokens,
        "tokens_sha256": hashlib.sha256(tokens).hexdigest(),
        "tokenizer_sha256": None if tokenizer is None else tokenizer.sha256,
        "template_sha256": None if tokenizer is None or asked.raw else tokenizer.template_sha256,
        "target_config_sha256": hashlib.sha256(config).hexdigest(),
    }
