"""What `bench` answers, as plain data: the fields of `decode`, and the engine that was measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from drafter_audit.bench.counting import DEFINITION, SERVER_DEFINITION, Counted
from drafter_audit.bench.wire import Answer
from drafter_audit.decode.result import DecodeResult, Provenance
from drafter_audit.measure.acceptance import Acceptance
from drafter_audit.measure.costs import NOT_MEASURED
from drafter_audit.measure.loops import why_not_measured
from drafter_audit.measure.step_bounds import tokens_per_s_at

Interval = tuple[float, float]

_LEAST_CYCLE_S = 1e-4
"""A tenth of the shortest cycle of any engine's."""

_HELD_BACK = "no speed is told: answers came whole, or were held back on the way, as by a proxy"
_ONE_PIECE = "no speed is told: no answer had a token after its first piece"


@dataclass(frozen=True)
class EngineFacts:
    """The server. `args` and `env` are null where it tells neither; `start_s` and `log` are of one that was started
    here; `not_verified` is what it leaves open, in words."""

    name: str
    version: str | None
    url: str
    args: tuple[str, ...] | None
    env: Mapping[str, str] | None
    launched: bool
    start_s: float | None = None
    log: str | None = None
    not_verified: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return {
            **asdict(self),
            "args": None if self.args is None else list(self.args),
            "env": None if self.env is None else dict(self.env),
            "not_verified": list(self.not_verified),
        }


@dataclass(frozen=True)
class EngineResult:
    """One drafter as one server runs it, or plain decoding by that server."""

    provenance: Provenance
    engine: EngineFacts
    counted: Counted
    what_if: tuple[float, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def answers(self) -> tuple[Answer, ...]:
        return self.counted.answers

    @property
    def acceptance(self) -> Acceptance | None:
        return self.counted.acceptance

    @property
    def accept_len(self) -> float | None:
        return None if self.acceptance is None else self.acceptance.accept_len

    @cached_property
    def interval(self) -> Interval | None:
        """Of accept_len, 95%, by prompts."""
        from drafter_audit.measure.bootstrap import interval_of_rounds

        if self.acceptance is None:
            return None
        each = [answer.counts for answer in self.answers if answer.counts]
        return interval_of_rounds([(counts.accepted or 0, counts.rounds) for counts in each], seed=self.provenance.seed)

    @property
    def decode_s(self) -> float:
        """Over all answers, from the first piece of each to its last: without prefill."""
        return sum(answer.decode_s for answer in self.answers)

    @property
    def _timed(self) -> int:
        return sum(answer.timed for answer in self.answers)

    @property
    def no_speed(self) -> str | None:
        """Why no speed is told: when pieces were made nobody knows that came faster than any target verifies."""
        cycles = self.counted.rounds or self.counted.tokens - len(self.answers)
        if self.decode_s < _LEAST_CYCLE_S * cycles:
            return _HELD_BACK
        return None if self._timed else _ONE_PIECE

    @property
    def tokens_per_s(self) -> float | None:
        """Of one request at a time, after its first token; None where there is `no_speed`."""
        return self._timed / self.decode_s if self.no_speed is None else None

    @cached_property
    def tokens_per_s_interval(self) -> Interval | None:
        from drafter_audit.measure.bootstrap import ratio_interval

        if self.no_speed is not None:
            return None
        each = [answer for answer in self.answers if answer.timed and answer.decode_s]
        return ratio_interval([a.timed for a in each], [a.decode_s for a in each], seed=self.provenance.seed)

    @property
    def cycle_s(self) -> float | None:
        """What a round takes."""
        rounds = self.counted.rounds
        return self.decode_s / rounds if rounds and self.no_speed is None else None

    @property
    def answers_to_what_if(self) -> tuple[tuple[float, float], ...]:
        """Each accept_len with the tokens per second it would be worth, at the cycle that was measured."""
        length, speed = self.accept_len, self.tokens_per_s
        if length is None or speed is None:
            return ()
        return tuple((value, tokens_per_s_at(value, measured=length, tokens_per_s=speed)) for value in self.what_if)

    @property
    def remarks(self) -> tuple[str, ...]:
        """What must be known of the figures, in words."""
        return (*self.counted.notes, *self.notes, *([self.no_speed] if self.no_speed else []))

    def to_dict(self) -> dict[str, Any]:
        return {
            **self._counts(),
            **NOT_MEASURED,
            "definition": SERVER_DEFINITION if self.acceptance is None and self.counted.rounds else DEFINITION,
            "accept_len_server": self.counted.accept_len_server,
            "accept_len_bounds": _listed(self.counted.bounds if self.acceptance is None else None),
            "decode_s": self.decode_s,
            "first_token_s": sum(answer.first_s for answer in self.answers) / len(self.answers),
            "cycle_s": self.cycle_s,
            "tokens_per_s": self.tokens_per_s,
            "tokens_per_s_interval": _listed(self.tokens_per_s_interval),
            "what_if": [{"accept_len": value, "tokens_per_s": worth} for value, worth in self.answers_to_what_if],
            "unmeasured": why_not_measured(self.answers),
            "engine": self.engine.to_dict(),
            "notes": list(self.remarks),
        }

    def _counts(self) -> dict[str, Any]:
        """The fields of `decode` that are counted."""
        if self.acceptance is not None:
            told = DecodeResult(self.provenance, self.acceptance).to_dict()
            return {**told, "accept_len_interval": _listed(self.interval), **self._ends()}
        counted = self.counted
        return {
            **self.provenance.to_dict(),
            **dict.fromkeys(_NOT_COUNTED),
            "rounds": counted.rounds,
            "tokens": counted.tokens,
            "steps": counted.steps,
            "topk": counted.shape.topk if counted.shape else 1,
            "num_draft_tokens": counted.verified,
            "unknown": list(_NOT_COUNTED),
            **self._ends(),
        }

    def _ends(self) -> dict[str, Any]:
        """Loops are null where an answer's tokens are not told."""
        capped = sum(answer.capped for answer in self.answers)
        known = all(answer.ids is not None for answer in self.answers)
        looping = sum(answer.degenerate for answer in self.answers) if known else None
        return {"degenerate": looping, "stop": {"eos": len(self.answers) - capped, "cap": capped}}


_NOT_COUNTED = (
    *("accept_len", "accept_len_interval", "accept_len_request_mean", "accepted", "drafted", "accept_rate"),
    *("overshoot", "histogram", "per_position", "per_position_counts", "conditional", "per_prompt"),
    *("coverage", "lossless", "ties", "mismatches"),
)


def _listed(value: Interval | None) -> list[float] | None:
    return None if value is None else list(value)
