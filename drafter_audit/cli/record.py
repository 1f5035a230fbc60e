"""drafter-audit record"""

from __future__ import annotations

from pathlib import Path

import click

from drafter_audit.cli.options import complete_reference, format_option, offline_option
from drafter_audit.cli.prompt_options import Answers, answer_options
from drafter_audit.cli.recording_engine import RecordingEngine, recording_engine
from drafter_audit.cli.target_options import TargetOptions, target_options
from drafter_audit.ranks import Rank


@click.command()
@click.argument("drafters", metavar="[DRAFTER]...", shell_complete=complete_reference, nargs=-1)
@click.option(
    "-o",
    "--output",
    "folder",
    metavar="DIR",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="The folder of the recording: a new one, or one to go on with.",
)
@click.option(
    "--boundaries",
    metavar="default|all|LIST",
    default="default",
    show_default=True,
    help="States to keep: those that each DRAFTER's ids may mean, one more on either side, and 0; all of them for the "
    "first tokens, then the default ones; or numbers, such as 0,2,4.",
)
@click.option(
    "--all-tokens",
    metavar="N",
    type=click.IntRange(min=1),
    help="With --boundaries all: for how many tokens.  [default: 4096]",
)
@click.option(
    "--lookahead",
    metavar="N",
    type=click.IntRange(min=0),
    default=16,
    show_default=True,
    help="Tokens to say beyond each answer: the most steps that can be replayed.",
)
@answer_options
@target_options
@recording_engine
@offline_option
@format_option
@click.pass_context
def record(
    context: click.Context,
    drafters: tuple[str, ...],
    folder: Path,
    boundaries: str,
    all_tokens: int | None,
    lookahead: int,
    answers: Answers,
    target: TargetOptions,
    engine: RecordingEngine,
    style: str,
) -> None:
    """Record a target once, to replay drafters on it many times: its answers, states and likeliest tokens.

    A DRAFTER says which states to keep; it is not run. A run that was stopped goes on when the same command is given
    again; one that asks for something else is refused.

    \b
    drafter-audit record ./ours --target moonshotai/Kimi-K2.5 --prompts prompts.jsonl -o rec/
    drafter-audit record --target ./target --boundaries all -o rec/
    drafter-audit record ./ours --engine vllm --engine-python vllm/bin/python -o rec/
    """
    from drafter_audit.cli.recorded import States, recorded, recorded_by
    from drafter_audit.recording.open import open_recording
    from drafter_audit.report.record_view import record_document, record_remarks, record_result
    from drafter_audit.report.sink import emit, tell

    states = States(boundaries, _states_of_all(boundaries, all_tokens), lookahead)
    by = engine.chosen(context, target)
    if by is None:
        recorded(drafters, folder, target, answers, states, context.obj)
    else:
        recorded_by(by, drafters, folder, target, answers, states, context.obj)
    if Rank.here().first:
        recording = open_recording(folder)
        emit(record_document(recording), record_result(recording), style=style, output=None, command=context.obj)
        for remark in record_remarks(recording):
            tell(remark)


def _states_of_all(boundaries: str, all_tokens: int | None) -> int:
    """For how many tokens every boundary is kept. Raises UsageError where a number is given and not meant."""
    from drafter_audit.errors import UsageError
    from drafter_audit.recording.boundaries import ALL_TOKENS

    if boundaries == "all":
        return all_tokens or ALL_TOKENS
    if all_tokens is not None:
        raise UsageError("it says for how many tokens all are kept", "--all-tokens", "add --boundaries all")
    return 0
