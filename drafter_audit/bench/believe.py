"""Whether a server is the one that was asked for, and its acceptance real: what it says is checked, what it does not
say is listed."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from drafter_audit.bench.http import Server
from drafter_audit.bench.listener import listener, telling
from drafter_audit.bench.wire import Served, Told, Wire, understood
from drafter_audit.errors import ServerError
from drafter_audit.measure.shape import Shape
from drafter_audit.sources.reference import is_commit

_CACHED = re.compile(r"models--([^/]+)--([^/]+)/snapshots/([0-9a-f]{40}\b)?")


@dataclass(frozen=True)
class Expected:
    """What the user asked for, in the words of the server: with `plain` decoding without the drafter, else rounds of
    `shape`, None where any will do, of `most_steps` at most."""

    target: Served
    drafter: Served
    shape: Shape | None
    plain: bool = False
    most_steps: int | None = None


def told_by(wire: Wire, server: Server) -> Told:
    """What the server says of itself; of one on this machine also what its process was started with."""
    with understood(wire.name, server.url):
        told = wire.told(server)
    seen = listener(server.port, wire.name) if server.is_local else None
    if seen is None:
        return told
    args = told.args or seen.args
    return replace(
        told,
        args=args,
        drafter=told.drafter or wire.drafter_in(seen.args),
        env={**telling(seen.env), **(told.env or {})},
        simulated=told.simulated or wire.simulated(args, seen.env),
        simulation_known=True,
    )


def check(told: Told, expected: Expected, where: str) -> tuple[str, ...]:
    """What of it the server leaves open, in words.

    Raises ServerError where its acceptance is simulated, where it runs another model or shape than asked, and where it
    does not speculate although it should, or does although it should not.
    """
    wrong = next(_contradictions(told, expected), None)
    if wrong is not None:
        raise ServerError(wrong[0], where, wrong[1])
    return tuple(_left_open(told, expected))


def _contradictions(told: Told, expected: Expected) -> Iterator[tuple[str, str]]:
    plain = expected.plain
    if told.simulated:
        yield f"its acceptance is simulated: {told.simulated}", "start it without that; such figures measure no drafter"
    if told.target is not None and not same_model(told.target, expected.target.name):
        yield (
            f"it serves {told.target}, not {expected.target.name}",
            "name its target with --target, or what it calls that with --served-target",
        )
    if plain and told.steps:
        yield "it speculates, and plain decoding was asked for", "start it without a drafter"
    if not plain and told.steps == 0:
        yield "speculation is off", "start it with the drafter"
    if told.drafter is not None and not plain and not same_model(told.drafter, expected.drafter.name):
        yield (
            f"it drafts with {told.drafter}, not {expected.drafter.name}",
            "name its drafter, or what it calls that with --served-drafter",
        )
    for what, asked, served in _revisions(told, expected):
        if served != asked and is_commit(asked) and is_commit(served):
            yield f"its {what} is of commit {served}, not {asked}", "start it with the one that is asked for"
    if expected.most_steps is not None and (told.steps or 0) > expected.most_steps:
        what = f"it runs {told.steps} steps, and the recording looks {expected.most_steps} tokens ahead"
        yield what, "record again with a longer --lookahead"
    if expected.shape is not None:
        yield from _other_shape(told, expected.shape)


def _other_shape(told: Told, shape: Shape) -> Iterator[tuple[str, str]]:
    asked = {"steps": shape.steps, "top-k": shape.topk, "tokens to verify": shape.num_draft_tokens}
    runs = {"steps": told.steps, "top-k": told.topk, "tokens to verify": told.num_draft_tokens}
    for name, value in asked.items():
        if value is not None and runs[name] is not None and runs[name] != value:
            yield f"it runs {runs[name]} {name}, not {value}", "leave the option out, or start it so"


def _left_open(told: Told, expected: Expected) -> Iterator[str]:
    plain = expected.plain
    if told.target is None:
        yield "which target it serves"
    if told.drafter is None and not plain:
        yield "which drafter it runs"
    for what, asked, served in _revisions(told, expected):
        if served != asked:
            yield f"whether its {what} is of revision {asked}"
    if not told.simulation_known and not plain:
        yield "whether its acceptance is simulated"


def _revisions(told: Told, expected: Expected) -> Iterator[tuple[str, str, str | None]]:
    """Of each model of which a revision is asked: which, that revision, and the one that is served."""
    models = [("target", expected.target, told.target, told.target_revision)]
    if not expected.plain:
        models.append(("drafter", expected.drafter, told.drafter, told.drafter_revision))
    for what, asked, name, revision in models:
        if asked.revision is not None:
            cached = _CACHED.search(name or "")
            yield what, asked.revision, (cached and cached[3]) or revision


def same_model(one: str, other: str) -> bool:
    """Whether two names are one model: equal, one folder, or a repository and its snapshot in the Hub's cache.

    >>> same_model("/cache/models--org--name/snapshots/0123abc", "org/name"), same_model("org/name", "org/other")
    (True, False)
    """
    return _plain(one) == _plain(other)


def _plain(name: str) -> str:
    cached = _CACHED.search(f"{name}/")
    if cached:
        return f"{cached[1]}/{cached[2]}"
    return os.path.realpath(name) if os.path.exists(name) else name.rstrip("/")
