"""drafter-audit models"""

from __future__ import annotations

import click

from drafter_audit.cli.options import complete_bundled, output_options


@click.command()
@click.argument("name", required=False, shell_complete=complete_bundled)
@click.option("--target", metavar="ORG/NAME", help="Only the drafters made for this target.")
@click.option("--role", type=click.Choice(("drafter", "target")), help="Only the records of this role.")
@output_options
@click.pass_context
def models(
    context: click.Context, name: str | None, target: str | None, role: str | None, style: str, output: str | None
) -> None:
    """List the published drafters and targets whose facts travel with the tool, or show one.

    A NAME whose config is known can stand for a REF in the other commands; nothing is fetched then.

    \b
    drafter-audit models
    drafter-audit models --role target
    drafter-audit models aq-medai-kimi-k2-instruct-eagle3
    drafter-audit models --target moonshotai/Kimi-K2.5
    """
    from drafter_audit.errors import UsageError
    from drafter_audit.facts import pair, registry
    from drafter_audit.report.models_view import models_document, models_result
    from drafter_audit.report.sink import emit, tell

    if sum(given is not None for given in (name, target, role)) > 1:
        raise UsageError("more than one of NAME, --target and --role", "drafter-audit models", "give one of them")
    if name in pair.NAMES:
        mend = f"its files travel whole: drafter-audit params {name}"
        raise UsageError(f"no record describes {name!r}, of the reference pair", "drafter-audit models", mend)
    records: tuple[registry.Record, ...]
    if name is not None:
        records = (registry.find(name) or registry.load(name),)
    elif target is not None:
        records = registry.drafters_of(registry.load(target).repo if target in registry.names() else target)
    else:
        known = (registry.load(known) for known in registry.names())
        records = tuple(record for record in known if role in (None, record.role))
    emit(
        models_document(records, whole=name is not None),
        models_result(records),
        style=style,
        output=output,
        command=context.obj,
    )
    if not records:
        tell(f"no bundled drafter is made for {target!r}; drafter-audit models --role target lists the targets")
