"""A drafter replayed on its recording: no target runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drafter_audit.check.job import Job
from drafter_audit.drafter.open import open_drafter
from drafter_audit.errors import AuditError, SourceError

if TYPE_CHECKING:
    from drafter_audit.decode.loading import Planned
    from drafter_audit.decode.result import DecodeResult
    from drafter_audit.recording.manifest import Manifest
    from drafter_audit.recording.recording import Recording


def replayed(job: Job) -> tuple[DecodeResult, Manifest]:
    """Raises AuditError where the recording or the drafter cannot be read, or the two do not fit."""
    from drafter_audit.decode.fit import check_fits
    from drafter_audit.decode.loading import replay_dtype
    from drafter_audit.decode.outcome import replay_result
    from drafter_audit.decode.replay import replay

    recording = recording_of(job)
    plan = _planned(job, recording.manifest)
    check_fits(plan.spec, plan.wiring, recording.manifest, job.steps)
    run = replay(plan.load(replay_dtype(recording.manifest)), recording, job.steps)
    return replay_result(run), recording.manifest


def of_another(job: Job, manifest: Manifest) -> str:
    """Says so where the recorded target goes by another name than the drafter's, "" where not: a mirror or a folder may
    be the same, and a fine-tune of the same shape would make a good drafter look bad."""
    named = job.target or open_drafter(job.ref, level="drafter").target.ref
    if named is None or _last(named) == _last(manifest.target):
        return ""
    return f"recorded of {manifest.target}, and its target is {named}"


def _last(ref: str) -> str:
    """What mirrors and folders of a repository have in common."""
    return ref.rstrip("/").rpartition("/")[2].partition("@")[0].lower()


def recording_of(job: Job) -> Recording:
    """Raises AuditError where none is named."""
    from drafter_audit.recording.open import open_recording

    if job.recording is None:
        raise AuditError("no recording of its target, and live is not asked for", job.name, "name one, or say live")
    return open_recording(job.recording)


def _planned(job: Job, manifest: Manifest) -> Planned:
    """With the target that is named, to borrow from; where that is out of reach, with what the recording tells."""
    from drafter_audit.decode.loading import planned

    try:
        return planned(job.ref, manifest, job.target)
    except SourceError:
        return planned(job.ref, manifest)
