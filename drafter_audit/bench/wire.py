"""What an engine's own module gives: how it is started, what it says of itself, how it is asked and how it counts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Protocol

from drafter_audit.bench.http import Server
from drafter_audit.bench.metrics import Counters
from drafter_audit.errors import ServerError
from drafter_audit.measure.loops import loops
from drafter_audit.measure.shape import Shape

EngineName = Literal["vllm", "sglang"]


@dataclass(frozen=True)
class Served:
    """A model as an engine is told it: a folder or a repository, at a revision where one is named."""

    name: str
    revision: str | None = None


@dataclass(frozen=True)
class Start:
    """A server to start. `method` is the algorithm in the words of SPECULATIVE; no `shape` is plain decoding, without
    the drafter; `args` are the user's own."""

    python: str
    target: Served
    drafter: Served
    method: Literal["eagle3", "eagle"]
    shape: Shape | None
    port: int
    args: tuple[str, ...] = ()


@dataclass(frozen=True)
class Told:
    """What a server says of itself; None is what it does not say. `steps` is 0 where it does not speculate. `served_as`
    is what a request calls the target.

    `simulated` says in words how its acceptance is made up. `args` are its own settings as text, `env` the variables
    that decide how it runs. Raises ValueError for what is no name or number.
    """

    version: str | None = None
    served_as: str | None = None
    target: str | None = None
    target_revision: str | None = None
    drafter: str | None = None
    drafter_revision: str | None = None
    steps: int | None = None
    topk: int | None = None
    num_draft_tokens: int | None = None
    dtype: str | None = None
    simulated: str | None = None
    simulation_known: bool = False
    args: tuple[str, ...] | None = None
    env: Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        revisions = (self.target_revision, self.drafter_revision)
        for name in (self.version, self.served_as, self.target, self.drafter, self.dtype, *revisions):
            if name is not None and not isinstance(name, str):
                raise ValueError(f"{name!r} is no text")
        _check_counts(self.steps, self.topk, self.num_draft_tokens)


@dataclass(frozen=True)
class Question:
    """One prompt: `messages` of a chat, a `text` without template, or `token_ids`."""

    id: str
    category: str | None
    max_new_tokens: int
    temperature: float
    seed: int
    messages: Sequence[Mapping[str, str]] = ()
    text: str | None = None
    token_ids: tuple[int, ...] | None = None
    thinking: bool | None = None


@dataclass(frozen=True)
class Counts:
    """Of one answer or a whole run: rounds, and where told what they accepted and drafted. `histogram[j]` rounds
    accepted exactly j drafts. Raises ValueError for what is no count."""

    rounds: int
    accepted: int | None = None
    drafted: int | None = None
    histogram: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        _check_counts(self.rounds, self.accepted, self.drafted, *(self.histogram or ()))


@dataclass(frozen=True)
class Answer:
    """What came back for one prompt. `tokens` were emitted, the first of them `first_s` after the question; the
    `timed` ones after the first piece took `decode_s`. `ids` are None where the engine does not tell them, `counts`
    where the answer itself does not. `pieces` are the tokens of each piece as it came, empty where that is not told.
    Raises ValueError for what is no count or token."""

    id: str
    category: str | None
    tokens: int
    capped: bool
    first_s: float
    decode_s: float
    timed: int
    ids: tuple[int, ...] | None = None
    counts: Counts | None = None
    pieces: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        _check_counts(self.tokens, *self.pieces, *(self.ids or ()))

    @cached_property
    def degenerate(self) -> bool:
        """Whether it ends in a loop; False where its tokens are not told."""
        return self.ids is not None and loops(self.ids)

    @property
    def rounds(self) -> tuple[int, ...] | None:
        """What each round emitted, in order, where every piece after the prefill's was one round."""
        whole = self.counts is not None and len(self.pieces) == 1 + self.counts.rounds
        return self.pieces[1:] if whole and sum(self.pieces) == self.tokens else None


def _check_counts(*values: object) -> None:
    """Raises ValueError for a number that no count or token id can be; None is one that is not told."""
    for value in values:
        if value is not None and (type(value) is not int or value < 0):
            raise ValueError(f"{value!r} is no count")


class Wire(Protocol):
    """One engine, from outside. Everything raises ServerError."""

    @property
    def name(self) -> EngineName: ...

    @property
    def reserved(self) -> tuple[str, ...]:
        """Options of its start that `command` sets, so that a user's may not."""
        ...

    def command(self, start: Start) -> list[str]:
        """Raises UsageError for a shape or an argument that the engine does not take."""
        ...

    def environment(self) -> Mapping[str, str]:
        """Variables with which a server says what it is."""
        ...

    def simulated(self, args: Sequence[str], env: Mapping[str, str]) -> str | None:
        """How a start with these would make its acceptance up, in words; None where it would not."""
        ...

    def told(self, server: Server) -> Told: ...

    def ask(self, server: Server, question: Question, model: str) -> Answer: ...

    def counters(self, server: Server) -> Counters | None:
        """None where the server counts nothing that is of use here."""
        ...

    def drafter_in(self, args: Sequence[str]) -> str | None:
        """The drafter that a command line names; None where it names none."""
        ...

    def ignores(self, question: Question) -> str | None:
        """What of a question it takes no notice of, in words."""
        ...

    def without_counts(self) -> str:
        """What to change where neither answers nor counters tell of rounds."""
        ...


def without(args: Sequence[str], prefix: str) -> list[str]:
    """`args` without the options that begin with `prefix`, and without their values.

    >>> without(["--a", "--spec-x", "1", "--spec-y=2", "b"], "--spec-")
    ['--a', 'b']
    """
    kept, dropping = [], False
    for arg in args:
        if arg.startswith("-"):
            dropping = arg.startswith(prefix)
        elif dropping:
            dropping = False
            continue
        if not dropping:
            kept.append(arg)
        dropping = dropping and "=" not in arg
    return kept


def at(told: Mapping[str, Any] | None, *path: str) -> Any:  # noqa: ANN401 - a value of foreign JSON
    """The value under nested keys; None where any is missing."""
    value: Any = told
    for key in path:
        if not isinstance(value, Mapping):
            return None
        value = value.get(key)
    return value


@contextmanager
def understood(engine: EngineName, where: str) -> Iterator[None]:
    """What reading a payload raises that has another shape than the engine's, as a ServerError: whatever answers there
    is foreign, and a night of cells goes on."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        what = f"its answer has a shape that is not known of {engine}: {type(error).__name__}: {error}"
        raise ServerError(what, where, "name the server of that engine, of a release in docs/bench.md") from error
