"""drafter-audit bench"""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from drafter_audit.cli.engine_options import EngineOptions, engine_options
from drafter_audit.cli.given import refuse
from drafter_audit.cli.options import complete_reference, offline_option, output_options
from drafter_audit.cli.prompt_options import Answers, answer_options

if TYPE_CHECKING:
    from drafter_audit.bench.run import Up
    from drafter_audit.cli.engines import Plan
    from drafter_audit.measure.shape import Shape


@click.command()
@click.argument("drafter", metavar="DRAFTER", shell_complete=complete_reference)
@click.option("--target", metavar="REF", shell_complete=complete_reference, help="The target that the server runs.")
@click.option("--url", metavar="URL", help="Attach to a server that runs, such as http://127.0.0.1:30000.")
@click.option("--launch", is_flag=True, help="Start a server, and stop it afterwards, whatever happens.")
@engine_options(required=True)
@click.option(
    "--logs",
    metavar="DIR",
    default="engine-logs",
    show_default=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Where the log of a server that is started is kept.",
)
@click.option(
    "--steps",
    metavar="N",
    type=click.IntRange(min=1),
    help="Tokens that a round drafts; of a running server, what it must run.  [default: 3, or as the server says]",
)
@click.option(
    "--topk",
    metavar="N",
    type=click.IntRange(min=1),
    help="1: drafts are a chain.  [default: 1, or as the server says]",
)
@click.option(
    "--num-draft-tokens",
    metavar="N",
    type=click.IntRange(min=1),
    help="Tokens that a round verifies, as SGLang counts.  [default: steps + 1, or as the server says]",
)
@click.option("--served-target", metavar="NAME", help="What a running server calls the target, where that differs.")
@click.option("--served-drafter", metavar="NAME", help="What a running server calls the drafter, where that differs.")
@click.option(
    "--what-if",
    metavar="X",
    type=float,
    multiple=True,
    help="Also say what an accept_len of X would be worth, at the cycle that was measured.",
)
@click.option(
    "--reference",
    metavar="RECORDING",
    type=click.Path(file_okay=False, path_type=Path),
    help="A recording of the target, made by `record`: its prompts are asked, and the engine is set beside a replay of "
    "them, wired as it says that it wires the drafter.",
)
@answer_options
@offline_option
@output_options
@click.pass_context
def bench(
    context: click.Context,
    drafter: str,
    target: str | None,
    url: str | None,
    launch: bool,
    engine: EngineOptions,
    logs: Path,
    steps: int | None,
    topk: int | None,
    num_draft_tokens: int | None,
    served_target: str | None,
    served_drafter: str | None,
    what_if: tuple[float, ...],
    reference: Path | None,
    answers: Answers,
    style: str,
    output: str | None,
) -> None:
    """Measure accept_len and tokens/s on the engine that serves: attached to, or started and stopped.

    Prompts are asked one at a time. The engine's own counts of this run are taken, never an average over its life. A
    server that simulates acceptance, runs another drafter or target, does not speculate, or whose counters are missing
    or fell is refused: exit code 3. What it does not tell is listed. With --reference a gap to the replay that chance
    does not make is the engine's: exit code 1.

    \b
    drafter-audit bench ./ours --target moonshotai/Kimi-K2.5 --engine sglang --url http://127.0.0.1:30000
    drafter-audit bench ./ours --target ./target --engine vllm --launch --engine-python vllm/bin/python --steps 3
    drafter-audit bench ./ours --engine vllm --url http://127.0.0.1:8000 --reference rec/
    """
    from drafter_audit.bench.run import measure
    from drafter_audit.cli.beside import end_by_verdict, opened_reference, set_beside
    from drafter_audit.cli.engines import planned, planned_on
    from drafter_audit.cli.measured import end_unmeasured
    from drafter_audit.cli.progress import watch_prompts
    from drafter_audit.report.bench_view import bench_document
    from drafter_audit.report.sink import check_output, emit

    _check_way(context, url, launch)
    check_output(output)
    shape = _shape(launch, steps, topk, num_draft_tokens)
    recording = None if reference is None else opened_reference(context, reference, drafter, target, shape)
    plan = planned_on(recording, drafter, target, what_if) if recording else planned(drafter, target, answers, what_if)
    with (
        _up(engine, plan, url, shape, logs) as up,
        watch_prompts(plan.spec.name, len(plan.asked.questions)) as watch,
    ):
        result = measure(engine.wire, up, plan.expected(shape, served_target, served_drafter), plan.watched(watch))
    beside = set_beside(result, recording, target) if recording else None
    told = result.to_dict() | (beside.to_dict() if beside else {})
    emit(bench_document(result, beside), told, style=style, output=output, command=context.obj)
    if beside:
        end_by_verdict(context, beside)
    end_unmeasured(context, [result.answers])


_OF_A_LAUNCH = ("engine_python", "engine_args", "env", "start_timeout", "logs")
_OF_A_RUNNING = ("served_target", "served_drafter")


def _check_way(context: click.Context, url: str | None, launch: bool) -> None:
    """Raises UsageError for both ways or none, and for an option of the other way: it would be ignored."""
    from drafter_audit.errors import UsageError

    if (url is None) is not launch:
        raise UsageError("one way to a server is needed", "--url, --launch", "give a URL, or --launch, and not both")
    way, other = ("--url", "--launch") if launch else ("--launch", "--url")
    refuse(context, _OF_A_RUNNING if launch else _OF_A_LAUNCH, f"is for {way}", f"leave it out with {other}")


def _shape(launch: bool, steps: int | None, topk: int | None, num_draft_tokens: int | None) -> Shape | None:
    """What a server is started with, or must run; None where any will do. Raises UsageError for what is no shape."""
    from drafter_audit.errors import UsageError
    from drafter_audit.measure.shape import shape_of

    if steps is None and not launch:
        if topk or num_draft_tokens:
            raise UsageError("a shape without its steps", "--topk, --num-draft-tokens", "add --steps")
        return None
    return shape_of(steps or 3, topk or 1, num_draft_tokens)


def _up(
    engine: EngineOptions, plan: Plan, url: str | None, shape: Shape | None, logs: Path
) -> AbstractContextManager[Up]:
    from drafter_audit.bench.run import attached, launched
    from drafter_audit.cli.progress import waiting

    if url is not None or shape is None:
        return attached(url or "", api_key=engine.api_key)
    start = engine.start(plan.spec, plan.target, shape)
    return launched(engine.wire, start, engine.launch(logs), f"{engine.engine}-{start.port}", waiting())
