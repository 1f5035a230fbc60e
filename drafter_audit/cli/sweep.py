"""drafter-audit sweep"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from drafter_audit.cli.engine_options import EngineOptions, engine_options
from drafter_audit.cli.engine_sweep import (
    OverServers,
    Swept,
    check_options,
    over_servers_options,
    show,
    swept_over_servers,
)
from drafter_audit.cli.options import complete_reference, offline_option, output_options
from drafter_audit.cli.prompt_options import Answers
from drafter_audit.cli.recording_options import Recorded, opened, recording_option, replayed
from drafter_audit.cli.shape_options import listed, swept_shapes_options

if TYPE_CHECKING:
    from drafter_audit.measure.costs import StepCosts


@click.command()
@click.argument("drafter", metavar="DRAFTER", shell_complete=complete_reference)
@recording_option(multiple=False, required=False)
@click.option(
    "--steps",
    metavar="LIST",
    default="1-10",
    show_default=True,
    callback=listed("step counts", "1-10, 3, or 1,3,5-8"),
    help="Step counts: 1-10, 3, or 1,3,5-8.",
)
@swept_shapes_options
@click.option("--verify-ms", metavar="MS", type=float, help="What one verification takes; with --draft-ms.")
@click.option("--draft-ms", metavar="MS", type=float, help="What one draft step takes; with --verify-ms.")
@click.option(
    "--costs",
    "measured",
    metavar="FILE",
    type=click.Path(),
    help="Take both from the JSON of a live run: decode --target ... --format json -o FILE.",
)
@click.option(
    "--target",
    metavar="REF",
    shell_complete=complete_reference,
    help="The target that the drafter borrows tensors from, over what files say; it is not run.",
)
@click.option("--dtype", metavar="NAME", help="torch's name of the drafter's dtype. float32 on a CPU, if not given.")
@engine_options(required=False)
@over_servers_options
@offline_option
@output_options
@click.pass_context
def sweep(
    context: click.Context,
    drafter: str,
    recorded: Recorded,
    steps: tuple[int, ...],
    topks: tuple[int, ...],
    num_draft_tokens: tuple[int, ...],
    verify_ms: float | None,
    draft_ms: float | None,
    measured: str | None,
    target: str | None,
    dtype: str | None,
    engine: EngineOptions,
    servers: OverServers,
    answers: Answers,
    style: str,
    output: str | None,
) -> None:
    """accept_len at every step count, of chains and of trees, from one replay of a recording, and which is worth most.

    The ceiling is what accept_len would be if the drafter were right wherever its vocabulary has the target's token.
    With the costs of a cycle each row has its tokens/s, and the best step count is told.

    With --engine each step count is measured instead, on a server of its own, for each set of variables, beside plain
    decoding. A run that was stopped goes on when the same command is given again. With --recording too, its prompts are
    asked, and step counts that cannot win by its accept_len are not started.

    \b
    drafter-audit sweep ./ours --recording rec/
    drafter-audit sweep ./ours --recording rec/ --steps 1-6 --verify-ms 22 --draft-ms 1.4
    drafter-audit sweep ./ours --recording rec/ --steps 3-6 --topk 1,4,8 --num-draft-tokens 8,16,32
    drafter-audit sweep ./ours --engine sglang --engine-python sglang/bin/python --out night/ --steps 1-4
    """
    from drafter_audit.cli.measured import end_unmeasured
    from drafter_audit.decode.sweep import sweep_result
    from drafter_audit.measure.shape import shapes_of
    from drafter_audit.report.sink import emit
    from drafter_audit.report.sweep_view import sweep_document

    check_options(context, engine, recorded)
    if engine.engine is not None:
        swept = Swept(drafter, target, dtype, steps, answers, next(iter(recorded.folders), None))
        show(context, swept_over_servers(swept, engine, servers), style, output)
        return
    costs, source = _costs(verify_ms, draft_ms, measured)
    shapes, notes = shapes_of(steps, topks, num_draft_tokens)
    recordings = opened(context, recorded, (drafter,), steps[-1], target)
    (runs,) = replayed((drafter,), recordings, shapes, target, dtype)
    result = sweep_result(runs, costs, source, notes)
    emit(sweep_document(result), result.to_dict(), style=style, output=output, command=context.obj)
    end_unmeasured(context, [result.acceptances[-1].per_prompt])


def _costs(
    verify_ms: float | None, draft_ms: float | None, measured: str | None
) -> tuple[StepCosts | None, str | None]:
    """The costs of a cycle and where they are from. Raises UsageError for one without the other, and for both ways."""
    from drafter_audit.decode.sweep import measured_costs
    from drafter_audit.errors import UsageError
    from drafter_audit.measure.costs import StepCosts

    given = [cost for cost in (verify_ms, draft_ms) if cost is not None]
    if measured is not None:
        if given:
            raise UsageError("costs are both given and taken from a file", "--costs", "leave one out")
        return measured_costs(measured), f"measured, {measured}"
    if len(given) == 1:
        raise UsageError("one cost without the other", "--verify-ms, --draft-ms", "give both")
    return (StepCosts(*given), "given") if given else (None, None)
