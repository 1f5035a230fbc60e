"""All shapes of a round from one replay: of chains, a round of fewer steps accepts what the longest one does, up to its
own length; of trees, all are chosen from what the most steps draft."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from drafter_audit.decode.outcome import pooled, replay_notes, replayed_with
from drafter_audit.decode.replay import ReplayRun
from drafter_audit.decode.sweep_result import SweepResult, place_of
from drafter_audit.errors import UsageError
from drafter_audit.measure.acceptance import Acceptance
from drafter_audit.measure.costs import Costs, StepCosts, Timing


def sweep_result(
    runs: Sequence[ReplayRun], costs: StepCosts | None = None, costs_from: str | None = None, notes: Sequence[str] = ()
) -> SweepResult:
    """One drafter on one recording, in rounds of several shapes, one or more. Raises AuditError where no answer took a
    round."""
    rising = sorted(runs, key=lambda run: place_of(run.shape))
    longest = {run.shape.topk: run for run in rising}.values()  # of each top-k: the last one stays
    return SweepResult(
        replayed_with(rising[-1]),
        tuple(pooled(run.counts(), run.shape, raw=run.manifest.raw) for run in rising),
        ceilings=tuple(pooled(run.ceiling(), run.shape).accept_len for run in rising),
        costs=costs,
        costs_from=costs_from,
        coverage=rising[-1].coverage,
        ties=tuple(dict.fromkeys(tie for run in longest for tie in run.ties())),
        notes=(*dict.fromkeys(note for run in longest for note in replay_notes(run)), *notes),
    )


def measured_costs(path: str) -> StepCosts:
    """The costs of a verification and of a draft step that a live run measured: `path` holds the JSON that
    `decode --target` wrote. Raises UsageError for a file that is none."""
    mend = "give the file that decode --target ... --format json -o FILE wrote"
    try:
        told = json.loads(Path(path).read_text(encoding="utf-8"))
        timing = Timing(**{part: told["timing"][part] for part in ("verify_s", "draft_s", "extend_s", "other_s")})
        counted = {name: told[name] for name in ("steps", "rounds", "accepted")}
        return Costs(Acceptance.from_counters(**counted), timing).per_step
    except OSError as error:
        raise UsageError(f"it cannot be read: {error.strerror}", path, mend) from error
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError("no live run with times", path, mend) from error
