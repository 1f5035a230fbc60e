"""drafter-audit check"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from drafter_audit.cli.check_options import bar_options
from drafter_audit.cli.ci_options import CiOptions, ci_options
from drafter_audit.cli.given import given, refuse
from drafter_audit.cli.options import complete_reference, offline_option, output_options
from drafter_audit.cli.prompt_options import Answers, answer_options
from drafter_audit.cli.recording_options import OF_A_RUN
from drafter_audit.cli.target_options import TargetOptions, target_options
from drafter_audit.ranks import Rank

if TYPE_CHECKING:
    from drafter_audit.check.job import Job
    from drafter_audit.check.row import Result
    from drafter_audit.cli.checked_live import Answering
    from drafter_audit.facts.project import CheckEntry, ProjectFile

_OF_A_TARGET = (*OF_A_RUN, "dtype")


@click.command()
@click.argument("drafters", metavar="[DRAFTER]...", shell_complete=complete_reference, nargs=-1)
@click.option(
    "-c", "--config", metavar="FILE", type=click.Path(path_type=Path),
    help="The project file.  [default: drafter-audit.toml here, else pyproject.toml]",
)  # fmt: skip
@click.option("--init", is_flag=True, help="Write a commented drafter-audit.toml of what lies here, and check nothing.")
@click.option("--recording", metavar="DIR", type=click.Path(path_type=Path), help="A recording to replay on.")
@bar_options
@click.option("--update-baseline", is_flag=True, help="Store what is measured as the new baseline.")
@click.option("--force", is_flag=True, help="With --update-baseline: also an accept_len below 1.2.")
@answer_options
@target_options
@offline_option
@ci_options
@output_options
@click.pass_context
def check(
    context: click.Context,
    drafters: tuple[str, ...],
    config: Path | None,
    init: bool,
    recording: Path | None,
    bars: CheckEntry,
    update_baseline: bool,
    force: bool,
    answers: Answers,
    target: TargetOptions,
    ci: CiOptions,
    style: str,
    output: str | None,
) -> None:
    """Hold drafters to bars, as a gate before they are served: pass 0, fail 1, could not measure 3.

    Lint and the comparison with a reference come first, then a replay of the recording, then live decoding where it is
    asked for. The bars are those of drafter-audit.toml, and options override them. A figure passes where the lower end
    of its 95% interval is at the bar or above, fails where the upper end is below, and is unmeasured between.

    \b
    drafter-audit check
    drafter-audit check ./ours --recording rec/ --min-accept-len 2.0
    drafter-audit check -c ci/drafter-audit.toml --update-baseline
    drafter-audit check --init
    """
    from drafter_audit.check.job import Given, jobs_of
    from drafter_audit.check.supervise import channel
    from drafter_audit.cli.checked_live import Answering

    if init:
        _init(context, config)
        return
    told: dict[str, Any] = {name: getattr(answers, name) for name in given(context, ("prompts", "max_new_tokens"))}
    bars = replace(bars, **told)
    asked = Given(drafters, target.ref, recording, bars, update_baseline, force)
    answering = Answering(target, answers)
    descriptor = channel()
    if descriptor is not None:
        _measure(jobs_of(_file(config), asked), answering, descriptor)
        return
    with ci.telling() as tell:
        file = _file(config)
        jobs = jobs_of(file, asked)
        if not any(job.live for job in jobs):
            refuse(context, _OF_A_TARGET, "says how a target is run, and none is", "leave it out, or add --live")
        if Rank.here().first or any(job.live for job in jobs):
            result = _watched(jobs, context.obj, None if file is None else str(file.path))
            if Rank.here().first:
                _show(result, style, output, context.obj)
                tell(result, jobs)
                context.exit(result.exit_code)


def _init(context: click.Context, config: Path | None) -> None:
    """Raises UsageError for what would be ignored."""
    from drafter_audit.check.init import write_project_file
    from drafter_audit.facts.project import FILE_NAME
    from drafter_audit.report.sink import tell

    refuse(context, _of_a_check(context), "goes with a check, and --init makes none", "leave it out, or --init")
    for remark in write_project_file(config or Path(FILE_NAME)):
        tell(remark)


def _of_a_check(context: click.Context) -> Iterator[str]:
    return (str(each.name) for each in context.command.params if each.name not in ("init", "config", "offline"))


def _file(config: Path | None) -> ProjectFile | None:
    from drafter_audit.facts import project

    return project.in_folder(project.working_folder()) if config is None else project.at(config)


def _measure(jobs: Sequence[Job], answering: Answering, descriptor: int) -> None:
    """The work itself, in a process of its own; of several ranks the first tells of it."""
    from drafter_audit.check.messages import teller
    from drafter_audit.check.run import Run

    run = Run(jobs, answering)
    first = Rank.here().first
    tell = teller(descriptor)
    for told in run.all() if first else run.only_live():
        if first:
            tell(told)


def _watched(jobs: Sequence[Job], command: Sequence[str], config: str | None) -> Result:
    from drafter_audit.check.gate import watched

    return watched(jobs, command, config)


def _show(result: Result, style: str, output: str | None, command: Sequence[str]) -> None:
    from drafter_audit.report.check_view import check_document
    from drafter_audit.report.sink import emit

    emit(check_document(result), result.to_dict(), style=style, output=output, command=command)
