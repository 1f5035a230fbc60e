"""drafter-audit decode"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from drafter_audit.cli.chain_options import chain_options, check_chain
from drafter_audit.cli.options import complete_reference, offline_option, output_options
from drafter_audit.cli.prompt_options import answer_options, prompt_options
from drafter_audit.cli.recording_options import only_with_a_target, recording_option, replayed
from drafter_audit.cli.target_options import TargetOptions, target_options

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
    recordings: tuple[str, ...],
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
    if recordings:
        only_with_a_target(context)
        runs = replayed(drafters, recordings, steps, target.ref, target.dtype)
        results = DecodeResults(tuple(replay_result(run) for run in runs))
    else:
        settings = Settings(steps, max_new_tokens, temperature, seed)
        results = DecodeResults(_ran(drafters, target, _Asked(prompts, raw, thinking, what_if, settings)))
    emit(decode_document(results), results.to_dict(), style=style, output=output, command=context.obj)
    end_unmeasured(context, [result.acceptance for result in results.results])


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
    from drafter_audit.model.target.tokenizer import load_tokenizer
    from drafter_audit.prompts.read import read_prompts
    from drafter_audit.prompts.render import render
    from drafter_audit.report.sink import tell

    settings, prompt_set = asked.settings, read_prompts(asked.prompts)
    ref = target.ref or _declared([open_drafter(drafter).target.ref for drafter in drafters])
    trusted = target.trust_remote_code
    tokenizer = load_tokenizer(ref, trust_remote_code=trusted) if prompt_set.needs_tokenizer else None
    model = target.load(ref)
    given = render(
        prompt_set,
        None if tokenizer is None else tokenizer.tokenizer,
        thinking=asked.thinking,
        raw=asked.raw,
        vocab_size=model.vocab_size,
        max_positions=model.max_positions,
        max_new_tokens=settings.max_new_tokens,
        lookahead=settings.steps - 1,
    )
    for remark in (*prompt_set.notes, *(tokenizer.notes if tokenizer else ()), *model.notes):
        tell(remark)
    plans = [planned(drafter, model, target.ref) for drafter in drafters]
    results = []
    for plan in plans:
        drafter = plan.load(target.dtype or model.dtype)
        provenance = ran_with(plan.spec, model, prompt_set, settings, raw=asked.raw, thinking=asked.thinking)
        run = decode_live(drafter, model, given, settings)
        results.append(live_result(run, provenance, settings.steps, asked.what_if, drafter.loaded.notes))
    return tuple(results)


def _declared(named: Sequence[str | None]) -> str:
    """The target that the drafters name. Raises UsageError where they name none, or several."""
    from drafter_audit.errors import UsageError

    refs = sorted({ref for ref in named if ref})
    if len(refs) != 1:
        told = f"the drafters name {', '.join(refs)}" if refs else "neither a target nor a recording is named"
        raise UsageError(told, "--target", "name the target to run, or a recording of it with --recording")
    return refs[0]
