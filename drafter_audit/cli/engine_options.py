"""Options of the commands that start a serving engine, in an environment of its own, and of those that measure one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from drafter_audit.cli.options import Finite, gathered
from drafter_audit.cli.shown import pairs
from drafter_audit.errors import UsageError

if TYPE_CHECKING:
    from drafter_audit.bench.run import Launch
    from drafter_audit.bench.wire import Start, Wire
    from drafter_audit.drafter.spec import DrafterSpec
    from drafter_audit.measure.shape import Shape

ENGINES = ("vllm", "sglang")


@dataclass(frozen=True)
class EngineOptions:
    """What the command line says of the engine; `engine` is None where none is meant."""

    engine: str | None
    engine_python: str | None
    engine_args: tuple[str, ...]
    env: Mapping[str, str]
    start_timeout: float
    api_key_env: str | None

    @property
    def api_key(self) -> str | None:
        """Raises UsageError where the variable that is named holds none, or what no header can hold."""
        import os

        if self.api_key_env is None:
            return None
        key = os.environ.get(self.api_key_env, "").strip()
        if not (key.isascii() and key.isprintable() and key):
            raise UsageError("no API key in that variable", f"--api-key-env {self.api_key_env}", "set and export it")
        return key

    @property
    def wire(self) -> Wire:
        """Raises UsageError where --engine is not given."""
        from drafter_audit.bench.names import wire_of

        if self.engine is None:
            raise UsageError("no engine is named", "--engine", f"name one of {', '.join(ENGINES)}")
        return wire_of(self.engine)  # type: ignore[arg-type]

    def start(self, spec: DrafterSpec, target: str, shape: Shape | None) -> Start:
        """A server on a free port, one for plain decoding where there is no `shape`. Raises UsageError without
        --engine-python, and where that is no program."""
        from drafter_audit.bench.launching import free_port
        from drafter_audit.bench.questions import method_of, served
        from drafter_audit.bench.wire import Start

        if self.engine_python is None:
            mend = "name the Python of the engine's own environment, such as /opt/sglang/bin/python"
            raise UsageError("a server cannot be started", "--engine-python", mend)
        return Start(
            program(self.engine_python),
            served(target),
            served(spec.ref),
            method_of(spec),
            shape,
            free_port(),
            words(self.engine_args),
        )

    def launch(self, logs: Path, env: Mapping[str, str] | None = None) -> Launch:
        from drafter_audit.bench.run import Launch

        return Launch({**self.env, **(env or {})}, logs, self.start_timeout, self.api_key)


def engine_options(*, required: bool) -> Callable[[Callable[..., object]], Callable[..., object]]:
    """--engine and how to start it, as one argument `engine: EngineOptions`."""

    options = (_engine(required), *STARTED_BY, _START_TIMEOUT, _API_KEY)
    return lambda command: gathered(command, EngineOptions, "engine", options)


def variables(context: click.Context, param: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    """`K=V` of several options, as click's callback."""
    return dict(_pair(context, param, each) for each in given)


def _pair(context: click.Context, param: click.Parameter, text: str) -> tuple[str, str]:
    name, is_given, value = text.partition("=")
    if not is_given or not name.strip():
        raise click.BadParameter(f"{text!r} is no variable: write NAME=VALUE", context, param)
    return name.strip(), value


def env_sets(
    context: click.Context, param: click.Parameter, given: tuple[str, ...]
) -> tuple[tuple[str, dict[str, str]], ...]:
    """`name=K=V,K=V` of several options, as click's callback. A value may hold commas only in front of no `K=`."""
    found = tuple(_env_set(context, param, each) for each in given)
    names = [name for name, _ in found]
    if len(set(names)) < len(names) or NO_VARIABLES in names:
        raise click.BadParameter(f"each set needs a name of its own, and not {NO_VARIABLES!r}", context, param)
    return found


_LONGEST_NAME = 50
"""Letters of a set's name: it names files."""

NO_VARIABLES = "default"
"""The set that is always there: the environment as it is."""


def _env_set(context: click.Context, param: click.Parameter, text: str) -> tuple[str, dict[str, str]]:
    name, _, rest = text.partition("=")
    is_name = name.replace("-", "").replace("_", "").replace(".", "").isalnum() and len(name) <= _LONGEST_NAME
    if not is_name or not rest:
        raise click.BadParameter(f"{text!r} is no set: write name=KEY=VALUE,KEY=VALUE", context, param)
    return name, dict(_pair(context, param, part) for part in pairs(rest))


def program(python: str) -> str:
    """`python` as it was given. Raises UsageError where that is nothing that can be run, before anything is begun."""
    import shutil

    if shutil.which(python) is None:
        mend = "name the Python of the engine's environment"
        raise UsageError("it cannot be started: no program that runs here", python, mend)
    return python


def words(arguments: Sequence[str]) -> tuple[str, ...]:
    """The words of --engine-args. Raises UsageError for what no shell would read."""
    import shlex

    try:
        return tuple(word for each in arguments for word in shlex.split(each))
    except ValueError as error:
        raise UsageError(f"no arguments: {error}", "--engine-args", "quote them as for a shell") from error


def _engine(required: bool) -> Callable[[Callable[..., object]], Callable[..., object]]:
    also = "" if required else " Each cell is then a server, started and measured."
    return click.option(
        "--engine", type=click.Choice(ENGINES), required=required, help=f"The serving engine that is measured.{also}"
    )


STARTED_BY = (
    click.option(
        "--engine-python",
        metavar="PATH",
        envvar="DRAFTER_AUDIT_ENGINE_PYTHON",
        help="The Python of the engine's own environment, to start it with; or the variable "
        "DRAFTER_AUDIT_ENGINE_PYTHON.",
    ),
    click.option(
        "--engine-args",
        metavar="ARGS",
        multiple=True,
        help="Arguments of the engine's own, quoted as one: '--tensor-parallel-size 8'.",
    ),
    click.option(
        "--env", metavar="K=V", multiple=True, callback=variables, help="A variable that the engine is started with."
    ),
)
"""--engine-python, --engine-args and --env."""

_START_TIMEOUT = click.option(
    "--start-timeout",
    metavar="SECONDS",
    type=Finite(min=0, min_open=True),
    default=3600.0,
    show_default=True,
    help="How long a server may take to load.",
)

_API_KEY = click.option(
    "--api-key-env",
    metavar="NAME",
    help="The variable of this command's own that holds the API key which the server asks for.",
)
