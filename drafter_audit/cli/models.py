"""drafter-audit models"""

from __future__ import annotations

import click

from drafter_audit.cli.options import complete_bundled, output_options


@click.command()
@click.argument("name", required=False, shell_complete=complete_bundled)
@click.option("--target", metavar="ORG/NAME", help="Only the drafters made for this target.")
@output_options
@click.pass_context
def models(context: click.Context, name: str | None, target: str | None, style: str, output: str | None) -> None:
    """List the published drafters and targets whose facts travel with the tool, or show one.

    Each NAME can stand for a REF in the other commands; nothing is fetched then.

    \b
    drafter-audit models
    drafter-audit models aq-medai-kimi-k2-instruct-eagle3
    drafter-audit models --target moonshotai/Kimi-K2.5
    """
    from drafter_audit.errors import UsageError
    from drafter_audit.facts import registry
    from drafter_audit.report.models_view import models_document, models_result
    from drafter_audit.report.sink import emit

    if name is not None and target is not None:
        raise UsageError("NAME and --target were both given", "drafter-audit models", "give one of them")
    records: tuple[registry.Record, ...]
    if name is not None:
        records = (registry.find(name) or registry.load(name),)
    elif target is not None:
        records = registry.drafters_of(target)
    else:
        records = tuple(registry.load(known) for known in registry.names())
    emit(
        models_document(records, whole=name is not None),
        models_result(records),
        style=style,
        output=output,
        command=context.obj,
    )
