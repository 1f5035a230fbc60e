"""Runs of chains to draw: rounds as a loop would count them."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from drafter_audit.measure.acceptance import Acceptance, PromptCounts

# Counts are cheap to draw, but a busy machine makes hypothesis think otherwise.
drawn = settings(derandomize=True, deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])


@st.composite
def runs(draw: st.DrawFn) -> Acceptance:
    """Up to five answers of at least one round; of the last one's tokens all but the first may lie past the end."""
    steps = draw(st.integers(1, 6))
    answer = st.tuples(st.lists(st.integers(0, steps), min_size=1, max_size=12), st.integers(0, 6), st.booleans())
    prompts = [
        PromptCounts.of(f"p{i}", None, accepted, steps=steps, overshoot=min(over, accepted[-1]), capped=capped)
        for i, (accepted, over, capped) in enumerate(draw(st.lists(answer, min_size=1, max_size=5)))
    ]
    return Acceptance.pooled(prompts, steps=steps)
