"""drafter-audit: the command line. Each command is a thin file beside this one: parse, call, render."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import click

from drafter_audit import __version__
from drafter_audit.cli.commands import Commands
from drafter_audit.cli.shown import shown
from drafter_audit.errors import (
    EXIT_INTERRUPTED,
    EXIT_NOT_MEASURED,
    EXIT_OK,
    EXIT_USAGE,
    AuditError,
    CannotRunError,
    escape,
    lacks_memory,
)
from drafter_audit.ranks import Rank


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]}, invoke_without_command=True)
@click.version_option(__version__, prog_name="drafter-audit")
@click.pass_context
def cli(context: click.Context) -> None:
    """Audit EAGLE-3 drafters: what they are, how they compare, what in them is trained.

    Exit codes: 0 pass, 1 a check failed, 2 usage, 3 could not measure, 130 interrupted. Under torchrun every rank runs
    the target, and rank 0 writes.
    """
    name = context.invoked_subcommand
    if name is None:
        click.echo(context.get_help())
    elif not (Rank.here().first or _runs_target(name, context.obj)):
        context.exit()  # what runs no target, rank 0 does alone


def _runs_target(name: str, arguments: Sequence[str]) -> bool:
    from drafter_audit.cli.target_options import runs_target

    return runs_target(cli.get_command(None, name), arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. Failures print one line to stderr and nothing to stdout."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        with _memory_told():
            return _run(given)
    except AuditError as error:
        return _fail(str(error), error.exit_code)
    except ModuleNotFoundError as error:
        extra = _EXTRAS.get((error.name or "").partition(".")[0])
        if extra is None:
            raise
        mend = f"pip install 'drafter-audit[{extra}]'"
        return _fail(f"{error.name} is not installed, {_PROGRAM}, {mend}", EXIT_NOT_MEASURED)
    except click.exceptions.Exit as exit_:
        return exit_.exit_code
    except click.UsageError as error:
        return _fail(_usage(error), EXIT_USAGE)
    except (click.Abort, KeyboardInterrupt):
        return _fail("interrupted, before the result was written, run the command again", EXIT_INTERRUPTED)
    except BrokenPipeError:
        # The reader of stdout left, as `| head` does; what it wanted it has.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_OK


def _run(arguments: list[str]) -> int:
    """Click's own main adds to stderr on ^C and makes a closed pipe a failure, so it serves completion alone."""
    if _COMPLETION in os.environ:
        cli.main(arguments, prog_name=_PROGRAM)
    with cli.make_context(_PROGRAM, arguments, obj=shown(arguments)) as context:
        cli.invoke(context)
    return EXIT_OK


@contextmanager
def _memory_told() -> Iterator[None]:
    """Memory that runs out anywhere, while torch is imported too, leaves as an AuditError."""
    try:
        yield
    except (MemoryError, ImportError, OSError, RuntimeError) as error:
        if not lacks_memory(error):
            raise
        raise CannotRunError("too little memory", "this machine, or its limit (ulimit -v)", "give it more") from error


_PROGRAM = "drafter-audit"
_EXTRAS = {
    **dict.fromkeys(("accelerate", "torch", "transformers"), "run"),
    **dict.fromkeys(("prometheus_client", "psutil"), "bench"),
}
_COMPLETION = "_DRAFTER_AUDIT_COMPLETE"


def _usage(error: click.UsageError) -> str:
    where = error.ctx.command_path if error.ctx else "drafter-audit"
    message = error.format_message().rstrip(".").replace("\n", " ")
    return f"{escape(message)}, in {where}, see '{where} --help'"


def _fail(message: str, code: int) -> int:
    rank = Rank.here()
    click.echo(f"error: {message}" if rank.size == 1 else f"error: {rank}: {message}", err=True)
    return code


def _alone() -> int:
    try:
        return main()
    except Exception:  # a fault of the program's own, with its traceback: Python's own 1 would say that a check failed
        sys.excepthook(*sys.exc_info())
        return EXIT_NOT_MEASURED


def run() -> None:
    """The console script, as one process or as each of torchrun's."""
    if Rank.here().size == 1:
        sys.exit(_alone())
    try:
        with _memory_told():
            from drafter_audit.model.target.ranks import run_ranks
    except AuditError as error:
        sys.exit(_fail(str(error), error.exit_code))
    run_ranks(main)
