"""What `decode` answers, as plain data: no torch. The fields of its JSON are those of the command's contract."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import combinations
from typing import Any, Literal

from drafter_audit.measure.acceptance import Acceptance
from drafter_audit.measure.costs import NOT_MEASURED, Costs

Mode = Literal["live", "replay", "engine"]
Rule = Literal["greedy", "argmax_draft"]
"""How a draft is accepted: it is the target's likeliest token, or with the probability that the target gives it."""


@dataclass(frozen=True)
class DrafterFacts:
    """`samples` it was trained on, where known."""

    ref: str
    revision: str | None
    samples: int | None = None


@dataclass(frozen=True)
class TargetFacts:
    """`dtype` is null where an engine does not tell it."""

    ref: str
    revision: str | None
    dtype: str | None
    quantization: str | None


@dataclass(frozen=True)
class PromptFacts:
    """`sha256` is over the bytes of the JSONL file."""

    name: str
    sha256: str
    count: int


@dataclass(frozen=True)
class Provenance:
    """With what a figure was measured. `raw`: no chat template; `thinking` is None where nobody switched it.

    `as_tokens`: all prompts were token ids, which pass neither. Two logits of the target closer than `tie_epsilon` are
    a tie; it is None where its answers were drawn.
    """

    mode: Mode
    drafter: DrafterFacts
    target: TargetFacts
    prompts: PromptFacts
    temperature: float = 0.0
    rule: Rule = "greedy"
    seed: int = 0
    raw: bool = False
    thinking: bool | None = None
    tie_epsilon: float | None = None
    as_tokens: bool = False

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Tie:
    """Where the target's two likeliest tokens stood so close that rounding may choose either.

    `position` counts the answer's tokens from 0; `gap` is between their logits.
    """

    prompt: str
    position: int
    gap: float


@dataclass(frozen=True)
class Lossless:
    """The answers set against plain greedy decoding: `checked` tokens, each answer up to where the two part. They part
    at `ties` where the gap is below `epsilon`, at `mismatches` where it is not."""

    checked: int
    mismatches: int
    ties: int
    epsilon: float


@dataclass(frozen=True)
class DecodeResult:
    """One drafter's accept_len. `coverage` is the share of the answers' tokens that its vocabulary holds.

    `costs` is None where nothing was timed, `lossless` where no plain decoding was at hand; `mismatches` are the places
    that it counts so, `ties` all that rounding decides. `what_if` are values of accept_len that were asked about, which
    takes `costs`. `notes` are sentences on how to read the figures.
    """

    provenance: Provenance
    acceptance: Acceptance
    coverage: float | None = None
    lossless: Lossless | None = None
    ties: tuple[Tie, ...] = ()
    mismatches: tuple[Tie, ...] = ()
    costs: Costs | None = None
    what_if: tuple[float, ...] = ()
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.what_if and self.costs is None:
            raise ValueError("a what-if takes a measured cycle")
        if self.lossless and len(self.mismatches) != self.lossless.mismatches:
            raise ValueError(f"{len(self.mismatches)} mismatches are listed, {self.lossless.mismatches} counted")
        if self.lossless and any(tie.gap >= self.lossless.epsilon for tie in self.ties):
            raise ValueError(f"a tie has a gap of {self.lossless.epsilon} or more: that is a mismatch")

    @cached_property
    def interval(self) -> tuple[float, float] | None:
        """Of accept_len, 95%; None for a single prompt."""
        from drafter_audit.measure.bootstrap import accept_len_interval

        return accept_len_interval(self.acceptance, seed=self.provenance.seed)

    @cached_property
    def answers_to_what_if(self) -> tuple[tuple[float, float], ...]:
        """Each accept_len with the tokens per second it would be worth. Raises UsageError for one out of reach."""
        return tuple((value, self.costs.what_if(value)) for value in self.what_if if self.costs)

    def to_dict(self) -> dict[str, Any]:
        return {
            "mode": self.provenance.mode,
            "accept_len": self.acceptance.accept_len,
            "accept_len_interval": None if self.interval is None else list(self.interval),
            **self.acceptance.to_dict(),
            "coverage": self.coverage,
            "lossless": None if self.lossless is None else asdict(self.lossless),
            "ties": [asdict(tie) for tie in self.ties],
            "mismatches": [asdict(place) for place in self.mismatches],
            **(NOT_MEASURED if self.costs is None else self.costs.to_dict()),
            "what_if": [{"accept_len": value, "tokens_per_s": worth} for value, worth in self.answers_to_what_if],
            **self.provenance.to_dict(),
            "notes": list(self.notes),
        }


@dataclass(frozen=True)
class Pair:
    """accept_len of `b` less that of `a` on the same prompts; without a difference, `reason` says why there is none."""

    a: str
    b: str
    difference: float | None
    interval: tuple[float, float] | None
    prompts: int
    reason: str | None = None


@dataclass(frozen=True)
class DecodeResults:
    """Several drafters on one recording, or one drafter on several, each set against each."""

    results: tuple[DecodeResult, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """What each is called: its drafter, with the target where that drafter comes more than once."""
        plain = [result.provenance.drafter.ref for result in self.results]
        times = Counter(plain)
        full = [
            name if times[name] == 1 else _in_full(r.provenance) for name, r in zip(plain, self.results, strict=True)
        ]
        times = Counter(full)
        return tuple(n if times[n] == 1 else f"{n} ({place})" for place, n in enumerate(full, 1))

    @cached_property
    def paired(self) -> tuple[Pair, ...]:
        return tuple(_pair(a, b) for a, b in combinations(zip(self.names, self.results, strict=True), 2))

    def to_dict(self) -> dict[str, Any]:
        """The result itself where there is one, else all with their paired differences."""
        if len(self.results) == 1:
            return self.results[0].to_dict()
        return {"results": [r.to_dict() for r in self.results], "paired": [asdict(pair) for pair in self.paired]}


def _in_full(provenance: Provenance) -> str:
    target = provenance.target
    told: Iterator[str | None] = iter((target.revision and target.revision[:12], target.dtype, target.quantization))
    return f"{provenance.drafter.ref} on {', '.join((target.ref, *filter(None, told)))}"


def _pair(a: tuple[str, DecodeResult], b: tuple[str, DecodeResult]) -> Pair:
    from drafter_audit.measure.bootstrap import accept_len_difference

    (a_name, one), (b_name, other) = a, b
    reason = _not_paired(one, other)
    if reason:
        return Pair(a_name, b_name, None, None, 0, reason)
    found = accept_len_difference(one.acceptance, other.acceptance, seed=one.provenance.seed)
    return Pair(a_name, b_name, found.difference, found.interval, found.prompts)


def _not_paired(one: DecodeResult, other: DecodeResult) -> str | None:
    """Why two results cannot be paired: they are of different prompts, or of different settings."""
    ours, theirs = ((p.prompts.sha256, p.raw, p.thinking) for p in (one.provenance, other.provenance))
    if ours != theirs:
        return "they were given different prompts"
    a, b = one.acceptance, other.acceptance
    if (a.steps, a.topk, a.num_draft_tokens) != (b.steps, b.topk, b.num_draft_tokens):
        return "they drafted with different settings"
    if {p.id for p in a.per_prompt} != {p.id for p in b.per_prompt} or not a.per_prompt:
        return "their answers are not to the same prompts"
    return None
