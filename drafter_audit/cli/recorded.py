"""A recording made from the command line: prompts read and rendered, the target loaded, its answers kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drafter_audit.cli.prompt_options import Answers, Asked, asked_of
from drafter_audit.cli.target_options import TargetOptions, target_of

if TYPE_CHECKING:
    from drafter_audit.drafter.spec import DrafterSpec
    from drafter_audit.model.target.model import TargetModel
    from drafter_audit.model.target.sizes import TargetSizes
    from drafter_audit.prompts.prompt import PromptSet, TokenPrompt
    from drafter_audit.recording.answer import Settings
    from drafter_audit.recording.describe import Described, Origin
    from drafter_audit.recording.engine.job import Engine
    from drafter_audit.recording.engine.target import ServedTarget


@dataclass(frozen=True)
class States:
    """What --boundaries says; for how many tokens every boundary is kept; how far each answer is looked beyond."""

    boundaries: str
    all_tokens: int
    lookahead: int


@dataclass(frozen=True)
class Recorded:
    """The target that answered, and what it was given."""

    target: TargetModel
    given: tuple[TokenPrompt, ...]


def recorded(
    drafters: Sequence[str],
    folder: Path,
    target: TargetOptions,
    answers: Answers,
    states: States,
    command: Sequence[str],
) -> Recorded:
    """The target answers the prompts into `folder`, or goes on with what an earlier run left there.

    `drafters` say which states to keep, and name the target where `target` does not. Raises AuditError.
    """
    from drafter_audit.cli.progress import watch_prompts
    from drafter_audit.recording.make import record

    wanted = _wanted(drafters, folder, answers, states)
    sizes = target.sizes(target.ref or target_of(wanted.specs))
    ready = wanted.of(sizes, command, trust_remote_code=target.trust_remote_code)
    model = target.load(sizes.ref)
    _tell_size(model, ready)
    with watch_prompts("Recording", len(ready.given)) as watch:
        record(model, ready.given, folder, ready.settings, ready.origin, watch)
    return Recorded(model, ready.given)


def recorded_by(
    engine: Engine,
    drafters: Sequence[str],
    folder: Path,
    target: TargetOptions,
    answers: Answers,
    states: States,
    command: Sequence[str],
) -> None:
    """As `recorded`, with the target run by `engine`. Raises AuditError."""
    from drafter_audit.cli.progress import watch_prompts
    from drafter_audit.recording.engine.make import Served, check_greedy, log_of, record_served
    from drafter_audit.recording.engine.target import served_target
    from drafter_audit.report.sink import tell

    check_greedy(answers.temperature)  # before anything long is read
    wanted = _wanted(drafters, folder, answers, states)
    served = served_target(target.ref or target_of(wanted.specs), target.dtype)
    ready = wanted.of(served, command, trust_remote_code=target.trust_remote_code)
    ready = _given_by(engine.name, served, ready, named=states.boundaries not in ("default", "all"))
    _tell_size(served, ready)
    loads = f"for answers that are missing {engine.name} loads the target, which may take long"
    tell(f"{loads}: its log is {log_of(folder)}")
    with watch_prompts("Recording", len(ready.given)) as watch:
        record_served(Served(served, ready.given, ready.settings, engine, ready.origin), folder, watch)


@dataclass(frozen=True)
class _Ready:
    """What a target is given, how its answers are recorded, and where all that comes from."""

    given: tuple[TokenPrompt, ...]
    settings: Settings
    origin: Origin


@dataclass(frozen=True)
class _Wanted:
    """What is asked for, before a target is looked at."""

    prompts: PromptSet
    specs: Sequence[DrafterSpec]
    answers: Answers
    states: States

    def of(self, sizes: TargetSizes, command: Sequence[str], *, trust_remote_code: bool) -> _Ready:
        """The same of a target of these sizes. Raises where prompts or drafters do not fit it."""
        from drafter_audit.decode.fit import check_vocabulary
        from drafter_audit.recording.answer import Settings
        from drafter_audit.recording.boundaries import boundaries_kept

        lookahead = self.states.lookahead
        asked = asked_of(sizes, self.prompts, self.answers, lookahead, trust_remote_code=trust_remote_code)
        for spec in self.specs:
            check_vocabulary(spec, sizes)
        kept = boundaries_kept(self.states.boundaries, self.specs, sizes.num_layers)
        settings = Settings(kept, **_how(self.answers, self.states))
        return _Ready(asked.given, settings, _origin(asked, self.answers, command))


def _wanted(drafters: Sequence[str], folder: Path, answers: Answers, states: States) -> _Wanted:
    """Raises UsageError for a `folder` that holds another recording, before anything long is read."""
    from drafter_audit.drafter.open import open_drafter
    from drafter_audit.prompts.read import read_prompts
    from drafter_audit.recording.store import check_folder

    prompts = read_prompts(answers.prompts)
    how = _how(answers, states)
    check_folder(folder, prompts_sha256=prompts.sha256, thinking=answers.thinking, raw=answers.raw, **how)
    return _Wanted(prompts, [open_drafter(ref) for ref in drafters], answers, states)


def _how(answers: Answers, states: States) -> dict[str, Any]:
    """Settings of a recording that are known before its target is."""
    return {
        "max_new_tokens": answers.max_new_tokens,
        "temperature": answers.temperature,
        "seed": answers.seed,
        "all_tokens": states.all_tokens,
        "lookahead": states.lookahead,
    }


def _origin(asked: Asked, answers: Answers, command: Sequence[str]) -> Origin:
    from drafter_audit.recording.describe import Origin

    return Origin(
        prompts_name=asked.prompts.name,
        prompts_sha256=asked.prompts.sha256,
        thinking=answers.thinking,
        raw=answers.raw,
        **asked.hashes(raw=answers.raw),
        notes=asked.notes,
        command=("drafter-audit", *command),
    )


def _given_by(engine: str, served: ServedTarget, ready: _Ready, *, named: bool) -> _Ready:
    """Without the boundaries that the engine cannot give, and with a note of it. Raises UsageError where such a one was
    `named`."""
    asked = ready.settings.boundaries
    kept = served.given(asked, named=named)
    if kept == asked:
        return ready
    notes = (*ready.origin.notes, f"{engine} gives no boundary 0 of this target: it is left out")
    return _Ready(ready.given, replace(ready.settings, boundaries=kept), replace(ready.origin, notes=notes))


def _tell_size(target: Described, ready: _Ready) -> None:
    from drafter_audit.recording.size import largest
    from drafter_audit.report.numbers import size
    from drafter_audit.report.sink import tell

    told = size(largest(target, ready.given, ready.settings))
    tell(f"the recording takes up to {told}, where every answer hits the cap")
