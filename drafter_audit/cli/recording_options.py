"""--recording, and the drafters that are replayed on what it names."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from drafter_audit.cli.given import refuse
from drafter_audit.cli.options import gathered
from drafter_audit.cli.prompt_options import OF_ANSWERS
from drafter_audit.errors import UsageError

if TYPE_CHECKING:
    from drafter_audit.decode.replay import ReplayRun
    from drafter_audit.measure.shape import Shape
    from drafter_audit.recording.recording import Recording


@dataclass(frozen=True)
class Recorded:
    """The folders that --recording names. What slots of dumps are `boundaries` says, else a recording that they are
    matched with; both are None for recordings of our own."""

    folders: tuple[str, ...]
    boundaries: tuple[int, ...] | None
    match: str | None


def recording_option(
    *, multiple: bool, required: bool | None = None
) -> Callable[[Callable[..., object]], Callable[..., object]]:
    """--recording, --boundaries and --match, as one argument `recorded: Recorded`; with `multiple` several folders, or
    none. A single one is required unless said otherwise."""

    options = _options(multiple, not multiple if required is None else required)
    return lambda command: gathered(command, Recorded, "recorded", options)


def _options(multiple: bool, required: bool) -> tuple[Callable[[Callable[..., object]], Callable[..., object]], ...]:
    several = " Several are compared." if multiple else ""
    return (
        click.option(
            "--recording",
            "folders",
            metavar="DIR",
            type=click.Path(),
            multiple=multiple,
            required=required,
            callback=_several,
            help="A recording of the target, made by `record`: the drafter is replayed on it, no target is run. Or "
            f"states that vLLM, speculators or SpecForge dumped.{several}",
        ),
        click.option(
            "--boundaries",
            metavar="LIST",
            callback=_boundaries,
            help="Of dumps: which boundary of the target each slot is, such as 2,6,9.",
        ),
        click.option(
            "--match",
            metavar="DIR",
            type=click.Path(),
            help="Of dumps: find that out, by a recording of a text that was dumped.",
        ),
    )


def _several(_: click.Context, __: click.Parameter, named: str | tuple[str, ...] | None) -> tuple[str, ...]:
    return (named,) if isinstance(named, str) else named or ()


def _boundaries(context: click.Context, param: click.Parameter, text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise click.BadParameter(f"{text!r} is no list of boundaries: write 2,6,9", context, param) from error


OF_A_RUN = (
    *OF_ANSWERS,
    *("what_if", "device_map", "offload_folder", "trust_remote_code", "rank_timeout", "keep", "confirm_live"),
)
OF_DUMPS = ("boundaries", "match")


def only_with_a_target(context: click.Context) -> None:
    """Raises UsageError for an option that a recording leaves nothing to decide for: it would be ignored."""
    why = "says how a target is run, and with --recording none is"
    mend = "leave it out, or give --target without --recording"
    refuse(context, (name for name in OF_A_RUN if name != "what_if"), why, mend)
    refuse(context, ("what_if",), why, f"{mend}, which measures what a cycle takes")


def only_with_dumps(context: click.Context) -> None:
    """Raises UsageError for an option that says what dumps hold, where none are named."""
    why = "says what dumps hold, and --recording names none"
    refuse(context, OF_DUMPS, why, "leave it out, or name a folder of dumps with --recording")


def opened(
    context: click.Context, recorded: Recorded, drafters: Sequence[str], steps: int, target: str | None
) -> tuple[Recording, ...]:
    """What --recording names: recordings, or dumps, whose target is the one named or that the drafters name.

    Dumps look `steps` tokens ahead. Raises UsageError for options that dumps lack, or that say something of none; and
    what opening either raises.
    """
    from drafter_audit.recording.dumps.open import is_dumps, match_dumps, open_dumps
    from drafter_audit.recording.open import open_recording

    if not any(is_dumps(Path(folder)) for folder in recorded.folders):
        only_with_dumps(context)
    elif (recorded.boundaries is None) is (recorded.match is None):
        what = "dumps do not say which boundary of the target each slot is"
        raise UsageError(what, "--boundaries, --match", "name one boundary for each slot, or a recording to match")

    def one(folder: Path) -> Recording:
        if not is_dumps(folder):
            return open_recording(folder)
        if recorded.match is not None:
            return match_dumps(folder, open_recording(recorded.match), steps)
        return open_dumps(folder, recorded.boundaries or (), _target(drafters, target), steps)

    return tuple(one(Path(folder)) for folder in recorded.folders)


def _target(drafters: Sequence[str], named: str | None) -> tuple[str, int, int]:
    """Reference, layers and vocabulary of the target that was dumped. Raises UsageError where they are not known."""
    from drafter_audit.cli.target_options import target_of
    from drafter_audit.drafter.open import open_drafter
    from drafter_audit.drafter.target import named_target

    ref = named or target_of([open_drafter(drafter) for drafter in drafters], "name the target that was dumped")
    found = named_target(ref)
    if found.num_layers is None or found.vocab_size is None:
        raise UsageError("its config tells no layers or no vocabulary", ref, "name the target itself with --target")
    return ref, found.num_layers, found.vocab_size


def replayed(
    drafters: Sequence[str],
    recordings: Sequence[Recording],
    shapes: Sequence[Shape],
    target: str | None,
    dtype: str | None,
) -> Iterator[tuple[ReplayRun, ...]]:
    """Every drafter on every recording, in rounds of each shape. What does not fit is refused before the first is
    loaded; one is held at a time.

    `target` names whom to borrow from. Without a `dtype` they run in float32 on a CPU, in the recorded target's else.
    """
    from drafter_audit.cli.progress import watch_prompts
    from drafter_audit.decode.fit import check_beams, check_fits, check_verified
    from drafter_audit.decode.loading import planned, replay_dtype
    from drafter_audit.decode.replay import replay_shapes

    plans = [[planned(ref, each.manifest, target) for each in recordings] for ref in drafters]
    for row in plans:
        for plan, recording in zip(row, recordings, strict=True):
            check_fits(plan.spec, plan.wiring, recording.manifest, max(shape.steps for shape in shapes))
            for shape in shapes:
                check_beams(plan.spec, shape.topk)
                check_verified(recording.manifest, shape)
    for row in plans:
        drafter, loaded_as = None, None
        for plan, recording in zip(row, recordings, strict=True):
            kind = dtype or replay_dtype(recording.manifest)
            if drafter is None or loaded_as != (plan.wiring, plan.lender, kind):
                drafter, loaded_as = plan.load(kind), (plan.wiring, plan.lender, kind)
            with watch_prompts(plan.spec.name, recording.manifest.count) as watch:
                yield replay_shapes(drafter, recording, shapes, watch=watch)
