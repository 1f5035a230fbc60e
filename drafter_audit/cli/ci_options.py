"""How `check` tells a CI server what it found."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from drafter_audit.cli.options import gathered
from drafter_audit.errors import AuditError
from drafter_audit.ranks import Rank

if TYPE_CHECKING:
    from drafter_audit.check.job import Job
    from drafter_audit.check.row import Result

Tell = Callable[["Result", "Sequence[Job]"], None]


@dataclass(frozen=True)
class CiOptions:
    """`junit` is a file to write."""

    junit: str | None
    github: bool

    @contextmanager
    def telling(self) -> Iterator[Tell]:
        """A function that tells of a result. An error that comes before that is told too, and goes on. Of several ranks
        the first alone tells."""
        from drafter_audit.report.github import Runner
        from drafter_audit.report.junit import check_writable, write_junit

        runner = Runner.here() if self.github and Rank.here().first else None
        if runner is not None:
            runner.begin()

        def tell(result: Result, jobs: Sequence[Job]) -> None:
            if self.junit is not None:
                write_junit(result, self.junit)
            if runner is not None:
                runner.end(result, {job.name: Path(job.ref) for job in jobs})

        try:
            if self.junit is not None:
                check_writable(self.junit)
            yield tell
        except AuditError as error:
            if runner is not None:
                runner.fail(error)
            raise


def ci_options(command: Callable[..., object]) -> Callable[..., object]:
    """--junit and --github, as one argument `ci: CiOptions`."""
    return gathered(command, CiOptions, "ci", _OPTIONS)


_OPTIONS = (
    click.option(
        "--junit", metavar="FILE", type=click.Path(dir_okay=False), help="Also write JUnit XML, for any CI server."
    ),
    click.option(
        "--github",
        is_flag=True,
        help="In a step of GitHub Actions: also annotations, job summary and outputs.",
    ),
)
