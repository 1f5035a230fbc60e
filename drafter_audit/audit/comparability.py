"""Whether two published accept_len figures may be set against each other, and which rows to set."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from drafter_audit.drafter.spec import DrafterSpec
from drafter_audit.facts.records import AcceptLen, most_per_round


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
        most = most_per_round(row.steps, row.num_draft_tokens)
        if row.steps is None or row.topk not in (None, 1) or most is None:
            return None
        return most - 1 or None


def pair_rows(theirs: DrafterSpec, ours: DrafterSpec) -> tuple[Rows, Rows] | None:
    """The figures of both, their authors' where there are any, narrowed to what was measured most alike; else None."""
    their_rows, our_rows = _figures(theirs), _figures(ours)
    if not their_rows or not our_rows:
        return None
    shared = {_name(row) for row in their_rows} & {_name(row) for row in our_rows} - {None}
    if shared:
        their_rows = [row for row in their_rows if _name(row) in shared]
        our_rows = [row for row in our_rows if _name(row) in shared]
    mine = _same_setting(our_rows, our_rows[0])
    nearest = min(their_rows, key=lambda row: _distance(row, our_rows[0]))
    return Rows(theirs, _same_setting(their_rows, nearest)), Rows(ours, mine)


def same_setting(theirs: Rows, ours: Rows) -> bool:
    """Whether both were measured with the same, stated numbers of steps, top-k and draft tokens."""
    setting = _setting(ours.rows[0])
    return None not in setting and setting == _setting(theirs.rows[0])


def reasons_not_comparable(theirs: Rows, ours: Rows) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What differs between or within the two measurements, and what one of them does not state."""
    read: dict[str, Callable[[Rows], set[object]]] = {
        "steps": lambda side: {row.steps for row in side.rows},
        "topk": lambda side: {row.topk for row in side.rows},
        "target": lambda side: {side.spec.target.ref.lower() if side.spec.target.ref else None},
        "quantization": lambda side: {side.spec.target.quantization},
        "benchmark": lambda side: {frozenset(map(_name, side.rows)) if all(map(_name, side.rows)) else None},
        "batch": lambda side: {row.batch_size for row in side.rows},
        "temperature": lambda side: {row.temperature for row in side.rows},
        "engine": lambda side: {_engine(row.engine) for row in side.rows},
    }
    pairs = {name: (side(theirs), side(ours)) for name, side in read.items()}
    unstated = tuple(name for name, (a, b) in pairs.items() if None in a | b)
    differ = tuple(name for name, (a, b) in pairs.items() if _differ(a, b))
    return differ, tuple(name for name in unstated if name not in differ)


def _differ(a: set[object], b: set[object]) -> bool:
    """Whether what is stated is not one and the same value; a side that states nothing does not differ."""
    return len((a | b) - {None}) > 1


def _figures(spec: DrafterSpec) -> list[AcceptLen]:
    """The author's own rows; where there are none, those of the first other publisher."""
    authors = [row for row in spec.accept_len if row.publisher == "author"]
    return authors or [row for row in spec.accept_len if row.publisher == spec.accept_len[0].publisher]


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


def _engine(text: str | None) -> str | None:
    return text.lower().split("=")[0].split()[0] if text and text.strip() else None
