"""drafter-audit record"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from drafter_audit.cli.options import complete_reference, format_option, offline_option
from drafter_audit.cli.prompt_options import answer_options, prompt_options
from drafter_audit.cli.target_options import TargetOptions, target_options

if TYPE_CHECKING:
    from drafter_audit.drafter.spec import DrafterSpec


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
@prompt_options
@answer_options
@target_options
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
    prompts: str,
    raw: bool,
    thinking: bool | None,
    max_new_tokens: int,
    temperature: float,
    seed: int,
    target: TargetOptions,
    style: str,
) -> None:
    """Record a target once, to replay drafters on it many times: its answers, states and likeliest tokens.

    A DRAFTER says which states to keep; it is not run. A run that was stopped goes on when the same command is given
    again; one that asks for something else is refused.

    \b
    drafter-audit record ./ours --target moonshotai/Kimi-K2.5 --prompts prompts.jsonl -o rec/
    drafter-audit record --target ./target --boundaries all -o rec/
    """
    from drafter_audit.cli.progress import watch_prompts
    from drafter_audit.drafter.open import open_drafter
    from drafter_audit.model.target.tokenizer import load_tokenizer
    from drafter_audit.prompts.read import read_prompts
    from drafter_audit.prompts.render import render
    from drafter_audit.recording.boundaries import boundaries_kept
    from drafter_audit.recording.make import Origin, Settings, record
    from drafter_audit.recording.open import open_recording
    from drafter_audit.recording.size import largest
    from drafter_audit.recording.store import check_folder
    from drafter_audit.report.numbers import size
    from drafter_audit.report.record_view import record_document, record_remarks, record_result
    from drafter_audit.report.sink import emit, tell

    prompt_set, whole = read_prompts(prompts), _states_of_all(boundaries, all_tokens)
    check_folder(
        folder,
        prompts_sha256=prompt_set.sha256,
        thinking=thinking,
        raw=raw,
        max_new_tokens=max_new_tokens,
        temperature=temperature,
        seed=seed,
        all_tokens=whole,
        lookahead=lookahead,
    )
    specs = [open_drafter(ref) for ref in drafters]
    ref = target.ref or _declared(specs)
    tokenizer = load_tokenizer(ref, trust_remote_code=target.trust_remote_code) if prompt_set.needs_tokenizer else None
    model = replace(target, ref=ref).load()
    given = render(
        prompt_set,
        None if tokenizer is None else tokenizer.tokenizer,
        thinking=thinking,
        raw=raw,
        vocab_size=model.vocab_size,
        max_positions=model.max_positions,
        max_new_tokens=max_new_tokens,
        lookahead=lookahead,
    )
    settings = Settings(
        boundaries_kept(boundaries, specs, model.num_layers),
        max_new_tokens=max_new_tokens,
        temperature=temperature,
        seed=seed,
        all_tokens=whole,
        lookahead=lookahead,
    )
    origin = Origin(
        prompts_name=prompt_set.name,
        prompts_sha256=prompt_set.sha256,
        thinking=thinking,
        raw=raw,
        tokenizer_sha256=None if tokenizer is None else tokenizer.sha256,
        template_sha256=None if tokenizer is None or raw else tokenizer.template_sha256,
        command=("drafter-audit", *context.obj),
    )
    for remark in (*prompt_set.notes, *(tokenizer.notes if tokenizer else ()), *model.notes):
        tell(remark)
    tell(f"the recording takes up to {size(largest(model, given, settings))}, where every answer hits the cap")
    with watch_prompts("Recording", len(given)) as watch:
        record(model, given, folder, settings, origin, watch)
    if model.ranks.first:
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


def _declared(specs: Sequence[DrafterSpec]) -> str:
    """The target that the drafters name. Raises UsageError where they name none, or several."""
    from drafter_audit.errors import UsageError

    named = sorted({spec.target.ref for spec in specs if spec.target.ref})
    if len(named) != 1:
        told = f"the drafters name {', '.join(named)}" if named else "no target is named"
        raise UsageError(told, "--target", "name the target's repository or folder")
    return named[0]
