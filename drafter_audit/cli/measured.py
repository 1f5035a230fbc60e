"""How a command ends whose answers measure nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import click

from drafter_audit.ranks import Rank

if TYPE_CHECKING:
    from drafter_audit.measure.loops import Ended


def end_unmeasured(context: click.Context, shown: Iterable[Sequence[Ended]]) -> None:
    """Exits with 3, and says why, where most answers of one of the results that were shown hit the cap or loop.

    Under torchrun rank 0 alone does: another rank's code would end it before it has written.
    """
    from drafter_audit.errors import EXIT_NOT_MEASURED
    from drafter_audit.measure.loops import why_not_measured
    from drafter_audit.report.sink import tell

    reasons = {reason for each in shown if (reason := why_not_measured(each)) is not None}
    for reason in sorted(reasons):
        tell(f"not measured: {reason}")
    if reasons and Rank.here().first:
        context.exit(EXIT_NOT_MEASURED)
