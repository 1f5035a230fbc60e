"""drafter-audit compare"""

from __future__ import annotations

import click

from drafter_audit.cli.options import complete_reference, offline_option, output_options, target_option


@click.command()
@click.argument("refs", metavar="REF REF [REF]...", shell_complete=complete_reference, nargs=-1, required=True)
@target_option
@click.option("--weights", is_flag=True, help="Also read every tensor, and say which differ and how.")
@click.option(
    "--exit-code",
    is_flag=True,
    help="Exit 1 if the drafters differ in meaning, as git diff does; with --weights, or in a weight.",
)
@offline_option
@output_options
@click.pass_context
def compare(
    context: click.Context,
    refs: tuple[str, ...],
    target: str | None,
    weights: bool,
    exit_code: bool,
    style: str,
    output: str | None,
) -> None:
    """Set two or more drafters side by side and say what the differences come to.

    Reads config files and weight headers; of weights a few rows with --target, all with --weights. The last REF is
    "ours" in the conclusions. A REF is a Hub repository (org/name, org/name@revision, hf://..., a pasted URL), a
    folder, a weight file or a bundled name.

    \b
    drafter-audit compare AQ-MedAI/Kimi-K2-Instruct-eagle3 ./ours
    drafter-audit compare aq-medai-kimi-k2-instruct-eagle3 ./ours --format markdown
    drafter-audit compare ./upstream ./fork --weights
    """
    from drafter_audit.audit.compare import compare as compare_drafters
    from drafter_audit.cli.progress import watch_reading
    from drafter_audit.errors import EXIT_CHECK_FAILED
    from drafter_audit.report.compare_view import compare_document
    from drafter_audit.report.sink import emit

    comparison = compare_drafters(refs, target=target, weights=weights, watch=watch_reading)
    emit(compare_document(comparison), comparison.to_dict(), style=style, output=output, command=context.obj)
    if exit_code and comparison.differs:
        context.exit(EXIT_CHECK_FAILED)
