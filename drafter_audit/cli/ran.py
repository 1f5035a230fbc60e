"""A live run made from the command line: prompts read and rendered, the target loaded, drafters decoded beside it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from drafter_audit.cli.prompt_options import Answers, Asked, asked_of
from drafter_audit.cli.target_options import TargetOptions, target_of

if TYPE_CHECKING:
    from drafter_audit.decode.loading import Planned
    from drafter_audit.decode.result import DecodeResult
    from drafter_audit.decode.settings import Settings
    from drafter_audit.model.target.model import TargetModel

_NAME_ONE = "name the target to run, or a recording of it with --recording"


@dataclass(frozen=True)
class Loaded:
    """A target that is loaded, and what it is asked."""

    model: TargetModel
    asked: Asked
    answers: Answers

    def decoded(
        self, plan: Planned, settings: Settings, dtype: str | None, what_if: Sequence[float] = ()
    ) -> DecodeResult:
        """One drafter's run. Every rank calls it."""
        from drafter_audit.decode.live import decode_live
        from drafter_audit.decode.outcome import live_result, ran_with

        drafter = plan.load(dtype or self.model.dtype)
        raw, thinking = self.answers.raw, self.answers.thinking
        provenance = ran_with(plan.spec, self.model, self.asked.prompts, settings, raw=raw, thinking=thinking)
        run = decode_live(drafter, self.model, self.asked.given, settings)
        notes = (*self.asked.notes, *self.model.notes, *drafter.loaded.notes)
        return live_result(run, provenance, what_if, notes)


def ran(
    drafters: Sequence[str], target: TargetOptions, answers: Answers, settings: Settings, what_if: Sequence[float] = ()
) -> tuple[DecodeResult, ...]:
    """Each drafter beside the target, which is loaded once. All that can be refused is, before the first round."""
    return tuple(_ran(drafters, target, answers, settings, what_if))


def _ran(
    drafters: Sequence[str], target: TargetOptions, answers: Answers, settings: Settings, what_if: Sequence[float]
) -> Iterator[DecodeResult]:
    from drafter_audit.decode.fit import check_beams

    ref, asked = asked_for(drafters, target, answers, settings)
    plans = [planned_for(drafter, asked, target) for drafter in drafters]
    for plan in plans:
        check_beams(plan.spec, settings.topk)
    loaded = Loaded(target.load(ref), asked, answers)
    yield from (loaded.decoded(plan, settings, target.dtype, what_if) for plan in plans)


def asked_for(
    drafters: Sequence[str], target: TargetOptions, answers: Answers, settings: Settings
) -> tuple[str, Asked]:
    """The target that is named, else that the drafters name, and the prompts as its tokens; no weight is read."""
    from drafter_audit.drafter.open import open_drafter
    from drafter_audit.prompts.read import read_prompts

    prompt_set = read_prompts(answers.prompts)
    ref = target.ref or target_of([open_drafter(drafter) for drafter in drafters], _NAME_ONE)
    trusted = target.trust_remote_code
    return ref, asked_of(target.sizes(ref), prompt_set, answers, settings.steps - 1, trust_remote_code=trusted)


def planned_for(drafter: str, asked: Asked, target: TargetOptions) -> Planned:
    """Raises where its vocabulary does not fit the target's, before any weight is read."""
    from drafter_audit.decode.fit import check_vocabulary
    from drafter_audit.decode.loading import planned

    plan = planned(drafter, asked.sizes, target.ref)
    check_vocabulary(plan.spec, asked.sizes)
    return plan
