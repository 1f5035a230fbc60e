"""A live run made from the command line: prompts read and rendered, the target loaded, drafters decoded beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from drafter_audit.cli.prompt_options import asked_of
from drafter_audit.cli.target_options import TargetOptions, target_of

if TYPE_CHECKING:
    from drafter_audit.cli.prompt_options import Asked as Ready
    from drafter_audit.decode.loading import Planned
    from drafter_audit.decode.result import DecodeResult
    from drafter_audit.decode.settings import Settings

_NAME_ONE = "name the target to run, or a recording of it with --recording"


@dataclass(frozen=True)
class Asked:
    """What a live run is asked for."""

    prompts: str
    raw: bool
    thinking: bool | None
    settings: Settings


def ran(
    drafters: Sequence[str], target: TargetOptions, asked: Asked, what_if: Sequence[float] = ()
) -> tuple[DecodeResult, ...]:
    """Each drafter beside the target, which is loaded once. All that can be refused is, before the first round."""
    ready = ready_for(drafters, target, asked)
    plans = [planned_for(drafter, ready, target) for drafter in drafters]
    return tuple(decoded(plan, ready, target, asked, what_if) for plan in plans)


def ready_for(drafters: Sequence[str], target: TargetOptions, asked: Asked) -> Ready:
    """The target that is named, else that the drafters name, loaded, with the prompts that it is given."""
    from drafter_audit.drafter.open import open_drafter
    from drafter_audit.prompts.read import read_prompts

    prompt_set = read_prompts(asked.prompts)
    ref = target.ref or target_of([open_drafter(drafter) for drafter in drafters], _NAME_ONE)
    return asked_of(
        target,
        ref,
        prompt_set,
        thinking=asked.thinking,
        raw=asked.raw,
        max_new_tokens=asked.settings.max_new_tokens,
        lookahead=asked.settings.steps - 1,
    )


def planned_for(drafter: str, ready: Ready, target: TargetOptions) -> Planned:
    from drafter_audit.decode.loading import planned

    return planned(drafter, ready.target, target.ref)


def decoded(
    plan: Planned, ready: Ready, target: TargetOptions, asked: Asked, what_if: Sequence[float] = ()
) -> DecodeResult:
    """One drafter's run. Every rank calls it."""
    from drafter_audit.decode.live import decode_live
    from drafter_audit.decode.outcome import live_result, ran_with

    drafter = plan.load(target.dtype or ready.target.dtype)
    settings = asked.settings
    provenance = ran_with(plan.spec, ready.target, ready.prompts, settings, raw=asked.raw, thinking=asked.thinking)
    run = decode_live(drafter, ready.target, ready.given, settings)
    notes = (*ready.notes, *drafter.loaded.notes)
    return live_result(run, provenance, settings.steps, what_if, notes)
