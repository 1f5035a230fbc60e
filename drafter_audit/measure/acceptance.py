"""The one acceptance record: counts of rounds by what each accepted, with the identities that tie them together.

A round is one draft-and-verify step; S rounds accept A of D drafted tokens. accept_len = 1 + A/S, the target's own
token of each round included, pooled over rounds: as vLLM's log and EAGLE's tau have it. A round counts whole, as
verified, also past the end of the answer. docs/metrics.md sets the definitions of others beside these.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from drafter_audit.errors import AuditError


@dataclass(frozen=True)
class PromptCounts:
    """What one prompt's answer took. `histogram[j]` rounds accepted exactly j drafts, j = 0..steps.

    `tokens` were emitted, the prefill's included; `overshoot` of what its last round emitted lies past the end.
    `capped` says that the answer hit the limit of tokens, `degenerate` that it loops.
    """

    id: str
    category: str | None
    tokens: int
    histogram: tuple[int, ...]
    overshoot: int
    capped: bool = False
    degenerate: bool = False

    def __post_init__(self) -> None:
        if (
            min((*self.histogram, self.overshoot)) < 0
            or self.tokens != 1 + self.accepted + self.rounds - self.overshoot
        ):
            raise ValueError(f"counts of prompt {self.id!r} do not fit together: {self}")

    @classmethod
    def of(
        cls,
        id: str,
        category: str | None,
        accepted: Sequence[int],
        *,
        steps: int,
        overshoot: int = 0,
        capped: bool = False,
        degenerate: bool = False,
    ) -> PromptCounts:
        """From the accepted drafts of each round, in order."""
        histogram = tuple(sum(a == j for a in accepted) for j in range(steps + 1))
        if sum(histogram) != len(accepted):
            raise ValueError(f"prompt {id!r}: a round accepted more than {steps} drafts or fewer than none")
        tokens = 1 + sum(accepted) + len(accepted) - overshoot
        return cls(id, category, tokens, histogram, overshoot, capped, degenerate)

    @property
    def rounds(self) -> int:
        return sum(self.histogram)

    @property
    def accepted(self) -> int:
        return _added_up(self.histogram)

    @property
    def accept_len(self) -> float | None:
        """None for an answer that ended with its first token, which takes no round."""
        return 1 + self.accepted / self.rounds if self.rounds else None

    def to_dict(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "category": self.category,
            "tokens": self.tokens,
            "rounds": self.rounds,
            "accepted": self.accepted,
            "overshoot": self.overshoot,
            "capped": self.capped,
            "degenerate": self.degenerate,
            "accept_len": self.accept_len,
            "histogram": list(self.histogram),
        }


@dataclass(frozen=True)
class Acceptance:
    """The counts of a whole run. Make it by `pooled` or `from_counters`.

    `rounds`, `accepted` and `drafted` are S, A and D. `histogram[j]` rounds accepted exactly j drafts, j = 0..steps.
    `num_draft_tokens` is what one round verifies, the last emitted token included: steps + 1 for a chain (top-k 1).
    None is what the source of the counts does not tell; `unknown` lists it.

    Raises ValueError where the counts contradict each other, AuditError where there was no round at all: of nothing
    there is no accept_len.
    """

    steps: int
    rounds: int
    accepted: int
    drafted: int | None
    topk: int = 1
    num_draft_tokens: int | None = None
    histogram: tuple[int, ...] | None = None
    prompts: int | None = None
    tokens: int | None = None
    overshoot: int | None = None
    per_prompt: tuple[PromptCounts, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        if self.topk == 1 and self.num_draft_tokens is None:
            object.__setattr__(self, "num_draft_tokens", self.steps + 1)
        if self.rounds == 0:
            answers = "answers that all ended with their first token" if self.prompts else "no answers"
            raise AuditError(
                "no round was run, so there is no accept_len", answers, "give prompts that take longer answers"
            )
        broken = [told for told, holds in self._identities() if not holds]
        if broken:
            raise ValueError(f"counts of acceptance do not fit together: {'; '.join(broken)}: {self}")

    @classmethod
    def pooled(
        cls, per_prompt: Iterable[PromptCounts], *, steps: int, topk: int = 1, num_draft_tokens: int | None = None
    ) -> Acceptance:
        """The sums over prompts; a tree (`topk` above 1) needs its `num_draft_tokens`."""
        prompts = tuple(per_prompt)
        rounds, verified = sum(p.rounds for p in prompts), steps + 1 if topk == 1 else num_draft_tokens
        if verified is None:
            raise ValueError("a tree needs num_draft_tokens")
        return cls(
            steps=steps,
            topk=topk,
            num_draft_tokens=num_draft_tokens,
            rounds=rounds,
            accepted=sum(p.accepted for p in prompts),
            drafted=rounds * (verified - 1),
            histogram=tuple(map(sum, zip(*(p.histogram for p in prompts), strict=True))),
            prompts=len(prompts),
            tokens=sum(p.tokens for p in prompts),
            overshoot=sum(p.overshoot for p in prompts),
            per_prompt=prompts,
        )

    @classmethod
    def from_counters(
        cls,
        *,
        steps: int,
        rounds: int,
        accepted: int,
        drafted: int | None = None,
        per_position_counts: Sequence[int] | None = None,
        **told: Any,  # noqa: ANN401 - the other fields of the record, by name
    ) -> Acceptance:
        """From an engine's counters. `per_position_counts[i]` rounds accepted more than i drafts, i below steps.

        Nothing is made up: what is not given stays unknown. Per position and histogram are one fact in two forms.
        """
        if per_position_counts is not None:
            if len(per_position_counts) != steps:
                raise ValueError(f"{len(per_position_counts)} counts per position for {steps} steps")
            told["histogram"] = tuple(a - b for a, b in pairwise((rounds, *per_position_counts, 0)))
        return cls(steps=steps, rounds=rounds, accepted=accepted, drafted=drafted, **told)

    @property
    def accept_len(self) -> float:
        """1 + A/S, tokens per round."""
        return 1 + self.accepted / self.rounds

    @property
    def request_mean(self) -> float | None:
        """The mean over answers of 1 + A/S of each; answers that took no round have none and are left out."""
        each = [length for prompt in self.per_prompt if (length := prompt.accept_len) is not None]
        return sum(each) / len(each) if each else None

    @property
    def per_position_counts(self) -> tuple[int, ...] | None:
        """How many rounds accepted more than i drafts, i = 0..steps - 1."""
        if self.histogram is None:
            return None
        return tuple(sum(self.histogram[i + 1 :]) for i in range(self.steps))

    @property
    def per_position(self) -> tuple[float, ...] | None:
        """The share of all rounds that accepted the draft at each position: unconditional, so it never rises."""
        counts = self.per_position_counts
        return None if counts is None else tuple(count / self.rounds for count in counts)

    @property
    def conditional(self) -> tuple[float | None, ...] | None:
        """The share of rounds that accepted position i among those that accepted all before it; None for 0/0."""
        counts = self.per_position_counts
        if counts is None:
            return None
        return tuple(later / earlier if earlier else None for earlier, later in pairwise((self.rounds, *counts)))

    @property
    def accept_rate(self) -> float | None:
        """A/D, the share of drafted tokens that were accepted."""
        return self.accepted / self.drafted if self.drafted else None

    @property
    def stop(self) -> dict[str, int] | None:
        """How many answers ended by an end token and how many at the cap."""
        capped = sum(prompt.capped for prompt in self.per_prompt)
        return {"eos": len(self.per_prompt) - capped, "cap": capped} if self.per_prompt else None

    @property
    def degenerate(self) -> int | None:
        """How many answers loop."""
        return sum(prompt.degenerate for prompt in self.per_prompt) if self.per_prompt else None

    @property
    def unknown(self) -> tuple[str, ...]:
        """The counts that were not given, by name."""
        lacking = [name for name in _MAY_LACK if getattr(self, name) is None]
        return (*lacking, *(() if self.per_prompt else ("per_prompt",)))

    def to_dict(self) -> dict[str, Any]:
        return {
            "accept_len": self.accept_len,
            "accept_len_request_mean": self.request_mean,
            "rounds": self.rounds,
            "accepted": self.accepted,
            "drafted": self.drafted,
            "accept_rate": self.accept_rate,
            "tokens": self.tokens,
            "overshoot": self.overshoot,
            "histogram": _listed(self.histogram),
            "per_position": _listed(self.per_position),
            "per_position_counts": _listed(self.per_position_counts),
            "conditional": _listed(self.conditional),
            "steps": self.steps,
            "topk": self.topk,
            "num_draft_tokens": self.num_draft_tokens,
            "stop": self.stop,
            "degenerate": self.degenerate,
            "per_prompt": [prompt.to_dict() for prompt in self.per_prompt] if self.per_prompt else None,
            "unknown": list(self.unknown),
        }

    def _identities(self) -> Iterable[tuple[str, bool]]:
        yield "no count is negative", min(self.accepted, self.rounds, self.drafted or 0, self.overshoot or 0) >= 0
        yield "at least one step, top-k 1 or more", self.steps >= 1 and self.topk >= 1
        yield "a round accepts at most one draft a step", self.accepted <= self.rounds * self.steps
        yield from self._identities_of_drafts()
        if self.histogram is not None:
            yield "the histogram has a place for 0..steps", len(self.histogram) == self.steps + 1
            yield "no place of the histogram is negative (per position never rises)", min(self.histogram) >= 0
            yield "the histogram adds up to the rounds", sum(self.histogram) == self.rounds
            yield "j times the histogram adds up to what was accepted", _added_up(self.histogram) == self.accepted
        if self.tokens is not None and self.prompts is not None and self.overshoot is not None:
            emitted = self.prompts + self.accepted + self.rounds - self.overshoot
            yield "tokens are prompts + accepted + rounds - overshoot", self.tokens == emitted
        if self.per_prompt:
            yield from self._identities_with_prompts()

    def _identities_of_drafts(self) -> Iterable[tuple[str, bool]]:
        if self.topk == 1:
            yield "a chain verifies steps + 1 tokens", self.num_draft_tokens == self.steps + 1
        if self.drafted is not None:
            yield "no more is accepted than was drafted", self.accepted <= self.drafted
        if self.drafted is not None and self.num_draft_tokens is not None:
            # An engine drafts less near the longest context, so its counter may stay below.
            most = self.rounds * (self.num_draft_tokens - 1)
            yield "each round drafts the same number", self.drafted <= most
            yield "each round of our own drafts all of it", not self.per_prompt or self.drafted == most

    def _identities_with_prompts(self) -> Iterable[tuple[str, bool]]:
        told = (len(self.per_prompt), *(sum(getattr(p, name) for p in self.per_prompt) for name in _ADD_UP))
        yield "prompts add up to the whole", told == (self.prompts, *(getattr(self, name) for name in _ADD_UP))
        places = {len(prompt.histogram) for prompt in self.per_prompt}
        yield "each prompt's histogram has a place for 0..steps", places == {self.steps + 1}
        summed = tuple(map(sum, zip(*(prompt.histogram for prompt in self.per_prompt), strict=False)))
        yield "the prompts' histograms add up to the whole", summed == self.histogram
        ids = {prompt.id for prompt in self.per_prompt}
        yield "no prompt's id comes twice", len(ids) == len(self.per_prompt)


_ADD_UP = ("tokens", "rounds", "accepted", "overshoot")
_MAY_LACK = ("drafted", "histogram", "prompts", "tokens", "overshoot")


def _added_up(histogram: Sequence[int]) -> int:
    return sum(j * count for j, count in enumerate(histogram))


def _listed(values: Sequence[Any] | None) -> list[Any] | None:
    return None if values is None else list(values)
