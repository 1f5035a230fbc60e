"""Options of the command that lets a serving engine run the target instead of transformers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from drafter_audit.cli.engine_options import STARTED_BY, program, words
from drafter_audit.cli.given import refuse
from drafter_audit.cli.options import gathered
from drafter_audit.cli.target_options import TargetOptions
from drafter_audit.errors import UsageError
from drafter_audit.ranks import Rank

if TYPE_CHECKING:
    from drafter_audit.recording.engine.job import Engine

_OURS = ("engine_python", "engine_args", "env", "engine_timeout")
_NOT_WITH_ONE = ("device_map", "offload_folder", "rank_timeout")


@dataclass(frozen=True)
class RecordingEngine:
    """What the command line says of the engine that is to run the target; `engine` is None where none is."""

    engine: str | None
    engine_python: str | None
    engine_args: tuple[str, ...]
    env: Mapping[str, str]
    engine_timeout: int

    def chosen(self, context: click.Context, target: TargetOptions) -> Engine | None:
        """None: transformers runs the target. Raises UsageError for an option that the one who runs it does not take,
        and for what an engine must be told and is not."""
        from drafter_audit.recording.engine.job import Engine

        if self.engine is None:
            refuse(context, _OURS, "says how an engine is started, and none is", "add --engine vllm")
            return None
        refuse(context, _NOT_WITH_ONE, "says how transformers runs a target", "say it in --engine-args")
        if self.engine_python is None:
            mend = "name it, such as vllm/bin/python"
            raise UsageError("which Python has the engine is not said", "--engine-python", mend)
        if Rank.here().size > 1:
            mend = "leave it out, and say how many in --engine-args"
            raise UsageError("an engine starts its own ranks", "torchrun", mend)
        trusted = ("--trust-remote-code",) if target.trust_remote_code else ()
        arguments = (*trusted, *words(self.engine_args))
        return Engine(program(self.engine_python), arguments, self.env, float(self.engine_timeout), self.engine)


def recording_engine(command: Callable[..., object]) -> Callable[..., object]:
    """--engine and how it is started, as one argument `engine: RecordingEngine`."""
    return gathered(command, RecordingEngine, "engine", (_ENGINE, *STARTED_BY, _TIMEOUT))


_ENGINE = click.option(
    "--engine",
    type=click.Choice(["vllm"]),
    help="Who runs the target: vLLM, for one too large for transformers, in an environment of its own. "
    "[default: transformers]",
)
_TIMEOUT = click.option(
    "--engine-timeout",
    metavar="SECONDS",
    type=click.IntRange(min=1),
    default=3600,
    show_default=True,
    help="How long the engine may take to load the target, and to answer one prompt.",
)
