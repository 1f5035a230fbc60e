"""--recording, and the drafters that are replayed on what it names."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

import click
from click.core import ParameterSource

if TYPE_CHECKING:
    from drafter_audit.decode.replay import ReplayRun

Command = TypeVar("Command", bound=Callable[..., object])


def recording_option(*, multiple: bool) -> Callable[[Command], Command]:
    """--recording, as the argument `recordings` where several may be named, else `recording`."""
    several = " Several are compared." if multiple else ""
    return click.option(
        "--recording",
        "recordings" if multiple else "recording",
        metavar="DIR",
        type=click.Path(),
        multiple=multiple,
        required=not multiple,
        help=f"A recording of the target, made by `record`: the drafter is replayed on it, no target is run.{several}",
    )


_OF_A_RUN = (
    *("prompts", "raw", "thinking", "max_new_tokens", "temperature", "seed", "what_if"),
    *("device_map", "offload_folder", "trust_remote_code", "rank_timeout", "keep", "confirm_live"),
)


def only_with_a_target(context: click.Context) -> None:
    """Raises UsageError for an option that a recording leaves nothing to decide for: it would be ignored."""
    from drafter_audit.errors import UsageError

    for name in _OF_A_RUN:
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            option = next(p for p in context.command.params if p.name == name).opts[0]
            what = f"{option} says how a target is run, and with --recording none is"
            raise UsageError(
                what, context.command_path, f"leave it out, or give --target without --recording{_why(name)}"
            )


def _why(name: str) -> str:
    return ", which measures what a cycle takes" if name == "what_if" else ""


def replayed(
    drafters: Sequence[str], recordings: Sequence[str], steps: int, target: str | None, dtype: str | None
) -> Iterator[ReplayRun]:
    """Every drafter on every recording. What does not fit is refused before the first is loaded; one is held at a time.

    `target` names whom to borrow from. Without a `dtype` they run in float32 on a CPU, in the recorded target's else.
    """
    import torch

    from drafter_audit.cli.progress import watch_prompts
    from drafter_audit.decode.fit import check_fits
    from drafter_audit.decode.loading import planned
    from drafter_audit.decode.replay import replay
    from drafter_audit.recording.open import open_recording

    opened = [open_recording(folder) for folder in recordings]
    plans = [[planned(ref, each.manifest, target) for each in opened] for ref in drafters]
    for row in plans:
        for plan, recording in zip(row, opened, strict=True):
            check_fits(plan.spec, plan.wiring, recording.manifest, steps)
    for row in plans:
        drafter = None
        for plan, recording in zip(row, opened, strict=True):
            kind = dtype or (recording.manifest.dtype if torch.cuda.is_available() else "float32")
            if drafter is None or drafter.wiring != plan.wiring or drafter.loaded.dtype != kind:
                drafter = plan.load(kind)
            with watch_prompts(plan.spec.name, len(recording.manifest.answers)) as watch:
                yield replay(drafter, recording, steps, watch=watch)
