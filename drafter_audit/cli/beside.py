"""bench --reference: the engine's answers beside a replay of the same prompts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from drafter_audit.cli.given import refuse
from drafter_audit.cli.prompt_options import OF_ANSWERS

if TYPE_CHECKING:
    from drafter_audit.bench.reference import Beside
    from drafter_audit.bench.result import EngineResult
    from drafter_audit.measure.shape import Shape
    from drafter_audit.recording.recording import Recording


def opened_reference(
    context: click.Context, folder: Path, drafter: str, target: str | None, shape: Shape | None
) -> Recording:
    """The recording in `folder`, on which the drafter can be replayed. Raises UsageError for an option that it leaves
    nothing to decide for, and for a shape that it cannot replay; and what opening both raises."""
    from drafter_audit.decode.fit import check_beams, check_fits, check_verified
    from drafter_audit.decode.loading import planned
    from drafter_audit.recording.open import open_recording

    refuse(context, OF_ANSWERS, "says what is asked, and the recording says that", "leave it out")
    recording = open_recording(folder)
    plan = planned(drafter, recording.manifest, target)
    check_fits(plan.spec, plan.wiring, recording.manifest, shape.steps if shape else 1)
    if shape:
        check_beams(plan.spec, shape.topk)
        check_verified(recording.manifest, shape)
    return recording


def set_beside(result: EngineResult, recording: Recording, target: str | None) -> Beside:
    """What was measured beside the reference loop; where there is none, that says why."""
    from drafter_audit.bench.reference import Beside, beside
    from drafter_audit.decode.loading import planned
    from drafter_audit.errors import AuditError
    from drafter_audit.report.sink import tell
    from drafter_audit.wiring.reference import Replays, references

    folder, engine = str(recording.folder), result.engine
    assert result.counted.shape is not None  # as `bench` asks for a server that speculates
    tell(f"replaying {folder} as {engine.name} {engine.version or ''} wires the drafter")
    try:
        plan = planned(result.provenance.drafter.ref, recording.manifest, target)
        replays = Replays(plan, recording, result.counted.shape, result.provenance.target.dtype)
        return beside(result, folder, references(replays, engine.name, engine.version))
    except AuditError as error:
        return Beside(result, folder, None, f"{error.what} ({error.where})")


def end_by_verdict(context: click.Context, found: Beside) -> None:
    """Exits with 1, and says why, where the engine is at fault; with 3 where that cannot be told."""
    from drafter_audit.errors import EXIT_CHECK_FAILED, EXIT_NOT_MEASURED
    from drafter_audit.report.sink import tell

    if found.verdict == "healthy":
        return
    for reason in found.reasons:
        tell(f"{found.verdict}: {reason}")
    context.exit(EXIT_CHECK_FAILED if found.verdict == "engine" else EXIT_NOT_MEASURED)
