"""With what a figure was measured, and how its answers ended, in sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from drafter_audit.decode.result import Provenance, Tie
from drafter_audit.drafter.target import UNQUANTISED
from drafter_audit.measure.acceptance import Acceptance
from drafter_audit.report.document import Lines
from drafter_audit.report.numbers import count, share

_PLACES_SHOWN = 5
_THINKING = {True: ", thinking on", False: ", thinking off", None: ""}
_RULES = {
    "greedy": "a draft is accepted where it is the target's likeliest token",
    "argmax_draft": "the drafter's likeliest token is drafted and accepted with the target's probability of it",
}


def measured_with(provenance: Provenance) -> Lines:
    target, prompts = provenance.target, provenance.prompts
    thinking = _THINKING[provenance.thinking]
    form = "raw, without the chat template" if provenance.raw else f"with the chat template{thinking}"
    form = "as token ids" if provenance.as_tokens else form
    tie = "" if provenance.tie_epsilon is None else f"; a gap of logits below {provenance.tie_epsilon:g} is a tie"
    packed = "not quantized" if target.quantization == UNQUANTISED else target.quantization
    kind = ", ".join(filter(None, [target.dtype or "dtype not told", packed]))
    return Lines(
        (
            f"drafter: {at(provenance.drafter.ref, provenance.drafter.revision)}",
            f"target: {at(target.ref, target.revision)} ({kind}), {provenance.mode}",
            f"prompts: {count(prompts.count)} of {prompts.name} (sha256 {prompts.sha256[:12]}), {form}",
            f"temperature {provenance.temperature:g}, seed {provenance.seed}: {_RULES[provenance.rule]}{tie}",
        ),
        "Measured with",
    )


def at(ref: str, revision: str | None) -> str:
    return f"{ref} @ {revision[:12]}" if revision else ref


def answers(acceptance: Acceptance, coverage: float | None) -> Iterator[str]:
    """How many answers and tokens, how they ended, and what the draft vocabulary holds of them."""
    if acceptance.prompts is not None and acceptance.tokens is not None:
        yield f"{count(acceptance.prompts)} answers, {count(acceptance.tokens)} tokens"
    if acceptance.stop is not None:
        told = f"{count(acceptance.stop['eos'])} ended by an end token, {count(acceptance.stop['cap'])} at the cap"
        yield f"{told}; {count(acceptance.degenerate)} loop"
    if coverage is not None:
        yield f"the draft vocabulary holds {share(coverage)} of the answers' tokens"


def places(what: str, ties: Sequence[Tie]) -> Iterator[str]:
    """Counted, and the first few listed; all are in the JSON."""
    if ties:
        shown = ", ".join(f"{tie.prompt} at {tie.position} ({tie.gap:.1e})" for tie in ties[:_PLACES_SHOWN])
        more = f" and {len(ties) - _PLACES_SHOWN:,} more, see --format json" if len(ties) > _PLACES_SHOWN else ""
        yield f"{what}, {len(ties):,} by answer token (gap): {shown}{more}"


TIES = "ties, which rounding decides"
