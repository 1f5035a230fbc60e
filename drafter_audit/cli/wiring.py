"""drafter-audit wiring"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from drafter_audit.cli.options import Finite, complete_reference, offline_option, output_options
from drafter_audit.cli.prompt_options import Answers, answer_options
from drafter_audit.cli.target_options import TargetOptions, target_options
from drafter_audit.measure.bars import MIN_GAIN
from drafter_audit.ranks import Rank

if TYPE_CHECKING:
    from drafter_audit.audit.lint import Lint
    from drafter_audit.cli.recorded import Recorded
    from drafter_audit.drafter.wiring import Wiring
    from drafter_audit.wiring.check import Asked, Checked
    from drafter_audit.wiring.evidence import Live

_LOOKAHEAD = 16


def _rates(context: click.Context, param: click.Parameter, text: str | None) -> tuple[float, ...]:
    """`0.78,0.70` as numbers from 0 to 1."""
    try:
        rates = tuple(float(part) for part in (text or "").split(",") if text is not None)
    except ValueError:
        rates = (-1.0,)
    if not all(0 <= rate <= 1 for rate in rates):
        raise click.BadParameter(f"{text!r} are no accuracies: write 0.78,0.70,0.65", context, param)
    return rates


@click.command()
@click.argument("drafter", metavar="DRAFTER", shell_complete=complete_reference)
@click.option(
    "--recording",
    metavar="DIR",
    type=click.Path(),
    help="A recording of the target, made by `record`, best with --boundaries all: no target is run.",
)
@click.option(
    "--keep",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="With --target: keep the recording that is made, or go on with it.",
)
@click.option("--steps", metavar="N", type=click.IntRange(min=1), default=3, show_default=True, help="Drafts a round.")
@click.option(
    "--min-gain",
    metavar="X",
    type=Finite(min=0, max=1),
    default=MIN_GAIN,
    show_default=True,
    help="The least confirmed gain in KL that is blamed on a knob, as a share of the KL before it.",
)
@click.option(
    "--min-accept-len",
    metavar="X",
    type=Finite(min=1),
    help="The accept_len below which a drafter that no wiring helps is called undertrained.",
)
@click.option(
    "--train-acc",
    metavar="LIST",
    callback=_rates,
    help="Accuracies that training told, one for each of --steps, such as 0.78,0.70,0.65: what they promise is set "
    "beside what is measured.",
)
@click.option(
    "--engine",
    "engines",
    metavar="NAME[@VERSION]",
    multiple=True,
    help="Engines to print the edit for, and to try the wiring of, as `lint` takes them.  [default: each, newest]",
)
@click.option(
    "--engine-accept-len",
    metavar="X",
    type=Finite(min=1),
    help="What the one --engine reached on such prompts: where the reference loop does better, so wired, the engine is "
    "at fault.",
)
@click.option("--confirm-live", is_flag=True, help="With --target: decode live too, as declared and as found best.")
@answer_options
@target_options
@offline_option
@output_options
@click.pass_context
def wiring(
    context: click.Context,
    drafter: str,
    recording: str | None,
    keep: Path | None,
    steps: int,
    min_gain: float,
    min_accept_len: float | None,
    train_acc: tuple[float, ...],
    engines: tuple[str, ...],
    engine_accept_len: float | None,
    confirm_live: bool,
    answers: Answers,
    target: TargetOptions,
    style: str,
    output: str | None,
) -> None:
    """Find what is wrong with how a drafter is wired, prove it, and print the edit that mends it.

    Replays DRAFTER as declared and under every wiring that turns one knob, then on from the best. The verdict is
    damaged, miswired, engine, undertrained, healthy or inconclusive. Exits 0 for healthy, 3 for inconclusive, else 1.

    \b
    drafter-audit wiring ./ours --target moonshotai/Kimi-K2.5
    drafter-audit wiring ./ours --recording rec/ --min-accept-len 2.5
    drafter-audit wiring ./ours --recording rec/ --engine sglang@0.5.23 --engine-accept-len 1.9
    """
    from drafter_audit.cli.options import named_engines
    from drafter_audit.cli.recording_options import only_with_a_target
    from drafter_audit.engines import newest_releases, read_releases
    from drafter_audit.report.sink import emit
    from drafter_audit.report.wiring_view import wiring_document, wiring_result
    from drafter_audit.wiring.check import Asked

    named = read_releases(named_engines(engines))
    _check_engine(len({(each.engine, each.version) for each in named}), engine_accept_len)
    _check_train_acc(len(train_acc), steps)
    if recording is not None:
        only_with_a_target(context)
    asked = Asked(min_gain, named or newest_releases(), bool(named), engine_accept_len, min_accept_len, train_acc)
    with _recording(drafter, recording, keep, target, answers, steps, context.obj) as (folder, made):
        first = Rank.here().first  # it has the recording; the others run the target, and no more
        lint, result = _checked(drafter, folder, target, steps, asked) if first else (None, None)
        live = list(_live(drafter, result, made, target, answers)) if made is not None and confirm_live else []
    if lint is None or result is None:
        return
    result = result.with_live(live)
    emit(wiring_document(lint, result), wiring_result(lint, result), style=style, output=output, command=context.obj)
    _end(context, result)


def _end(context: click.Context, result: Checked) -> None:
    from drafter_audit.errors import EXIT_CHECK_FAILED, EXIT_NOT_MEASURED

    if result.verdict.name != "healthy":
        context.exit(EXIT_NOT_MEASURED if result.verdict.name == "inconclusive" else EXIT_CHECK_FAILED)


def _check_engine(named: int, engine_accept_len: float | None) -> None:
    """Raises UsageError for a figure that is no one engine's."""
    from drafter_audit.errors import UsageError

    if engine_accept_len is not None and named != 1:
        what = f"a figure of one engine, and {named or 'none'} named"
        raise UsageError(what, "--engine-accept-len", "name the one release with --engine, such as sglang@0.5.23")


def _check_train_acc(told: int, steps: int) -> None:
    """Raises UsageError for accuracies of more or fewer steps than are measured: their accept_len is another figure."""
    from drafter_audit.errors import UsageError

    if told not in (0, steps):
        what = f"accuracies of {told} steps, and rounds of {steps} are measured"
        raise UsageError(what, "--train-acc", f"give --steps {told}, or {steps} accuracies")


@contextmanager
def _recording(
    drafter: str,
    named: str | None,
    keep: Path | None,
    target: TargetOptions,
    answers: Answers,
    steps: int,
    command: tuple[str, ...],
) -> Iterator[tuple[Path, Recorded | None]]:
    """The recording that is named, else one made in `keep` or in a folder that goes with the block."""
    from tempfile import TemporaryDirectory

    from drafter_audit.cli.recorded import States, recorded
    from drafter_audit.recording.boundaries import ALL_TOKENS

    if named is not None:
        yield Path(named), None
        return
    states = States("all", ALL_TOKENS, max(_LOOKAHEAD, steps))
    if keep is not None:
        yield keep, recorded([drafter], keep, target, answers, states, command)
        return
    with TemporaryDirectory(prefix="drafter-audit-") as folder:
        yield (
            Path(folder) / "recording",
            recorded([drafter], Path(folder) / "recording", target, answers, states, command),
        )


def _checked(drafter: str, folder: Path, target: TargetOptions, steps: int, asked: Asked) -> tuple[Lint, Checked]:
    """Lint first: it is quick, and what it refuses need not be run."""
    from drafter_audit.audit.damage import proven, suspected
    from drafter_audit.audit.lint import lint
    from drafter_audit.cli.progress import watch_steps
    from drafter_audit.recording.open import open_recording
    from drafter_audit.wiring.check import Files, checked, probe_here
    from drafter_audit.wiring.probe import lent_by

    recording = open_recording(folder)
    lends = lent_by(recording, target.ref)
    engines = [f"{each.engine}@{each.version}" for each in asked.releases if asked.named]
    found = lint(drafter, target=lends, engines=engines)
    with watch_steps("Trying wirings") as watch:
        probe = probe_here(drafter, recording, steps, target=target.ref, dtype=target.dtype, watch=watch)
        files = Files(tuple(proven(found.findings)), tuple(suspected(found.findings)))
        return found, checked(probe, files, asked)


def _live(
    drafter: str, result: Checked | None, made: Recorded, target: TargetOptions, answers: Answers
) -> Iterator[Live]:
    """The live loop as declared, and as found best where that is another wiring. Every rank runs it; rank 0 alone has
    a `result`, and tells the others."""
    from drafter_audit.decode.live import decode_live
    from drafter_audit.decode.loading import planned, replay_dtype
    from drafter_audit.decode.settings import Settings
    from drafter_audit.errors import CannotRunError
    from drafter_audit.measure.acceptance import Acceptance
    from drafter_audit.measure.bootstrap import accept_len_interval
    from drafter_audit.wiring.evidence import Live

    asked = made.target.ranks.told(None if result is None else (result.evidence.found.steps, _wirings(result)))
    assert asked is not None  # rank 0 has one
    plan, (steps, wirings) = planned(drafter, made.target, target.ref), asked
    settings = Settings(steps, answers.max_new_tokens, answers.temperature, answers.seed, plain=False)
    for name, wired in wirings.items():
        loaded = replace(plan, wiring=wired).load(target.dtype or replay_dtype(made.target))
        try:
            loaded.start()  # here every rank refuses alike; later rank 0 would alone, and the others wait for it
        except CannotRunError as error:
            yield Live(name, why_not=error.what)
            continue
        run = decode_live(loaded, made.target, made.given, settings)
        acceptance = Acceptance.pooled(run.counts, steps=steps)
        yield Live(name, acceptance.accept_len, accept_len_interval(acceptance), acceptance.rounds)


def _wirings(result: Checked) -> dict[str, Wiring]:
    found = result.evidence.found
    best = {"best": found.best.wiring} if found.faults else {}
    return {"declared": found.declared.wiring, **best}
