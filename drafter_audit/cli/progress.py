"""What a long read says on stderr: how much it will fetch, and how far it is. A bar only where stderr is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from drafter_audit.audit.weights import Plan


@contextmanager
def watch_reading(plan: Plan) -> Iterator[Callable[[int], None]]:
    """Announces what comes from the Hub, then takes the bytes of each read."""
    from drafter_audit.report.numbers import size

    if plan.remote:
        click.echo(f"Reading {size(plan.remote)} ({plan.remote} bytes) of weights from the Hub.", err=True)
    if not plan.total or not sys.stderr.isatty():
        yield lambda _: None
        return
    with click.progressbar(length=plan.total, label="Comparing weights", file=sys.stderr) as bar:
        yield bar.update
