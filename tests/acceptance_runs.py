"""Runs of chains to draw: rounds as a loop would count them."""

from __future__ import annotations

from hypothesis import strategies as st

from drafter_audit.measure.acceptance import Acceptance, PromptCounts


@st.composite
def answers(draw: st.DrawFn, steps: int, id: str) -> PromptCounts:
    """One prompt's rounds, at least one; of the last one's tokens all but the first may lie past the end."""
    accepted = draw(st.lists(st.integers(0, steps), min_size=1, max_size=12))
    return PromptCounts.of(
        id,
        draw(st.sampled_from(["code", "maths", None])),
        accepted,
        steps=steps,
        overshoot=draw(st.integers(0, accepted[-1])),
        capped=draw(st.booleans()),
        degenerate=draw(st.booleans()),
    )


@st.composite
def runs(draw: st.DrawFn) -> Acceptance:
    steps, prompts = draw(st.integers(1, 6)), draw(st.integers(1, 5))
    return Acceptance.pooled([draw(answers(steps, f"p{i}")) for i in range(prompts)], steps=steps)
