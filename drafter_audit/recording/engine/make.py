"""Records a target that an engine runs in an environment of its own: answers and states become a recording."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from drafter_audit.errors import AuditError, CannotRunError, UsageError
from drafter_audit.model.target.taps import checked_boundaries
from drafter_audit.process import EndedError, LateError, Running, check_installed, running, wait_until
from drafter_audit.prompts.limits import check_prompts
from drafter_audit.prompts.prompt import TokenPrompt
from drafter_audit.recording.answer import Settings
from drafter_audit.recording.describe import Origin, Ran, describe
from drafter_audit.recording.engine.answers import Files, read_answer
from drafter_audit.recording.engine.job import Asked, Engine, Job, read_ran
from drafter_audit.recording.engine.target import ServedTarget
from drafter_audit.recording.manifest import Manifest
from drafter_audit.recording.size import check_space
from drafter_audit.recording.store import ENGINE, MANIFEST, Store, begin, read_manifest
from drafter_audit.recording.whole_file import alone
from drafter_audit.secrets import without_secrets

WORKER = Path(__file__).with_name("vllm_worker.py")
_LOG = "log"


def log_of(folder: Path) -> Path:
    """The engine's log beside the recording in `folder`."""
    return folder / ENGINE / _LOG


@dataclass(frozen=True)
class Served:
    """What is asked of an engine: which target, which prompts, how, and where they come from."""

    target: ServedTarget
    prompts: Sequence[TokenPrompt]
    settings: Settings
    engine: Engine
    origin: Origin = Origin()  # noqa: RUF009 - frozen

    def manifest(self, ran: Ran) -> Manifest:
        """Without the keys that the engine is given: recordings are passed around."""
        engine = self.engine
        given = without_secrets(engine.arguments)
        return describe(self.target, self.prompts, self.settings, self.origin, ran, engine.name, given)

    def job(self, rows: Sequence[int]) -> Job:
        """What is still to be answered where prompt i has `rows[i]` states: for a start that finds some of them there.

        One engine gives the same boundaries of every prompt: all, where all are wanted of any prompt.
        """
        target, settings = self.target, self.settings
        missing = [index for index, done in enumerate(rows) if not done]
        longest = max(len(self.prompts[index].ids) for index in missing)
        return Job(
            model=target.path,
            revision=target.revision,
            dtype=target.engine_dtype,
            cpu_dtype=target.cpu_dtype,
            boundaries=self.boundaries(sum(rows[: missing[0]])),
            end_ids=target.end_ids,
            max_new_tokens=settings.max_new_tokens,
            lookahead=settings.lookahead,
            top=min(settings.top, target.vocab_size),
            max_length=longest + settings.max_new_tokens + max(1, settings.lookahead),
            arguments=tuple(self.engine.arguments),
            prompts=[Asked(index, self.prompts[index].ids) for index in missing],
        )

    def boundaries(self, before: int) -> tuple[int, ...]:
        """Those of a prompt with `before` states in the prompts before it."""
        if before >= self.settings.all_tokens:
            return self.settings.boundaries
        return self.target.given(range(self.target.num_layers + 1), named=False)


def record_served(served: Served, folder: Path, watch: Callable[[int], None] = lambda _: None) -> None:
    """The engine's answers to the prompts become a recording in `folder`, which `open_recording` reads.

    Each answer is written whole when the engine has given it, so that the same call goes on after a kill. The engine
    and all that it started are gone when this returns, however it returns; its log stays in `.engine`. `watch` is told
    after each prompt how many are there. Raises what `record` raises before any answer, UsageError for a temperature,
    for an engine that cannot be started and for a folder in which another run is at work, ModuleNotFoundError without
    psutil; later CannotRunError where the engine ends, is silent for too long, or gives what was not asked for.
    """
    _check(served)
    if not folder.exists():
        check_installed()  # before a folder is made for nothing
    with alone(folder):
        _record(served, folder, watch)


def _record(served: Served, folder: Path, watch: Callable[[int], None]) -> None:
    store = _begun(served, folder)
    rows = [0] * len(served.prompts) if store is None else [store.rows(i) for i in range(len(served.prompts))]
    watch(sum(map(bool, rows)))
    if store is None or not all(rows):
        store = _answered(served, folder, rows, watch)
    store.finish()


def check_greedy(temperature: float) -> None:
    """Raises UsageError for a temperature."""
    if temperature:
        raise UsageError("an engine's answers are recorded greedily", "--temperature", "leave it out")


def _check(served: Served) -> None:
    target, settings = served.target, served.settings
    check_greedy(settings.temperature)
    checked_boundaries(settings.boundaries, target.num_layers)
    check_prompts(
        served.prompts,
        target.ref,
        vocab_size=target.vocab_size,
        max_positions=target.max_positions,
        max_new_tokens=settings.max_new_tokens,
        lookahead=max(1, settings.lookahead),  # the engine says one token more, at least: see the worker
    )


def _begun(served: Served, folder: Path) -> Store | None:
    """What an earlier run began in `folder`, or None. How its engine ran is not known before ours does."""
    if not (folder / MANIFEST).exists():
        return None
    told, _ = read_manifest(folder)
    return begin(folder, served.manifest(Ran(told.libraries, told.dtype, told.devices, told.ranks)))


def _answered(served: Served, folder: Path, rows: list[int], watch: Callable[[int], None]) -> Store:
    """Runs the engine until nothing is missing. `rows` are filled in."""
    check_installed()
    job, work = served.job(rows), _fresh(folder / ENGINE)
    command = [served.engine.python, str(WORKER), str(work / "job.json")]
    with (
        _written(job, work / "job.json"),
        running(command, work / _LOG, served.engine.environment) as program,
    ):
        wait = _Wait(program, served.engine)
        wait.for_file(work / "engine.json", "to load the target")
        ran = read_ran(work / "engine.json")
        store = begin(folder, served.manifest(ran))
        left = [served.prompts[asked.index] for asked in job.prompts]
        check_space(folder, replace(served.target, asked_dtype=ran.dtype), left, served.settings)
        for asked in job.prompts:
            files = Files(work, asked.index)
            wait.for_file(files.answer, "to answer a prompt")
            keep = served.boundaries(sum(rows[: asked.index]))
            made = read_answer(files, served.prompts[asked.index], job, keep, ran.dtype)
            store.add(asked.index, made)
            rows[asked.index] = made.prompt_length + made.answer_length - 1
            files.remove()
            watch(sum(map(bool, rows)))
    _fresh(work)
    return store


@contextmanager
def _written(job: Job, path: Path) -> Iterator[None]:
    """For as long as the engine runs: its arguments may hold keys."""
    job.write(path)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


@dataclass(frozen=True)
class _Wait:
    """For what the engine leaves in a folder."""

    program: Running
    engine: Engine

    def for_file(self, path: Path, what: str) -> None:
        """Until `path` is there. Raises CannotRunError where the engine ends before, or takes too long `what`."""
        name, log, limit_s = self.engine.name, str(self.program.log), self.engine.timeout_s
        try:
            wait_until(self.program, path.exists, limit_s)
        except EndedError as error:
            mend = "read the log, mend it, and run the same command again"
            raise CannotRunError(f"{name} {error}", log, mend) from error
        except LateError as error:
            mend = "read the log, or give it more time with --engine-timeout"
            raise CannotRunError(f"{name} took more than {limit_s:g} s {what}: {error}", log, mend) from error


def _fresh(work: Path) -> Path:
    """The folder for the engine's files, with nothing in it but the log."""
    try:
        work.mkdir(parents=True, exist_ok=True)
        for path in work.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            elif path.name != _LOG:
                path.unlink()
    except OSError as error:
        raise AuditError(f"cannot write: {error.strerror}", str(work), "choose another folder") from error
    return work.resolve()
