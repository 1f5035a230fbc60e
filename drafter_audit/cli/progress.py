"""How far a long read is, and how much of it the Hub sends: a bar on stderr, only where that is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from drafter_audit.audit.weights import Plan


@contextmanager
def watch_reading(plan: Plan) -> Iterator[Callable[[int], None]]:
    """Takes the bytes of each read. The bar comes with the first: a read that fails at once leaves its error alone."""
    if not plan.total or not sys.stderr.isatty():
        yield lambda _: None
        return
    bar = click.progressbar(length=plan.total, label=_label(plan), file=sys.stderr)
    with ExitStack() as stack:

        def on_read(nbytes: int) -> None:
            if not bar.entered:
                stack.enter_context(bar)
            bar.update(nbytes)

        yield on_read


def _label(plan: Plan) -> str:
    from drafter_audit.report.numbers import size

    return f"Comparing weights, {size(plan.remote)} from the Hub" if plan.remote else "Comparing weights"
