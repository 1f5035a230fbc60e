"""drafter-audit decode"""

from __future__ import annotations

import click

from drafter_audit.cli.options import complete_reference, offline_option, output_options
from drafter_audit.cli.prompt_options import Answers, answer_options
from drafter_audit.cli.recording_options import (
    Recorded,
    only_with_a_target,
    only_with_dumps,
    opened,
    recording_option,
    replayed,
)
from drafter_audit.cli.shape_options import shape_options
from drafter_audit.cli.target_options import TargetOptions, target_options


@click.command()
@click.argument("drafters", metavar="DRAFTER...", shell_complete=complete_reference, nargs=-1, required=True)
@recording_option(multiple=True)
@click.option(
    "--steps",
    metavar="N",
    type=click.IntRange(min=1),
    default=3,
    show_default=True,
    help="Draft steps of a round: the most tokens that it accepts.",
)
@shape_options
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
    """Measure accept_len: live, beside the target, or exactly the same from a recording of it.

    With --recording no target is run: what `record` kept of one tells how many drafts each round accepts. Several
    DRAFTERs, and several recordings, are set against each other on the same prompts. Where most answers hit the cap or
    loop, the result is shown and the exit code is 3.

    \b
    drafter-audit decode ./ours --target moonshotai/Kimi-K2.5 --steps 3 --what-if 2.8
    drafter-audit decode ./ours ./theirs --recording rec/
    drafter-audit decode ./ours --recording rec-bf16/ --recording rec-int4/
    drafter-audit decode ./ours --recording dumped/ --boundaries 2,30,58
    drafter-audit decode ./ours --recording rec/ --steps 5 --topk 4 --num-draft-tokens 16
    """
    from drafter_audit.cli.measured import end_unmeasured
    from drafter_audit.cli.ran import ran
    from drafter_audit.decode.outcome import replay_result
    from drafter_audit.decode.result import DecodeResults
    from drafter_audit.measure.costs import check_reachable
    from drafter_audit.measure.shape import shape_of
    from drafter_audit.report.decode_view import decode_document
    from drafter_audit.report.sink import emit

    shape = shape_of(steps, topk, num_draft_tokens)
    for value in what_if:
        check_reachable(value, shape.deepest)
    if recorded.folders:
        only_with_a_target(context)
        recordings = opened(context, recorded, drafters, steps, target.ref)
        runs = replayed(drafters, recordings, [shape], target.ref, target.dtype)
        results = DecodeResults(tuple(replay_result(run) for (run,) in runs))
    else:
        only_with_dumps(context)
        results = DecodeResults(ran(drafters, target, answers, answers.settings(shape), what_if))
    emit(decode_document(results), results.to_dict(), style=style, output=output, command=context.obj)
    end_unmeasured(context, [result.acceptance.per_prompt for result in results.results])
