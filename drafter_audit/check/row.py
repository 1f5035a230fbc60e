"""One check of one drafter, and all of them together: plain data, and the JSON of `check`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from drafter_audit.errors import EXIT_CHECK_FAILED, EXIT_NOT_MEASURED, EXIT_OK

Outcome = Literal["pass", "fail", "unmeasured"]
Stage = Literal["static", "replay", "live"]
"""In the order in which they run: what costs least comes first."""

_EXIT_CODES = {"pass": EXIT_OK, "fail": EXIT_CHECK_FAILED, "unmeasured": EXIT_NOT_MEASURED}


@dataclass(frozen=True)
class Row:
    """`check` of `drafter`. `observed` against `bound`, None for what is not measured or has none; `key` is the key of
    `[check]` that asks for it; `interval` 95%, of a figure of prompts. `details` are figures and codes behind it."""

    drafter: str
    check: str
    stage: Stage
    key: str
    bound: Any = None
    outcome: Outcome = "unmeasured"
    observed: Any = None
    reason: str = ""
    interval: tuple[float, float] | None = None
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> tuple[str, str]:
        return self.drafter, self.check

    def unmeasured(self, why: str) -> Row:
        return replace(self, outcome="unmeasured", reason=why)

    def to_dict(self) -> dict[str, Any]:
        names = ("drafter", "check", "outcome", "observed", "bound", "reason", "stage", "key")
        interval = None if self.interval is None else list(self.interval)
        return {name: getattr(self, name) for name in names} | {"interval": interval, "details": dict(self.details)}

    @classmethod
    def from_dict(cls, told: Mapping[str, Any]) -> Row:
        return cls(**{**told, "interval": None if told["interval"] is None else tuple(told["interval"])})


@dataclass(frozen=True)
class Result:
    """All rows, those that could not be measured too; `baseline` says what became of it, `seconds` what all took."""

    rows: tuple[Row, ...]
    config: str | None = None
    seconds: float = 0.0

    @property
    def outcome(self) -> Outcome:
        """Any failure fails, else anything unmeasured leaves it open; nothing at all is no pass either."""
        outcomes = {row.outcome for row in self.rows}
        return "fail" if "fail" in outcomes else "pass" if outcomes == {"pass"} else "unmeasured"

    @property
    def exit_code(self) -> int:
        return _EXIT_CODES[self.outcome]

    def to_dict(self) -> dict[str, Any]:
        return {
            "outcome": self.outcome,
            "checks": [row.to_dict() for row in self.rows],
            "config": self.config,
            "seconds": self.seconds,
        }


def replaced(rows: Sequence[Row], row: Row) -> tuple[Row, ...]:
    """`rows` with `row` in the place of the one of its name."""
    return tuple(row if each.name == row.name else each for each in rows)
