"""How a command ends whose answers measure nothing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from drafter_audit.measure.acceptance import Acceptance


def end_unmeasured(context: click.Context, shown: Iterable[Acceptance]) -> None:
    """Exits with 3, and says why, where most answers of a result that was shown hit the cap or loop."""
    from drafter_audit.errors import EXIT_NOT_MEASURED
    from drafter_audit.measure.loops import why_not_measured
    from drafter_audit.report.sink import tell

    reasons = {reason for each in shown if (reason := why_not_measured(each.per_prompt)) is not None}
    for reason in sorted(reasons):
        tell(f"not measured: {reason}")
    if reasons:
        context.exit(EXIT_NOT_MEASURED)
