"""Options of the commands that let a serving engine run the target, in an environment of its own."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from drafter_audit.cli.target_options import TargetOptions
from drafter_audit.errors import UsageError
from drafter_audit.ranks import Rank

if TYPE_CHECKING:
    from drafter_audit.recording.engine.job import Engine

_OURS = ("engine_python", "engine_args", "env", "engine_timeout")
_NOT_WITH_ONE = ("device_map", "offload_folder", "rank_timeout")


def engine_options(command: Callable[..., object]) -> Callable[..., object]:
    """--engine and how it is started. The command gets all of them as one `engine: Engine | None`."""

    @wraps(command)
    def gathered(*arguments: object, **given: object) -> object:
        named, python, args, env, timeout = (given.pop(name) for name in ("engine", *_OURS))
        context, target = click.get_current_context(), given["target"]
        assert isinstance(target, TargetOptions)
        engine = None if named is None else _engine(context, python, args, env, timeout, target)  # type: ignore[arg-type]
        if engine is None:
            _refuse(context, _OURS, "it says how an engine is started", "add --engine vllm")
        return command(*arguments, engine=engine, **given)

    wrapped: Callable[..., object] = gathered
    for option in reversed(_OPTIONS):
        wrapped = option(wrapped)
    return wrapped


def _engine(
    context: click.Context, python: str | None, args: str, env: tuple[str, ...], timeout: int, target: TargetOptions
) -> Engine:
    """Raises UsageError for what an engine does not take."""
    from drafter_audit.recording.engine.job import Engine

    if python is None:
        raise UsageError(
            "which Python has the engine is not said", "--engine-python", "name it, such as vllm/bin/python"
        )
    if Rank.here().size > 1:
        raise UsageError(
            "an engine starts its own ranks", "torchrun", "leave it out, and say how many in --engine-args"
        )
    _refuse(context, _NOT_WITH_ONE, "it says how transformers runs a target", "say it in --engine-args, to the engine")
    trusted = ("--trust-remote-code",) if target.trust_remote_code else ()
    pairs = [each.partition("=") for each in env]
    if not all(name and mark for name, mark, _ in pairs):
        raise UsageError("no variable with its value", "--env", "write NAME=VALUE, such as NCCL_PROTO=LL")
    return Engine(python, (*trusted, *_split(args)), {name: value for name, _, value in pairs}, float(timeout))


def _split(text: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise UsageError(f"it cannot be read: {error}", "--engine-args", "quote it as for a shell") from error


def _refuse(context: click.Context, names: tuple[str, ...], what: str, mend: str) -> None:
    for name in names:
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise UsageError(what, f"--{name.replace('_', '-')}", mend)


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
        "--env", metavar="NAME=VALUE", multiple=True, help="A variable of the engine's environment; may be repeated."
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
