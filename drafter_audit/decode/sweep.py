"""All step counts of one replay: a round of fewer steps accepts what the longest one does, up to its own length."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from drafter_audit.decode.outcome import pooled, replay_notes, replayed_with
from drafter_audit.decode.replay import ReplayRun
from drafter_audit.decode.sweep_result import SweepResult
from drafter_audit.errors import UsageError
from drafter_audit.measure.acceptance import Acceptance
from drafter_audit.measure.costs import Costs, StepCosts, Timing


def sweep_result(
    run: ReplayRun, steps: Sequence[int], costs: StepCosts | None = None, costs_from: str | None = None
) -> SweepResult:
    """`run` at each of the rising `steps`, none above its own. Raises AuditError where no answer took a round."""
    return SweepResult(
        replayed_with(run),
        tuple(pooled(run.counts(count), count, raw=run.manifest.raw) for count in steps),
        ceilings=tuple(Acceptance.pooled(run.ceiling(count), steps=count).accept_len for count in steps),
        costs=costs,
        costs_from=costs_from,
        coverage=run.coverage,
        ties=run.ties(steps[-1]),
        notes=tuple(replay_notes(run)),
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
