"""sweep --engine: each step count on a server of its own, for each set of variables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from drafter_audit.cli.engine_options import NO_VARIABLES, EngineOptions, env_sets, words
from drafter_audit.cli.given import refuse
from drafter_audit.cli.options import gathered
from drafter_audit.cli.prompt_options import OF_ANSWERS, Answers, answer_options
from drafter_audit.cli.recording_options import OF_DUMPS, Recorded, replayed

if TYPE_CHECKING:
    from drafter_audit.bench.cells import Cell, Outcome, Store
    from drafter_audit.bench.result import EngineResult
    from drafter_audit.bench.sweep_result import EngineSweep
    from drafter_audit.cli.engines import Plan
    from drafter_audit.decode.result import Provenance


@dataclass(frozen=True)
class OverServers:
    """What the command line says of a sweep over servers."""

    env_set: tuple[tuple[str, dict[str, str]], ...]
    out: Path | None
    what_if: tuple[float, ...]


def over_servers_options(command: Callable[..., object]) -> Callable[..., object]:
    """Them as one argument `servers: OverServers`, and those of prompts and answers as `answers: Answers`."""

    return gathered(answer_options(command), OverServers, "servers", _OPTIONS)


_OPTIONS = (
    click.option(
        "--env-set",
        metavar="NAME=K=V,K=V",
        multiple=True,
        callback=env_sets,
        help="With --engine: a set of variables to measure beside the environment as it is, such as "
        "nccl-ll=NCCL_PROTO=LL,NCCL_ALGO=Ring,NCCL_P2P_LEVEL=SYS.",
    ),
    click.option(
        "--out",
        metavar="DIR",
        type=click.Path(file_okay=False, path_type=Path),
        help="With --engine: where each cell is kept as it ends, and the servers' logs: a new folder, or one to go on "
        "with.",
    ),
    click.option(
        "--what-if",
        metavar="X",
        type=float,
        multiple=True,
        help="With --engine: what an accept_len of X would be worth, at the best cell's cycle.",
    ),
)

_OF_SERVERS = ("engine_python", "engine_args", "env", "start_timeout", "api_key_env", "env_set", "out", "what_if")
_OF_REPLAY = ("verify_ms", "draft_ms", "measured")
_OF_TREES = ("topks", "num_draft_tokens")


def check_options(context: click.Context, engine: EngineOptions, recorded: Recorded) -> None:
    """Raises UsageError for an option that would be ignored, and where nothing says what to sweep over."""
    from drafter_audit.errors import UsageError

    if engine.engine is None:
        if not recorded.folders:
            raise UsageError("nothing to sweep over", "--recording, --engine", "name a recording, or an engine")
        refuse(context, (*_OF_SERVERS, *OF_ANSWERS), "says how servers are measured, and none is", "add --engine")
        return
    refuse(context, _OF_TREES, "asks for trees, and servers are swept over chains", "leave it out, or use bench")
    refuse(context, OF_DUMPS, "says what dumps hold, and servers are asked what a recording was", "leave it out")
    refuse(context, _OF_REPLAY, "gives a cost, and with --engine it is measured", "leave it out")
    if recorded.folders:
        refuse(context, OF_ANSWERS, "says what is asked, and the recording says that", "leave it out")
    else:
        refuse(context, ("dtype",), "says how a drafter is replayed, and without --recording none is", "leave it out")


@dataclass(frozen=True)
class Swept:
    """Who is swept, over which step counts, and what is asked: the prompts of `answers`, or a recording's."""

    drafter: str
    target: str | None
    dtype: str | None
    steps: tuple[int, ...]
    answers: Answers
    recording: str | None


def swept_over_servers(swept: Swept, engine: EngineOptions, servers: OverServers) -> EngineSweep:
    """Every cell, measured now or earlier. Raises UsageError before the first is begun."""
    from drafter_audit.bench.cells import EnvSet, Store, cells_of
    from drafter_audit.bench.sweep import Known, duration, left_s, run_cells
    from drafter_audit.bench.sweep_result import EngineSweep
    from drafter_audit.errors import UsageError
    from drafter_audit.measure.costs import check_reachable
    from drafter_audit.recording.whole_file import alone
    from drafter_audit.report.sink import tell

    for value in servers.what_if:
        check_reachable(value, swept.steps[-1])
    if servers.out is None:
        raise UsageError("no folder for the cells", "--out", "name one: each cell is kept there as it ends")
    plan, known = _planned(swept)
    sets = [EnvSet(NO_VARIABLES, {}), *(EnvSet(name, env) for name, env in servers.env_set)]
    store = Store(servers.out)
    _check_start(plan, engine, swept.steps[0])
    store.begin(_asked(plan, engine))
    cells = tuple(cells_of(sets, swept.steps))
    with alone(store.folder):
        new = sum(store.find(cell) is None for cell in cells)
        tell(f"{new} of {len(cells)} servers to start: up to {duration(left_s(cells, store, _held(cells, store)))}")
        outcomes = run_cells(cells, store, Known(known), lambda cell: _measured(cell, plan, engine, store), tell)
    notes = tuple(_notes(plan, known, outcomes))
    return EngineSweep(str(engine.engine), _measured_with(plan, outcomes), outcomes, known, servers.what_if, notes)


def show(context: click.Context, result: EngineSweep, style: str, output: str | None) -> None:
    """Exits with 3 where no cell with the drafter was measured, or answers measure nothing."""
    from drafter_audit.errors import EXIT_NOT_MEASURED
    from drafter_audit.report.engine_sweep_view import engine_sweep_document
    from drafter_audit.report.sink import emit, tell

    emit(engine_sweep_document(result), result.to_dict(), style=style, output=output, command=context.obj)
    for reason in result.unmeasured:
        tell(f"not measured: {reason}")
    if result.best is None or result.unmeasured:
        context.exit(EXIT_NOT_MEASURED)


def _planned(swept: Swept) -> tuple[Plan, Mapping[int, float]]:
    """What is asked, and accept_len by steps where a recording tells it. Dumps are none: what of a text was asked they
    need not say."""
    from drafter_audit.cli.engines import planned, planned_on
    from drafter_audit.decode.sweep import sweep_result
    from drafter_audit.measure.shape import shape_of
    from drafter_audit.recording.open import open_recording

    drafter, target = swept.drafter, swept.target
    if swept.recording is None:
        return planned(drafter, target, swept.answers), {}
    recording = open_recording(swept.recording)
    shapes = [shape_of(count) for count in swept.steps]
    (runs,) = replayed((drafter,), (recording,), shapes, target, swept.dtype)
    known = {each.steps: each.accept_len for each in sweep_result(runs).acceptances}
    return planned_on(recording, drafter, target), known


def _asked(plan: Plan, engine: EngineOptions) -> dict[str, Any]:
    """What must be the same for a run to go on with a folder. Further step counts and sets may be added, and a key may
    be another."""
    from drafter_audit.secrets import without_secret_values, without_secrets

    return {
        "engine": engine.engine,
        "engine_python": engine.engine_python,
        "engine_args": without_secrets(words(engine.engine_args)),
        "env": without_secret_values(engine.env),
        "measured_with": plan.asked.provenance.to_dict(),
        "max_new_tokens": plan.asked.questions[0].max_new_tokens,
    }


def _check_start(plan: Plan, engine: EngineOptions, steps: int) -> None:
    """Raises UsageError for what no server could be started with: it is no cell's failure."""
    from drafter_audit.bench.run import checked_command
    from drafter_audit.measure.shape import shape_of

    checked_command(engine.wire, engine.start(plan.spec, plan.target, shape_of(steps)))


def _held(cells: Sequence[Cell], store: Store) -> list[Outcome]:
    return [held for cell in cells if (held := store.find(cell)) is not None]


def _measured(cell: Cell, plan: Plan, engine: EngineOptions, store: Store) -> EngineResult:
    from drafter_audit.bench.run import launched, measure
    from drafter_audit.cli.progress import waiting, watch_prompts
    from drafter_audit.measure.shape import shape_of

    shape = shape_of(cell.steps) if cell.steps else None
    start = engine.start(plan.spec, plan.target, shape)
    how = engine.launch(store.logs, cell.env_set.env)
    with (
        launched(engine.wire, start, how, cell.name, waiting()) as up,
        watch_prompts(cell.words, len(plan.asked.questions)) as watch,
    ):
        return measure(engine.wire, up, plan.expected(shape, plain=shape is None), plan.watched(watch))


def _measured_with(plan: Plan, outcomes: Sequence[Outcome]) -> Provenance:
    """The dtype is what the servers say."""
    said = next((told["dtype"] for each in outcomes if (told := each.told("target"))), None)
    return replace(plan.asked.provenance, target=replace(plan.asked.provenance.target, dtype=said))


def _notes(plan: Plan, known: Mapping[int, float], outcomes: Sequence[Outcome]) -> list[str]:
    notes = list(plan.asked.notes)
    apart = [
        f"{o.cell.words}: {length:.3f} here, {known[o.cell.steps]:.3f} in the replay"
        for o in outcomes
        if o.cell.steps in known
        and (length := o.told("accept_len")) is not None
        and (within := o.told("accept_len_interval"))
        and not within[0] <= known[o.cell.steps] <= within[1]
    ]
    if apart:
        notes.append(f"the engine's accept_len is not the replay's, by which cells were judged: {'; '.join(apart)}")
    return notes
