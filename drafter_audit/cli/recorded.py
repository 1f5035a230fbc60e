"""A recording made from the command line: prompts read and rendered, the target loaded, its answers kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from drafter_audit.cli.prompt_options import Asked, asked_of
from drafter_audit.cli.target_options import TargetOptions, target_of

if TYPE_CHECKING:
    from drafter_audit.model.target.model import TargetModel
    from drafter_audit.prompts.prompt import TokenPrompt
    from drafter_audit.recording.answer import Settings
    from drafter_audit.recording.describe import Origin
    from drafter_audit.recording.engine.job import Engine
    from drafter_audit.recording.engine.target import ServedTarget


class _Target(Protocol):
    """What recording asks of a target, whoever runs it."""

    @property
    def ref(self) -> str: ...
    @property
    def revision(self) -> str | None: ...
    @property
    def dtype(self) -> str: ...
    @property
    def num_layers(self) -> int: ...
    @property
    def hidden_size(self) -> int: ...
    @property
    def vocab_size(self) -> int: ...
    @property
    def end_ids(self) -> tuple[int, ...]: ...
    @property
    def max_positions(self) -> int | None: ...
    @property
    def notes(self) -> tuple[str, ...]: ...


Who = TypeVar("Who", bound=_Target)


@dataclass(frozen=True)
class Answers:
    """What --prompts, --raw, --thinking, --max-new-tokens, --temperature and --seed ask for."""

    prompts: str
    raw: bool
    thinking: bool | None
    max_new_tokens: int
    temperature: float
    seed: int


@dataclass(frozen=True)
class States:
    """What --boundaries says; for how many tokens every boundary is kept; how far each answer is looked beyond."""

    boundaries: str
    all_tokens: int
    lookahead: int


@dataclass(frozen=True)
class Recorded:
    """The target that answered, what it was given, and what a reader should know of both."""

    target: TargetModel
    given: tuple[TokenPrompt, ...]
    notes: tuple[str, ...]


def recorded(
    drafters: Sequence[str],
    folder: Path,
    target: TargetOptions,
    asked: Answers,
    states: States,
    command: Sequence[str],
) -> Recorded:
    """The target answers the prompts into `folder`, or goes on with what an earlier run left there.

    `drafters` say which states to keep, and name the target where `target` does not. Raises AuditError.
    """
    from drafter_audit.cli.progress import watch_prompts
    from drafter_audit.recording.make import record

    ready = _ready(target.load, drafters, folder, target, asked, states, command)
    _tell_size(ready)
    found = ready.asked
    with watch_prompts("Recording", len(found.given)) as watch:
        record(found.target, found.given, folder, ready.settings, ready.origin, watch)
    return Recorded(found.target, found.given, found.notes)


def recorded_by(
    engine: Engine,
    drafters: Sequence[str],
    folder: Path,
    target: TargetOptions,
    asked: Answers,
    states: States,
    command: Sequence[str],
) -> tuple[str, ...]:
    """As `recorded`, with the target run by `engine`; what a reader should know of it. Raises AuditError."""
    from drafter_audit.cli.progress import watch_prompts
    from drafter_audit.recording.engine.make import Served, record_served
    from drafter_audit.recording.engine.target import served_target
    from drafter_audit.report.sink import tell

    def described(ref: str) -> ServedTarget:
        return served_target(ref, target.dtype)

    ready = _ready(described, drafters, folder, target, asked, states, command)
    found, named = ready.asked, states.boundaries not in ("default", "all")
    asked_for = ready.settings.boundaries
    kept = found.target.given(asked_for, named=named)
    ready = replace(ready, settings=replace(ready.settings, boundaries=kept))
    _tell_size(ready)
    log = folder / ".engine" / "log"
    tell(f"for answers that are missing {engine.name} loads the target, which may take long: its log is {log}")
    with watch_prompts("Recording", len(found.given)) as watch:
        record_served(Served(found.target, found.given, ready.settings, engine, ready.origin), folder, watch)
    left_out = ready.settings.boundaries != asked_for
    return (*found.notes, *([f"{engine.name} gives no boundary 0 of this target: it is left out"] if left_out else []))


@dataclass(frozen=True)
class _Ready(Generic[Who]):
    """A target and its prompts, how they are recorded, and where they come from."""

    asked: Asked[Who]
    settings: Settings
    origin: Origin


def _ready(
    load: Callable[[str], Who],
    drafters: Sequence[str],
    folder: Path,
    target: TargetOptions,
    asked: Answers,
    states: States,
    command: Sequence[str],
) -> _Ready[Who]:
    from drafter_audit.drafter.open import open_drafter
    from drafter_audit.prompts.read import read_prompts
    from drafter_audit.recording.answer import Settings
    from drafter_audit.recording.boundaries import boundaries_kept
    from drafter_audit.recording.store import check_folder

    prompt_set = read_prompts(asked.prompts)
    settings = Settings(
        (),
        max_new_tokens=asked.max_new_tokens,
        temperature=asked.temperature,
        seed=asked.seed,
        all_tokens=states.all_tokens,
        lookahead=states.lookahead,
    )
    check_folder(
        folder,
        prompts_sha256=prompt_set.sha256,
        thinking=asked.thinking,
        raw=asked.raw,
        max_new_tokens=settings.max_new_tokens,
        temperature=settings.temperature,
        seed=settings.seed,
        all_tokens=settings.all_tokens,
        lookahead=settings.lookahead,
    )
    specs = [open_drafter(ref) for ref in drafters]
    found = asked_of(
        load,
        target.ref or target_of(specs),
        prompt_set,
        thinking=asked.thinking,
        raw=asked.raw,
        trusted=target.trust_remote_code,
        max_new_tokens=asked.max_new_tokens,
        lookahead=states.lookahead,
    )
    kept = boundaries_kept(states.boundaries, specs, found.target.num_layers)
    return _Ready(found, replace(settings, boundaries=kept), _origin(found, asked, command))


def _origin(found: Asked[Who], asked: Answers, command: Sequence[str]) -> Origin:
    from drafter_audit.recording.describe import Origin

    tokenizer = found.tokenizer
    return Origin(
        prompts_name=found.prompts.name,
        prompts_sha256=found.prompts.sha256,
        thinking=asked.thinking,
        raw=asked.raw,
        tokenizer_sha256=None if tokenizer is None else tokenizer.sha256,
        template_sha256=None if tokenizer is None or asked.raw else tokenizer.template_sha256,
        command=("drafter-audit", *command),
    )


def _tell_size(ready: _Ready[Who]) -> None:
    from drafter_audit.recording.size import largest
    from drafter_audit.report.numbers import size
    from drafter_audit.report.sink import tell

    found = ready.asked
    told = size(largest(found.target, found.given, ready.settings))
    tell(f"the recording takes up to {told}, where every answer hits the cap")
