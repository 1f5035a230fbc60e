"""The reference loop's answers, prompt by prompt, as plain data: what an engine's are set beside."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from drafter_audit.measure.acceptance import PromptCounts

if TYPE_CHECKING:
    from drafter_audit.decode.replay import ReplayedPrompt, ReplayRun
    from drafter_audit.drafter.wiring import Wiring
    from drafter_audit.recording.recording import Recording


@dataclass(frozen=True)
class ReferencePrompt:
    """One answer. `emitted` by each round, in order, up to the answer's end; `ids` are its tokens.

    `ties` are the tokens, counted from 0, that the target chose by so little that rounding may choose otherwise.
    `close`: whether the drafter chose any draft so that decided a round.
    """

    counts: PromptCounts
    emitted: tuple[int, ...]
    ids: tuple[int, ...]
    ties: tuple[int, ...] = ()
    close: bool = False

    @property
    def is_exact(self) -> bool:
        """Whether any loop that computes the same must run the same rounds."""
        return not self.ties and not self.close


@dataclass(frozen=True)
class Reference:
    """The reference loop under `wiring`, which an engine's `release` claims; `differs` are the knobs on which that
    departs from the declared one. `declared` are the same prompts under the declared wiring, None where it cannot be
    replayed, or is the same. `notes` say how the claim is to be read."""

    release: str
    wiring: Wiring
    differs: tuple[str, ...]
    prompts: tuple[ReferencePrompt, ...]
    declared: tuple[ReferencePrompt, ...] | None = None
    notes: tuple[str, ...] = ()


def reference_prompts(run: ReplayRun, recording: Recording, below: float) -> tuple[ReferencePrompt, ...]:
    """The answers of a replay of `recording`; two logits closer than `below` are a tie. Raises RecordingError."""
    pairs = zip(run.prompts, recording.prompts(()), strict=True)
    return tuple(_prompt(run, replayed, recorded.tokens.tolist(), below) for replayed, recorded in pairs)


def _prompt(run: ReplayRun, replayed: ReplayedPrompt, tokens: list[int], below: float) -> ReferencePrompt:
    counts, answered = replayed.counts(run.shape), len(replayed.matches) + 1
    first = len(tokens) - len(replayed.gaps)
    return ReferencePrompt(
        counts,
        tuple(_emitted(replayed, run, counts.overshoot)),
        tuple(tokens[first : first + answered]),
        tuple(place for place, _ in replayed.ties(run.shape, below)),
        replayed.close_drafts(run.shape, below) > 0,
    )


def _emitted(replayed: ReplayedPrompt, run: ReplayRun, overshoot: int) -> Iterator[int]:
    from drafter_audit.decode.replay import rounds_of

    rounds = [accepted + 1 for _, accepted in rounds_of(replayed.matches.tolist(), run.shape.deepest)]
    yield from rounds[:-1]
    yield from (each - overshoot for each in rounds[-1:])
