"""drafter-audit params"""

from __future__ import annotations

import click

from drafter_audit.cli.options import complete_reference, offline_option, output_options, target_option


@click.command()
@click.argument("refs", metavar="[REF]...", shell_complete=complete_reference, nargs=-1)
@click.option("--exclude-frozen", is_flag=True, help="Leave frozen tensors out of the table; totals keep them.")
@click.option(
    "--by", type=click.Choice(("tensor", "module", "role")), default="tensor", show_default=True, help="What a row is."
)
@target_option
@offline_option
@output_options
@click.pass_context
def params(
    context: click.Context,
    refs: tuple[str, ...],
    exclude_frozen: bool,
    by: str,
    target: str | None,
    style: str,
    output: str | None,
) -> None:
    """Count parameters: trainable, frozen, borrowed, with the reason for each tensor.

    Counts any checkpoint, targets too. Without a REF: the drafter in the current folder, else those that
    drafter-audit.toml or pyproject.toml list, else every bundled drafter whose config implies a count.

    \b
    drafter-audit params --exclude-frozen
    drafter-audit params AQ-MedAI/Kimi-K2-Instruct-eagle3 --by role --format json
    """
    from typing import cast

    from drafter_audit.audit.params import By, count_params
    from drafter_audit.cli.here import Meant, default_refs
    from drafter_audit.drafter.open import open_drafter
    from drafter_audit.report.params_view import params_document, params_result
    from drafter_audit.report.sink import emit, tell

    meant = Meant(refs) if refs else default_refs()
    result = count_params((open_drafter(ref, target=target) for ref in meant.refs), exclude_frozen=exclude_frozen)
    shown_by = cast(By, by)
    emit(
        params_document(result, shown_by),
        params_result(result, shown_by),
        style=style,
        output=output,
        command=context.obj,
    )
    if meant.note:
        tell(meant.note)
