"""drafter-audit lint"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, cast

import click

from drafter_audit.cli.options import complete_reference, named_engines, offline_option, output_options

if TYPE_CHECKING:
    from drafter_audit.audit.finding import Severity
    from drafter_audit.drafter.boundaries import Reading
    from drafter_audit.drafter.target import Level


@click.command()
@click.argument("drafters", metavar="[DRAFTER]...", shell_complete=complete_reference, nargs=-1)
@click.option(
    "--target", metavar="REF", shell_complete=complete_reference, help="The target model, over what files say."
)
@click.option(
    "--engine",
    "engines",
    metavar="NAME[@VERSION]",
    multiple=True,
    help="An engine whose treatment of the drafter is judged: sglang, vllm, tensorrt-llm, llama.cpp, or all. Several "
    "by comma or by repetition.",
)
@click.option(
    "--reading",
    type=click.Choice(("output_of_layer", "boundary")),
    help="What the layer ids mean, where you know: the outputs of layers, or boundaries.",
)
@click.option(
    "--level",
    type=click.Choice(("drafter", "target_config", "target_headers", "target_rows")),
    default="target_rows",
    show_default=True,
    help="How far to read: nothing of the target, its config, shapes of its embedding and head, rows of them.",
)
@click.option(
    "--fail-on",
    type=click.Choice(("error", "warning", "info", "never")),
    default="error",
    show_default=True,
    help="Exit 1 at a finding of this severity or a graver one.",
)
@click.option(
    "--write-config",
    "folder",
    metavar="DIR",
    help="Write the config.json for the one engine named into DIR, a new folder; other files are linked, hidden ones "
    "left out.",
)
@offline_option
@output_options
@click.pass_context
def lint(
    context: click.Context,
    drafters: tuple[str, ...],
    target: str | None,
    engines: tuple[str, ...],
    reading: str | None,
    level: str,
    fail_on: str,
    folder: str | None,
    style: str,
    output: str | None,
) -> None:
    """Say what is wrong with a drafter, and what each engine would really do with it, without running it.

    Reads config files and weight headers, and a few rows with --target. Without a DRAFTER: the one in the current
    folder, else those that drafter-audit.toml or pyproject.toml list. Exits 1 where a finding is as grave as --fail-on.

    \b
    drafter-audit lint ./ours
    drafter-audit lint ./ours --target moonshotai/Kimi-K2.5 --engine sglang@0.5.3,vllm
    drafter-audit lint ./ours --engine vllm --write-config ./ours-vllm
    """
    from drafter_audit.audit.lint import lint as lint_drafter
    from drafter_audit.audit.written_config import config_for
    from drafter_audit.cli.here import named_or_here
    from drafter_audit.errors import EXIT_CHECK_FAILED
    from drafter_audit.report.folder import check_folder, new_folder
    from drafter_audit.report.lint_view import lint_document, lint_result
    from drafter_audit.report.sink import emit

    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # numpy's threads only spin, over the few rows that are read
    named, refs = named_engines(engines), named_or_here(drafters)
    if folder is not None:
        _check_alone(refs)
        check_folder(folder, output)
    results = [
        lint_drafter(
            ref, target=target, engines=named, reading=cast("Reading | None", reading), level=cast("Level", level)
        )
        for ref in refs
    ]
    written = None if folder is None else config_for(results[0], folder)
    with nullcontext() if written is None else new_folder(written):
        emit(
            lint_document(results, written),
            lint_result(results, written),
            style=style,
            output=output,
            command=context.obj,
        )
    if fail_on != "never" and any(result.reaches(cast("Severity", fail_on)) for result in results):
        context.exit(EXIT_CHECK_FAILED)


def _check_alone(refs: Sequence[str]) -> None:
    from drafter_audit.errors import UsageError

    if len(refs) != 1:
        where = f"--write-config with {len(refs)} drafters"
        raise UsageError("a config is written for one drafter", where, "name one DRAFTER")
