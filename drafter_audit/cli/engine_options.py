"""Options of the commands that let a serving engine run the target, in an environment of its own."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from drafter_audit.cli.options import gathered
from drafter_audit.cli.target_options import TargetOptions
from drafter_audit.errors import UsageError
from drafter_audit.ranks import Rank

if TYPE_CHECKING:
    from drafter_audit.recording.engine.job import Engine

_OURS = ("engine_python", "engine_args", "env", "engine_timeout")
_NOT_WITH_ONE = ("device_map", "offload_folder", "rank_timeout")


@dataclass(frozen=True)
class EngineOptions:
    """What the command line says of an engine that is to run the target; `engine` is None where none is."""

    engine: str | None
    engine_python: str | None
    engine_args: str
    env: Mapping[str, str]
    engine_timeout: int

    def chosen(self, context: click.Context, target: TargetOptions) -> Engine | None:
        """None: transformers runs the target. Raises UsageError for an option that the one who runs it does not take,
        and for what an engine must be told and is not."""
        from drafter_audit.recording.engine.job import Engine

        if self.engine is None:
            _refuse(context, _OURS, "it says how an engine is started", "add --engine vllm")
            return None
        _refuse(context, _NOT_WITH_ONE, "it says how transformers runs a target", "say it in --engine-args")
        if self.engine_python is None:
            mend = "name it, such as vllm/bin/python"
            raise UsageError("which Python has the engine is not said", "--engine-python", mend)
        if Rank.here().size > 1:
            mend = "leave it out, and say how many in --engine-args"
            raise UsageError("an engine starts its own ranks", "torchrun", mend)
        trusted = ("--trust-remote-code",) if target.trust_remote_code else ()
        arguments = (*trusted, *_split(self.engine_args))
        return Engine(self.engine_python, arguments, self.env, float(self.engine_timeout), self.engine)


def engine_options(command: Callable[..., object]) -> Callable[..., object]:
    """--engine and how it is started, as one argument `engine: EngineOptions`."""
    return gathered(command, EngineOptions, "engine", _OPTIONS)


def _refuse(context: click.Context, names: Sequence[str], what: str, mend: str) -> None:
    for name in names:
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise UsageError(what, f"--{name.replace('_', '-')}", mend)


def _split(text: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise UsageError(f"it cannot be read: {error}", "--engine-args", "quote it as for a shell") from error


def _variables(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    pairs = [each.partition("=") for each in given]
    if not all(name and mark for name, mark, _ in pairs):
        raise UsageError("no variable with its value", "--env", "write NAME=VALUE, such as NCCL_PROTO=LL")
    return {name: value for name, _, value in pairs}


_OPTIONS = (
    click.option(
        "--engine",
        type=click.Choice(["vllm"]),
        help="Who runs the target: vLLM, for one too large for transformers, in an environment of its own. "
        "[default: transformers]",
    ),
    click.option("--engine-python", metavar="FILE", help="The Python of the environment that has the engine."),
    click.option(
        "--engine-args",
        metavar="TEXT",
        default="",
        help="More for the engine, as its server takes it: '--tensor-parallel-size 8'.",
    ),
    click.option(
        "--env",
        metavar="NAME=VALUE",
        multiple=True,
        callback=_variables,
        help="A variable of the engine's environment; may be repeated.",
    ),
    click.option(
        "--engine-timeout",
        metavar="SECONDS",
        type=click.IntRange(min=1),
        default=3600,
        show_default=True,
        help="How long the engine may take to load the target, and to answer one prompt.",
    ),
)
