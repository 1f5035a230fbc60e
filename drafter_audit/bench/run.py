"""A server is believed or refused, asked every prompt, one at a time, and counted."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from drafter_audit.bench.believe import Expected, check, told_by
from drafter_audit.bench.counting import counted, counts_of
from drafter_audit.bench.http import Server
from drafter_audit.bench.launching import deaths_told, wait_until_healthy
from drafter_audit.bench.listener import telling
from drafter_audit.bench.metrics import Counters
from drafter_audit.bench.result import EngineFacts, EngineResult
from drafter_audit.bench.wire import Answer, Question, Start, Told, Wire, understood
from drafter_audit.decode.result import Provenance
from drafter_audit.errors import ServerError, UsageError
from drafter_audit.measure.costs import check_reachable
from drafter_audit.measure.shape import Shape, shape_of
from drafter_audit.process import Running, Watch, check_installed, running
from drafter_audit.secrets import is_secret, without_secrets

_SETTLE_S = 5.0
"""How long counters may lag behind an answer."""

WARM_UP_TOKENS = 8


@dataclass(frozen=True)
class Launch:
    """How servers are started: the user's own environment variables, where logs are kept, how long loading may take,
    and the key that requests must hold."""

    env: Mapping[str, str]
    logs: Path
    timeout_s: float
    api_key: str | None = None


@dataclass(frozen=True)
class Asked:
    """What a server is asked, and with what it is measured; `watch` takes how many prompts are done."""

    questions: tuple[Question, ...]
    provenance: Provenance
    what_if: tuple[float, ...] = ()
    notes: tuple[str, ...] = ()
    watch: Callable[[int], None] = lambda _: None


@dataclass(frozen=True)
class Up:
    """A server that answers; `started` where it was started here, in `start_s`."""

    server: Server
    started: Running | None = None
    start_s: float | None = None
    command: tuple[str, ...] | None = None
    env: Mapping[str, str] | None = None


@contextmanager
def attached(url: str, *, api_key: str | None = None, answer_s: float = 600.0) -> Iterator[Up]:
    """A server that runs already. Raises ServerError where it does not answer."""
    _check_installed()
    server = Server(url, api_key=api_key, answer_s=answer_s)
    try:
        server.check_health()
        yield Up(server)
    finally:
        server.close()


@contextmanager
def launched(wire: Wire, start: Start, how: Launch, log: str, watch: Watch) -> Iterator[Up]:
    """Starts a server, waits for it, and stops it at the end. What goes wrong meanwhile is told with its last error.

    Raises ServerError; UsageError for arguments that are not the user's to give.
    """
    _check_installed()
    command = checked_command(wire, start)
    added = {**wire.environment(), **how.env}
    env = {**os.environ, **added}
    simulated = wire.simulated(start.args, env)
    if simulated and start.shape:
        mend = "start it without that; such figures measure no drafter"
        raise ServerError(f"its acceptance would be simulated: {simulated}", " ".join(command[:3]), mend)
    server = Server(f"http://127.0.0.1:{start.port}", api_key=how.api_key)
    try:
        with running(command, how.logs / f"{log}.log", added) as process, deaths_told(process):
            waited = wait_until_healthy(process, server.is_healthy, how.timeout_s, watch)
            yield Up(server, process, waited, tuple(command), telling(env))
    finally:
        server.close()


def measure(wire: Wire, up: Up, expected: Expected, asked: Asked) -> EngineResult:
    """Raises ServerError where the server is not the one asked for, or its counts are not to be had or believed, and
    UsageError for a what-if that its rounds cannot reach."""
    server = up.server
    told = told_by(wire, server)
    if up.started:  # what we started it with, it has
        told = replace(told, args=up.command, env=up.env, simulation_known=True)
    left_open = check(told, expected, server.url)
    shape = _shape(told, expected, server.url)
    for value in asked.what_if:
        check_reachable(value, shape.deepest if shape else 0)
    with understood(wire.name, server.url):
        answers = tuple(_answers(wire, server, asked, told.served_as or expected.target.name, shape))
    if shape and any(answer.counts is None for answer in answers):
        what = "a metric is missing: neither its answers nor its counters tell how many rounds were run"
        raise ServerError(what, server.url, wire.without_counts())
    facts = EngineFacts(
        wire.name,
        told.version,
        server.url,
        None if told.args is None else without_secrets(told.args),
        None if told.env is None else {name: value for name, value in told.env.items() if not is_secret(name)},
        launched=up.started is not None,
        start_s=up.start_s,
        log=str(up.started.log) if up.started else None,
        not_verified=left_open,
    )
    ignored = wire.ignores(asked.questions[0])
    trusted = (f"the server does not tell {what}: taken on trust" for what in left_open)
    notes = (*asked.notes, *trusted, *([ignored] if ignored else []))
    target = replace(asked.provenance.target, dtype=told.dtype)
    provenance = replace(asked.provenance, target=target)
    return EngineResult(provenance, facts, counted(answers, shape, server.url), asked.what_if, notes)


def _answers(wire: Wire, server: Server, asked: Asked, model: str, shape: Shape | None) -> Iterator[Answer]:
    """Each prompt's answer with its counts: its own, else what the counters gained by it."""
    wire.ask(server, replace(asked.questions[0], max_new_tokens=WARM_UP_TOKENS), model)
    before = _settled_at_rest(wire, server) if shape else None
    for done, question in enumerate(asked.questions, 1):
        answer = wire.ask(server, question, model)
        if before is not None:
            after = _settled(wire, server, before, answer)
            answer = answer if answer.counts else replace(answer, counts=counts_of(after.since(before, server.url)))
            before = after
        asked.watch(done)
        yield answer


def _settled_at_rest(wire: Wire, server: Server) -> Counters | None:
    """The counters once two looks at them agree: the warm-up's may still be on their way."""
    last = wire.counters(server)
    until = time.monotonic() + _SETTLE_S
    while last is not None and time.monotonic() < until:
        time.sleep(0.05)
        now = wire.counters(server)
        if now == last:
            return last
        last = now
    return last


def _settled(wire: Wire, server: Server, before: Counters, answer: Answer) -> Counters:
    """The counters once they hold `answer`. Raises ServerError where they hold more: somebody else uses the server."""
    until = time.monotonic() + _SETTLE_S
    while True:
        now = wire.counters(server)
        if now is None:
            raise ServerError("its metrics are gone", server.url, "run it again, on a server that stays up")
        gained = now.since(before, server.url).tokens
        if gained == answer.tokens:
            return now
        if gained > answer.tokens:
            what = f"its counters rose by {gained} tokens for an answer of {answer.tokens}: somebody else uses it"
            raise ServerError(what, server.url, "run it on a server that nobody else uses")
        if time.monotonic() > until:
            what = f"its counters rose by {gained} tokens for an answer of {answer.tokens}"
            raise ServerError(what, server.url, "use a release of the engine whose counters follow its answers")
        time.sleep(0.02)


def _shape(told: Told, expected: Expected, where: str) -> Shape | None:
    """As the server tells it, else as asked; None for plain decoding. Raises ServerError where neither says the steps,
    or what it tells is no shape."""
    if expected.plain:
        return None
    asked = expected.shape
    steps = told.steps if told.steps is not None else (asked.steps if asked else None)
    if steps is None:
        raise ServerError("it does not tell its steps", where, "name them with --steps")
    topk = told.topk or (asked.topk if asked else 1)
    verified = told.num_draft_tokens or (asked.num_draft_tokens if asked else None)
    try:
        return shape_of(steps, topk, None if topk == 1 else verified)
    except UsageError as error:
        what = f"it tells a shape that cannot be: {error.what}"
        raise ServerError(what, where, "use a release of the engine") from error


def _check_installed() -> None:
    """Raises ModuleNotFoundError before a server is started that could not be stopped, or whose counters not read."""
    import prometheus_client  # noqa: F401

    check_installed()


def checked_command(wire: Wire, start: Start) -> list[str]:
    """The words that start a server. Raises UsageError for an argument that is set here: it would be given twice; and
    for what the engine does not take."""
    taken = [name for arg in start.args if (name := arg.partition("=")[0].replace("_", "-")) in wire.reserved]
    if taken:
        raise UsageError(f"{taken[0]} is set by this command", "--engine-args", "leave it out there")
    return wire.command(start)
