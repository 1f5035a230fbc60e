"""Facts that no weight file holds: how a drafter was trained, and what was measured with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Confidence = Literal["high", "medium", "low"]


@dataclass(frozen=True)
class Training:
    """What a drafter was trained on; `source` says who says so, e.g. "model card, read from text"."""

    dataset: str | None
    samples: int | None
    source: str


@dataclass(frozen=True)
class AcceptLen:
    """One published accept_len: tokens emitted per round, the target's own token included.

    `value` is `1 + A/S`; `steps`, `topk` and `num_draft_tokens` as the engine was started.
    `publisher` is "author" for the drafter's own card or toml, else who measured ("SpecBundle").
    Throughputs are tokens per second at `batch_size`.
    """

    value: float
    benchmark: str | None
    steps: int | None
    topk: int | None
    num_draft_tokens: int | None
    temperature: float | None
    engine: str | None
    source: str
    publisher: str = "author"
    batch_size: int | None = None
    tokens_per_s: float | None = None
    plain_tokens_per_s: float | None = None

    def to_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


def most_per_round(steps: int | None, num_draft_tokens: int | None) -> int | None:
    """The most tokens that one round can emit, None where neither setting is known.

    One token per draft step and the target's own; `num_draft_tokens`, as SGLang counts, holds the latter too.
    """
    limits = [limit for limit in (None if steps is None else steps + 1, num_draft_tokens) if limit is not None]
    return min(limits, default=None)


@dataclass(frozen=True)
class Throughput:
    """Tokens per second with the drafter and of plain decoding, one measurement."""

    tokens_per_s: float
    plain_tokens_per_s: float | None
    source: str

    def to_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


@dataclass(frozen=True)
class Facts:
    """All that one origin (card, registry, toml) says of one drafter; None or empty where it is silent.

    `unread` says why the origin could not be asked.
    """

    target: str | None = None
    target_source: str | None = None
    training: Training | None = None
    accept_len: tuple[AcceptLen, ...] = ()
    throughput: Throughput | None = None
    unread: str | None = None
