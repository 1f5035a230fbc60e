"""drafter-audit decode"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from drafter_audit.cli.chain_options import chain_options, check_chain
from drafter_audit.cli.options import complete_reference, offline_option, output_options
from drafter_audit.cli.prompt_options import answer_options, asked_of, prompt_options
from drafter_audit.cli.recording_options import (
    Recorded,
    only_with_a_target,
    only_with_dumps,
    opened,
    recording_option,
    replayed,
)
from drafter_audit.cli.target_options import TargetOptions, target_of, target_options

if TYPE_CHECKING:
    from drafter_audit.decode.result import DecodeResult
    from drafter_audit.decode.settings import Settings


@click.command()
@click.argument("drafters", metavar="DRAFTER...", shell_complete=complete_reference, nargs=-1, required=True)
@recording_option(multiple=True)
@click.option(
    "--steps",
    metavar="N",
    type=click.IntRange(min=1),
    default=3,
    show_default=True,
    help="Tokens that a round drafts.",
)
@chain_options
@click.option(
    "--what-if",
    metavar="X",
    type=float,
    multiple=True,
    help="Also say what an accept_len of X would be worth, at the cycle that was measured. With --target only.",
)
@prompt_options
@answer_options
@target_options
@offline_option
@output_options
@click.pass_context
def decode(
    context: click.Context,
    drafters: tuple[str, ...],
    recorded: Recorded,
    steps: int,
    topk: int,
    num_draft_tokens: int | None,
    what_if: tuple[float, ...],
    prompts: str,
    raw: bool,
    thinking: bool | None,
    max_new_tokens: int,
    temperature: float,
    seed: int,
    target: TargetOptions,
    style: str,
    output: str | None,
) -> None:
    """Measure accept_len: live, beside the target, or exactly the same from a recording of it.

    With --recording no target is run: what `record` kept of one tells how many drafts each round accepts. Several
    DRAFTERs, and several recordings, are set against each other on the same prompts. Where most answers hit the cap or
    loop, the result is shown and the exit code is 3.

    \b
    drafter-audit decode ./ours --target moonshotai/Kimi-K2.5 --steps 3 --what-if 2.8
    drafter-audit decode ./ours ./theirs --recording rec/
    drafter-audit decode ./ours --recording rec-bf16/ --recording rec-int4/
    drafter-audit decode ./ours --recording dumped/ --boundaries 2,30,58
    """
    from drafter_audit.cli.measured import end_unmeasured
    from drafter_audit.decode.outcome import replay_result
    from drafter_audit.decode.result import DecodeResults
    from drafter_audit.decode.settings import Settings
    from drafter_audit.measure.costs import check_reachable
    from drafter_audit.report.decode_view import decode_document
    from drafter_audit.report.sink import emit

    check_chain(topk, num_draft_tokens, steps)
    for value in what_if:
        check_reachable(value, steps)
    if recorded.folders:
        only_with_a_target(context)
        recordings = opened(context, recorded, drafters, steps, target.ref)
        runs = replayed(drafters, recordings, steps, target.ref, target.dtype)
        results = DecodeResults(tuple(replay_result(run) for run in runs))
    else:
        only_with_dumps(context)
        settings = Settings(steps, max_new_tokens, temperature, seed)
        results = DecodeResults(_ran(drafters, target, _Asked(prompts, raw, thinking, what_if, settings)))
    emit(decode_document(results), results.to_dict(), style=style, output=output, command=context.obj)
    end_unmeasured(context, [result.acceptance for result in results.results])


_NAME_ONE = "name the target to run, or a recording of it with --recording"


@dataclass(frozen=True)
class _Asked:
    """What a live run is asked for."""

    prompts: str
    raw: bool
    thinking: bool | None
    what_if: tuple[float, ...]
    settings: Settings


def _ran(drafters: Sequence[str], target: TargetOptions, asked: _Asked) -> tuple[DecodeResult, ...]:
    """Each drafter beside the target, which is loaded once. All that can be refused is, before the first round."""
    from drafter_audit.decode.live import decode_live
    from drafter_audit.decode.loading import planned
    from drafter_audit.decode.outcome import live_result, ran_with
    from drafter_audit.drafter.open import open_drafter
    from drafter_audit.prompts.read import read_prompts

    settings, prompt_set = asked.settings, read_prompts(asked.prompts)
    ref = target.ref or target_of([open_drafter(drafter) for drafter in drafters], _NAME_ONE)
    ready = asked_of(
        target.load,
        ref,
        prompt_set,
        thinking=asked.thinking,
        raw=asked.raw,
        trusted=target.trust_remote_code,
        max_new_tokens=settings.max_new_tokens,
        lookahead=settings.steps - 1,
    )
    plans = [planned(drafter, ready.target, target.ref) for drafter in drafters]
    results = []
    for plan in plans:
        drafter = plan.load(target.dtype or ready.target.dtype)
        provenance = ran_with(plan.spec, ready.target, prompt_set, settings, raw=asked.raw, thinking=asked.thinking)
        run = decode_live(drafter, ready.target, ready.given, settings)
        notes = (*ready.notes, *drafter.loaded.notes)
        results.append(live_result(run, provenance, settings.steps, asked.what_if, notes))
    return tuple(results)
