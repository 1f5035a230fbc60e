"""Whether two published accept_len figures may be set against each other, and which rows to set."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from drafter_audit.drafter.spec import DrafterSpec
from drafter_audit.facts.records import AcceptLen


@dataclass(frozen=True)
class Rows:
    """Rows of one drafter that were measured alike: same steps, top-k and number of draft tokens."""

    spec: DrafterSpec
    rows: tuple[AcceptLen, ...]

    @property
    def low(self) -> float:
        return min(row.value for row in self.rows)

    @property
    def high(self) -> float:
        return max(row.value for row in self.rows)

    @property
    def mean(self) -> float:
        return sum(row.value for row in self.rows) / len(self.rows)

    @property
    def chain_steps(self) -> int | None:
        """Draft tokens verified per round of a chain; None for trees and where the step count is not stated.

        With top-k 1 an engine verifies `num_draft_tokens - 1` drafts, so fewer than `steps` if that is smaller.
        """
        row = self.rows[0]
        if row.steps is None or row.topk not in (None, 1):
            return None
        return row.steps if row.num_draft_tokens is None else max(1, min(row.steps, row.num_draft_tokens - 1))


def pair_rows(theirs: DrafterSpec, ours: DrafterSpec) -> tuple[Rows, Rows] | None:
    """The authors' own rows of both, narrowed to what was measured most alike; None where one has none."""
    their_rows, our_rows = _authors(theirs), _authors(ours)
    if not their_rows or not our_rows:
        return None
    shared = {_name(row) for row in their_rows} & {_name(row) for row in our_rows} - {None}
    if shared:
        their_rows = [row for row in their_rows if _name(row) in shared]
        our_rows = [row for row in our_rows if _name(row) in shared]
    mine = _same_setting(our_rows, our_rows[0])
    nearest = min(their_rows, key=lambda row: _distance(row, our_rows[0]))
    return Rows(theirs, _same_setting(their_rows, nearest)), Rows(ours, mine)


def reasons_not_comparable(theirs: Rows, ours: Rows) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What differs between the two measurements, and what one of them does not state."""
    pairs = {
        "steps": _both(theirs, ours, lambda side: side.rows[0].steps),
        "topk": _both(theirs, ours, lambda side: side.rows[0].topk),
        "target": _both(theirs, ours, lambda side: (side.spec.target.ref or "").lower() or None),
        "quantization": _both(theirs, ours, lambda side: side.spec.target.quantization),
        "benchmark": _both(theirs, ours, _benchmarks),
        "batch": _both(theirs, ours, lambda side: side.rows[0].batch_size),
        "temperature": _both(theirs, ours, lambda side: side.rows[0].temperature),
        "engine": _both(theirs, ours, lambda side: _engine(side.rows[0].engine)),
    }
    differ = tuple(name for name, (a, b) in pairs.items() if a is not None and b is not None and a != b)
    unstated = tuple(name for name, (a, b) in pairs.items() if a is None or b is None)
    return differ, unstated


def _authors(spec: DrafterSpec) -> list[AcceptLen]:
    return [row for row in spec.accept_len if row.publisher == "author"]


def _same_setting(rows: Sequence[AcceptLen], like: AcceptLen) -> tuple[AcceptLen, ...]:
    return tuple(row for row in rows if _setting(row) == _setting(like))


def _setting(row: AcceptLen) -> tuple[int | None, int | None, int | None]:
    return row.steps, row.topk, row.num_draft_tokens


def _distance(row: AcceptLen, other: AcceptLen) -> tuple[bool, int]:
    """Chains first, then the nearest step count; a row without a step count comes last."""
    steps = abs(row.steps - other.steps) if row.steps and other.steps else 1_000
    return row.topk != other.topk, steps


def _name(row: AcceptLen) -> str | None:
    """A benchmark's name without case, spaces and hyphens: MT-Bench, MTBench and mt_bench are one."""
    return "".join(c for c in row.benchmark.lower() if c.isalnum()) if row.benchmark else None


def _benchmarks(side: Rows) -> frozenset[str] | None:
    named = frozenset(name for row in side.rows if (name := _name(row)))
    return named or None


def _engine(text: str | None) -> str | None:
    return text.lower().split("=")[0].split()[0] if text and text.strip() else None


def _both(theirs: Rows, ours: Rows, read: Callable[[Rows], object]) -> tuple[object, object]:
    return read(theirs), read(ours)
