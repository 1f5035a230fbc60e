"""Options of the commands that run a target, and the target that they load."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from drafter_audit.cli.options import complete_reference, gathered
from drafter_audit.errors import UsageError
from drafter_audit.ranks import Rank

if TYPE_CHECKING:
    from drafter_audit.drafter.spec import DrafterSpec
    from drafter_audit.model.target.model import TargetModel
    from drafter_audit.model.target.sizes import TargetSizes


@dataclass(frozen=True)
class TargetOptions:
    """What the command line says of the target. `ref` is None where --target is not given."""

    ref: str | None
    dtype: str | None
    device_map: str | Mapping[str, Any] | None
    offload_folder: str | None
    trust_remote_code: bool
    rank_timeout: float

    def sizes(self, ref: str) -> TargetSizes:
        """What the config of the target `ref` tells, by transformers. Raises what `target_sizes` raises."""
        from drafter_audit.model.target.sizes import target_sizes

        return target_sizes(ref, trust_remote_code=self.trust_remote_code)

    def load(self, declared: str | None = None) -> TargetModel:
        """The target named, else the `declared` one, loaded and checked. Raises UsageError where neither is, and what
        `load_target` raises. Every rank calls it."""
        ref = self.ref or declared
        if not ref:
            raise UsageError("no target is named", "--target", "name the target's repository or folder")
        from drafter_audit.model.target.load import load_target

        return load_target(
            ref,
            dtype=self.dtype,
            device_map=self.device_map,
            offload_folder=self.offload_folder,
            trust_remote_code=self.trust_remote_code,
            ranks_timeout_s=self.rank_timeout,
        )


def target_of(specs: Sequence[DrafterSpec], mend: str = "name the target's repository or folder") -> str:
    """The target that the drafters name. Raises UsageError where they name none, or several."""
    named = sorted({spec.target.ref for spec in specs if spec.target.ref})
    if len(named) != 1:
        told = f"the drafters name {', '.join(named)}" if named else "no target is named"
        raise UsageError(told, "--target", mend)
    return named[0]


def target_options(command: Callable[..., object]) -> Callable[..., object]:
    """--target and how to load it, as one argument `target: TargetOptions`."""
    return gathered(command, TargetOptions, "target", _OPTIONS)


def runs_target(command: click.Command | None, arguments: Sequence[str]) -> bool:
    """Whether a command line may run a target: one with these options that reads no recording instead, or that takes
    both and decides by itself."""
    names = set() if command is None else {each.name for each in command.params}
    takes_it = "device_map" in names
    if {"recording", "live"} <= names:
        return takes_it
    return takes_it and not any(each.partition("=")[0] == "--recording" for each in arguments)


def _map(_: click.Context, __: click.Parameter, given: str | None) -> str | Mapping[str, Any] | None:
    """The name, or what a .json file holds. Raises UsageError for a file that is no map."""
    if given is None or not given.endswith(".json"):
        return given
    import json

    mend = 'write a JSON object of modules and devices, such as {"model": 0, "lm_head": "cpu"}'
    try:
        held = json.loads(Path(given).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"no device map: {error}", f"--device-map {given}", mend) from error
    if not isinstance(held, dict) or not held or not all(isinstance(device, str | int) for device in held.values()):
        raise UsageError("no device map", f"--device-map {given}", mend)
    return held


def _ranks_alone(context: click.Context, param: click.Parameter, seconds: int) -> int:
    """Raises UsageError where one process, which waits for nobody, is told how long to wait."""
    if Rank.here().size == 1 and context.get_parameter_source(str(param.name)) is ParameterSource.COMMANDLINE:
        mend = "start it as torchrun --nproc-per-node N -m drafter_audit ..., or leave it out"
        raise UsageError("one process waits for no other rank", "--rank-timeout", mend)
    return seconds


_OPTIONS = (
    click.option("--target", "ref", metavar="REF", shell_complete=complete_reference, help="The target, which is run."),
    click.option(
        "--dtype", metavar="NAME", help="torch's name of the target's dtype. Its own, float32 on a CPU, if not given."
    ),
    click.option(
        "--device-map",
        metavar="MAP",
        callback=_map,
        help="Where the target lies, in one process: auto, a device, or a .json file of modules and devices. Under "
        "torchrun each layer is split over the ranks instead.",
    ),
    click.option(
        "--offload-folder",
        metavar="DIR",
        type=click.Path(file_okay=False),
        help="Where what --device-map leaves on disk is kept.",
    ),
    click.option(
        "--trust-remote-code",
        is_flag=True,
        help="Run the code of the target's repository, where transformers has none.",
    ),
    click.option(
        "--rank-timeout",
        metavar="SECONDS",
        type=click.IntRange(min=1),
        default=1800,
        show_default=True,
        callback=_ranks_alone,
        help="Under torchrun, how long a rank waits for the others.",
    ),
)
