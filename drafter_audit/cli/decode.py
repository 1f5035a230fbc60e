"""drafter-audit decode"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click

from drafter_audit.cli.chain_options import chain_options, check_chain
from drafter_audit.cli.options import complete_reference, offline_option, output_options
from drafter_audit.cli.prompt_options import Answers, answer_options, asked_of
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
    answers: Answers,
    target: TargetOptions,
    style: str,
    output: str | None,
) -> None:
    """Measure accept_len: live, beside the target, or from a recording of it.

    With --recording no target is run: what `record` kept of one tells how many drafts each round accepts, exactly as
    live where answers are greedy, and in distribution where they are sampled. Several DRAFTERs, and several
    recordings, are set against each other on the same prompts. Where most answers hit the cap or loop, the result is
    shown and the exit code is 3.

    \b
    drafter-audit decode ./ours --target moonshotai/Kimi-K2.5 --steps 3 --what-if 2.8
    drafter-audit decode ./ours ./theirs --recording rec/
    drafter-audit decode ./ours --recording rec-bf16/ --recording rec-int4/
    drafter-audit decode ./ours --recording dumped/ --boundaries 2,30,58
    """
    from drafter_audit.cli.measured import end_unmeasured
    from drafter_audit.decode.outcome import replay_result
    from drafter_audit.decode.result import DecodeResults
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
        results = DecodeResults(tuple(_ran(drafters, target, answers, steps, what_if)))
    emit(decode_document(results), results.to_dict(), style=style, output=output, command=context.obj)
    end_unmeasured(context, [result.acceptance for result in results.results])


_NAME_ONE = "name the target to run, or a recording of it with --recording"


def _ran(
    drafters: Sequence[str], target: TargetOptions, answers: Answers, steps: int, what_if: tuple[float, ...]
) -> Iterator[DecodeResult]:
    """Each drafter beside the target, which is loaded once. All that can be refused is, before the first round."""
    from drafter_audit.decode.fit import check_vocabulary
    from drafter_audit.decode.live import decode_live
    from drafter_audit.decode.loading import planned
    from drafter_audit.decode.outcome import live_result, ran_with
    from drafter_audit.decode.settings import Settings
    from drafter_audit.drafter.open import open_drafter
    from drafter_audit.prompts.read import read_prompts

    settings = Settings(steps, answers.max_new_tokens, answers.temperature, answers.seed)
    prompt_set = read_prompts(answers.prompts)
    ref = target.ref or target_of([open_drafter(drafter) for drafter in drafters], _NAME_ONE)
    asked = asked_of(target, ref, prompt_set, answers, steps - 1)
    plans = [planned(drafter, asked.sizes, target.ref) for drafter in drafters]
    for plan in plans:
        check_vocabulary(plan.spec, asked.sizes)
    model = target.load(ref)
    for plan in plans:
        drafter = plan.load(target.dtype or model.dtype)
        provenance = ran_with(plan.spec, model, prompt_set, settings, raw=answers.raw, thinking=answers.thinking)
        run = decode_live(drafter, model, asked.given, settings)
        yield live_result(run, provenance, steps, what_if, (*asked.notes, *model.notes, *drafter.loaded.notes))
