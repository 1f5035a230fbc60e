"""The bars of `check` as options, which override those of drafter-audit.toml."""

from __future__ import annotations

from collections.abc import Callable

import click

from drafter_audit.cli.options import Finite, complete_reference, gathered, named_engines
from drafter_audit.facts.project import CheckEntry


def bar_options(command: Callable[..., object]) -> Callable[..., object]:
    """The command gets all of them as one `bars: CheckEntry`, None what is not given."""
    return gathered(command, CheckEntry, "bars", _OPTIONS, but=_OF_A_RUN)


_OF_A_RUN = ("prompts", "max_new_tokens")


def _engines(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...] | None:
    return tuple(named_engines(given)) if given else None


def _shares(context: click.Context, param: click.Parameter, text: str | None) -> tuple[float, ...] | None:
    if text is None:
        return None
    try:
        shares = tuple(float(part) for part in text.split(","))
    except ValueError:
        shares = (-1.0,)
    if not all(0 <= share <= 1 for share in shares):
        raise click.BadParameter(f"{text!r} are no shares: write 0.7,0.5,0.35", context, param)
    return shares


_OPTIONS: tuple[Callable[[Callable[..., object]], Callable[..., object]], ...] = (
    click.option(
        "--fail-on",
        type=click.Choice(("error", "warning", "info")),
        help="Fail at a finding of this severity or a graver one.  [default: error]",
    ),
    click.option(
        "--engine",
        "engines",
        metavar="NAME[@VERSION]",
        multiple=True,
        callback=_engines,
        help="Engines in use, as `lint` takes them: their treatment of the drafter is judged too.",
    ),
    click.option("--reference", metavar="REF", shell_complete=complete_reference, help="A drafter to be like."),
    click.option(
        "--same-architecture/--any-architecture",
        default=None,
        help="Fail where kind or shape are not the --reference's.",
    ),
    click.option(
        "--same-parameters/--any-parameters",
        default=None,
        help="Fail where other numbers of parameters are stored, or trained, than in the --reference.",
    ),
    click.option(
        "--wiring/--no-wiring",
        default=None,
        help="Search the recording for a better wiring, and fail unless the verdict is healthy.",
    ),
    click.option(
        "--min-accept-len",
        metavar="X",
        type=Finite(min=1),
        help="The least accept_len.  [default: 1.2, where one is measured]",
    ),
    click.option(
        "--min-per-position",
        metavar="LIST",
        callback=_shares,
        help="The least shares of rounds that accept the draft at each position, such as 0.7,0.5,0.35.",
    ),
    click.option(
        "--baseline",
        metavar="FILE",
        type=click.Path(dir_okay=False),
        help="The stored baseline.  [default: drafter-audit-baseline.json beside the config]",
    ),
    click.option(
        "--max-loss",
        metavar="X",
        type=Finite(min=0),
        help="The most accept_len that may be lost against the baseline.",
    ),
    click.option("--steps", metavar="N", type=click.IntRange(min=1), help="Tokens that a round drafts.  [default: 3]"),
    click.option("--live/--no-live", default=None, help="Decode live too, beside the target."),
    click.option(
        "--time-limit",
        metavar="SECONDS",
        type=Finite(min=0, min_open=True),
        help="End every process after that long; what was not measured by then is so reported.  [default: 3600]",
    ),
)
