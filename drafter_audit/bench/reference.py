"""An engine's rounds beside those of the reference loop, wired as that engine says it wires the drafter.

Both answered the same prompts, so they are compared prompt by prompt. A gap that chance does not make is the engine's:
its own wiring is already in the reference. Where greedy answers are the same tokens and nothing stood at a tie, both
must have run the very same rounds, so one request that differs shows where the gap opens.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from drafter_audit.bench.counting import DEFINITION, SERVER_DEFINITION
from drafter_audit.bench.opening import Opening, Pairs, counts_agree, interval_of, less, opening, parted
from drafter_audit.bench.result import EngineResult
from drafter_audit.bench.wire import Answer
from drafter_audit.decode.reference import Reference, ReferencePrompt
from drafter_audit.measure.bars import LEAST_PROMPTS

if TYPE_CHECKING:
    from drafter_audit.measure.bootstrap import Difference, Ratio

Name = Literal["engine", "healthy", "inconclusive"]


def beside(result: EngineResult, recording: str, references: Sequence[Reference]) -> Beside:
    """Of several claims the one that the engine's figure lies nearest to: a server does not tell its runner."""
    each = [Beside(result, recording, reference) for reference in references]
    return min(each, key=lambda one: abs(one.difference.difference) if one.difference else float("inf"))


@dataclass(frozen=True)
class Beside:
    """A measured engine and the reference. `reference` is None where no wiring is claimed or it cannot be replayed, and
    `why_not` says why."""

    result: EngineResult
    recording: str
    reference: Reference | None
    why_not: str = ""

    @property
    def _pairs(self) -> Pairs:
        prompts = self.reference.prompts if self.reference else ()
        return list(zip(self.result.answers, prompts, strict=bool(prompts)))

    @property
    def tells_accepted(self) -> bool:
        """Whether the engine tells what each answer's rounds accepted; else N/S is compared with N/S."""
        return all(answer.counts and answer.counts.accepted is not None for answer in self.result.answers)

    @cached_property
    def difference(self) -> Difference | None:
        """The engine's accept_len less the reference's, paired by prompt."""
        ours, theirs = [_ratio(a, self.tells_accepted) for a, _ in self._pairs], self._ratios(self._pairs)
        return self._less(theirs, ours)

    @cached_property
    def cost(self) -> Difference | None:
        """accept_len of the reference under the claimed wiring less that under the declared one."""
        if self.reference is None or self.reference.declared is None:
            return None
        claimed, declared = ([_accepted(p) for p in each] for each in (self.reference.prompts, self.reference.declared))
        return self._less(declared, claimed)

    @cached_property
    def accept_len(self) -> float | None:
        """The reference's own, 1 + A/S."""
        counts = [prompt.counts for prompt in self.reference.prompts] if self.reference else []
        rounds = sum(each.rounds for each in counts)
        return 1 + sum(each.accepted for each in counts) / rounds if rounds else None

    @cached_property
    def interval(self) -> tuple[float, float] | None:
        from drafter_audit.measure.bootstrap import interval_of_rounds

        prompts = self.reference.prompts if self.reference else ()
        return interval_of_rounds([_accepted(prompt) for prompt in prompts], seed=self._seed)

    @property
    def same_text(self) -> int:
        """Answers that are the recorded ones, token by token."""
        return sum(answer.ids == prompt.ids for answer, prompt in self._pairs)

    @property
    def same_counts(self) -> int:
        """Answers whose rounds and accepted drafts are the reference's."""
        return sum(counts_agree(answer, prompt) for answer, prompt in self._pairs)

    @property
    def partings(self) -> tuple[tuple[str, int], ...]:
        """Greedy answers that leave the recorded one where its target stood at no tie: prompt, and token from 0."""
        if self.result.provenance.temperature:
            return ()
        places = ((a, p, parted(a.ids, p.ids)) for a, p in self._pairs if a.ids is not None)
        return tuple((a.id, place) for a, p, place in places if place is not None and place not in p.ties)

    @cached_property
    def opens_at(self) -> Opening | None:
        return opening(
            self._pairs, self.result.counted.steps, greedy=not self.result.provenance.temperature, seed=self._seed
        )

    @property
    def verdict(self) -> Name:
        gap = self.difference
        if gap is None or gap.prompts < LEAST_PROMPTS:
            return "inconclusive"
        return "engine" if gap.is_sure or self.costs else "healthy"

    @property
    def costs(self) -> bool:
        """Whether the claimed wiring itself is worse than the declared one."""
        return self.cost is not None and self.cost.is_sure and self.cost.difference < 0

    def to_dict(self) -> dict[str, Any]:
        reference, gap = self.reference, self.difference
        told = {
            "recording": self.recording,
            "release": reference.release if reference else None,
            "wiring": reference.wiring.to_dict() if reference else None,
            "differs": list(reference.differs) if reference else None,
            "accept_len": self.accept_len,
            "interval": None if self.interval is None else list(self.interval),
            "definition": DEFINITION if self.tells_accepted else SERVER_DEFINITION,
            "difference": gap.difference if gap else None,
            "difference_interval": interval_of(gap),
            "claim_cost": self.cost.difference if self.cost else None,
            "claim_cost_interval": interval_of(self.cost),
            "opens_at": self.opens_at.to_dict() if self.opens_at else None,
            "requests": {"paired": gap.prompts if gap else 0, "same_text": self.same_text, "same": self.same_counts},
            "partings": [{"request": name, "token": place} for name, place in self.partings],
            "not_compared": self.why_not or None,
            "notes": list(reference.notes) if reference else [],
        }
        return {"verdict": self.verdict, "reasons": list(self.reasons), "reference": told}

    @property
    def reasons(self) -> tuple[str, ...]:
        """Of the verdict, in sentences."""
        return tuple(self._reasons())

    def _reasons(self) -> Iterator[str]:
        reference, gap = self.reference, self.difference
        if reference is None or gap is None:
            yield f"there is no reference to set it beside: {self.why_not or 'no prompt took rounds in both'}"
            return
        paired = f"on {gap.prompts} prompts it differs from the reference loop by {_signed(gap)}"
        if gap.prompts < LEAST_PROMPTS:
            yield f"{paired}: of fewer than {LEAST_PROMPTS} that tells nothing"
        elif gap.is_sure:
            yield f"{paired}, wired as {reference.release} says it wires the drafter: the gap is the engine's own"
        else:
            yield f"{paired}, wired as {reference.release} says it wires the drafter: no more than chance makes"
        if self.cost is not None and self.costs:
            wired = f"{reference.release} wires {', '.join(reference.differs)} otherwise than declared"
            yield f"{wired}, which by itself changes accept_len by {_signed(self.cost)}"
        if self.partings:
            name, place = self.partings[0]
            share = f"{len(self.partings)} of {len(self.result.answers)} answers"
            parted = f"{share} leave the recorded text where there is no tie, {name} at token {place} first"
            yield f"{parted}: the server's target is another, or computes otherwise"

    @property
    def _seed(self) -> int:
        return self.result.provenance.seed

    def _less(self, a: Sequence[Ratio], b: Sequence[Ratio]) -> Difference | None:
        return less(a, b, self._seed)

    def _ratios(self, pairs: Pairs) -> list[Ratio]:
        return [_accepted(p) if self.tells_accepted else (p.counts.tokens, p.counts.rounds) for _, p in pairs]


def _ratio(answer: Answer, accepted: bool) -> Ratio:
    counts = answer.counts
    if counts is None:
        return 0, 0
    return (counts.accepted or 0) if accepted else answer.tokens, counts.rounds


def _accepted(prompt: ReferencePrompt) -> Ratio:
    return prompt.counts.accepted, prompt.counts.rounds


def _signed(found: Difference) -> str:
    within = "" if found.interval is None else " [{:+.3f}, {:+.3f}]".format(*found.interval)
    return f"{found.difference:+.3f}{within}"
