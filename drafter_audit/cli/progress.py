"""How far a long read or run is: a bar on stderr, only where that is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import click

from drafter_audit.errors import escape
from drafter_audit.ranks import Rank

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


@contextmanager
def watch_prompts(label: str, total: int) -> Iterator[Callable[[int], None]]:
    """Takes how many of `total` prompts are done. Of several ranks the first shows it."""
    if not (sys.stderr.isatty() and Rank.here().first):
        yield lambda _: None
        return
    with click.progressbar(length=total, label=label, file=sys.stderr, show_pos=True) as bar:
        yield lambda done: bar.update(done - bar.pos)


@contextmanager
def watch_steps(label: str) -> Iterator[Callable[[int, int], None]]:
    """Takes how much of how much is done, which may begin anew: a line that is written over."""
    if not (sys.stderr.isatty() and Rank.here().first):
        yield lambda _, __: None
        return
    yield lambda done, total: click.echo(f"\r{label} {done}/{total}\x1b[K", nl=False, err=True)
    click.echo("\r\x1b[K", nl=False, err=True)


def waiting() -> Callable[[float, float, str], None]:
    """How long a server has been loading, and the last thing it said: a line that is written over; once a minute where
    stderr is no terminal, so that the log of a night says that it goes on."""
    minutes = 0

    def watch(waited: float, limit: float, last_line: str) -> None:
        nonlocal minutes
        told = f"loading for {waited:.0f} s of at most {limit:.0f} s"
        if sys.stderr.isatty():
            click.echo(f"\r{told}: {escape(last_line)[:80]}\x1b[K", nl=False, err=True)
        elif waited >= 60 * (minutes + 1):
            minutes = int(waited // 60)
            click.echo(f"note: {told}", err=True)

    return watch


def _label(plan: Plan) -> str:
    from drafter_audit.report.numbers import size

    return f"Comparing weights, {size(plan.remote)} from the Hub" if plan.remote else "Comparing weights"
