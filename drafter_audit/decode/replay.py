"""Replay: how many drafts a target accepts, from a recording of it alone.

What greedy speculation emits is what the target would have written, and a round drafts from true states only: those
of rejected drafts are thrown away, the drafter's own of accepted ones are computed again. So a recording tells how many
drafts a round accepts wherever it starts, and each round tells where the next one does. On a sampled recording a draft
x is accepted where the target drew x, which it does with probability p(x), as the live loop accepts it: so the counts
there are distributed as the live loop's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from drafter_audit.decode.fit import check_fits, states_for
from drafter_audit.decode.result import Rule, Tie
from drafter_audit.decode.ties import tie_below
from drafter_audit.drafter.spec import DrafterSpec
from drafter_audit.errors import CannotRunError
from drafter_audit.measure.acceptance import PromptCounts
from drafter_audit.model.choices import choices
from drafter_audit.model.drafter import Drafter
from drafter_audit.recording.manifest import Manifest
from drafter_audit.recording.recording import RecordedPrompt, Recording


@dataclass(frozen=True)
class ReplayedPrompt:
    """One answer of N tokens under one drafter.

    Start i, 0..N-2, is a round that begins when answer tokens 0..i are out: it drafts from the state of the token
    before token i, paired with token i. `held` of the answer's tokens have a draft id. `drafts` int64 [steps, N-1] are
    the target ids drafted. `matches` int64 [N-1] counts those that are the target's own tokens, up to the first that is
    not; `covered` int64 [N-1] counts which of these own tokens have a draft id, up to the first that has none. `gaps`
    float32 [N + lookahead] are the target's, of each token after the prompt, and `draft_gaps` float32 [steps, N-1] the
    drafter's: how far the likeliest logit stood above the second.
    """

    id: str
    category: str | None
    capped: bool
    degenerate: bool
    held: int
    drafts: Tensor
    matches: Tensor
    covered: Tensor
    gaps: Tensor
    draft_gaps: Tensor

    def counts(self, steps: int) -> PromptCounts:
        """What the answer takes in rounds of `steps` drafts, at most as many as were replayed."""
        return self._counts(self.matches, steps)

    def ceiling(self, steps: int) -> PromptCounts:
        """The same for a drafter that is right wherever its vocabulary has the target's token."""
        return self._counts(self.covered, steps)

    def ties(self, steps: int, below: float) -> Iterator[tuple[int, float]]:
        """The answer tokens, counted from 0, that the target chose by less than `below`, and the gap: of all that
        rounds of `steps` drafts emit, past the end too."""
        rounds = list(rounds_of(self.matches.tolist(), steps))
        emitted = sum(rounds[-1]) + 2 if rounds else 1
        for place in (self.gaps[:emitted] < below).nonzero()[:, 0].tolist():
            yield place, float(self.gaps[place])

    def close_drafts(self, steps: int, below: float) -> int:
        """How many of the drafts that decided a round the drafter chose by less than `below`."""
        rounds = rounds_of(self.matches.tolist(), steps)
        decided = (self.draft_gaps[: min(accepted + 1, steps), start] for start, accepted in rounds)
        return sum(int((gaps < below).sum()) for gaps in decided)

    def _counts(self, matches: Tensor, steps: int) -> PromptCounts:
        rounds = list(rounds_of(matches.tolist(), steps))
        end = sum(rounds[-1]) + 1 if rounds else 0
        accepted, flags = [one for _, one in rounds], {"capped": self.capped, "degenerate": self.degenerate}
        return PromptCounts.of(self.id, self.category, accepted, steps=steps, overshoot=end - len(matches), **flags)


@dataclass(frozen=True)
class ReplayRun:
    """A drafter over a recording: everything at any number of steps up to `steps`.

    `dtype` is the one that it ran in; `notes` tell how it was loaded, `lacks` what the recording does not hold.
    """

    spec: DrafterSpec
    manifest: Manifest
    steps: int
    prompts: tuple[ReplayedPrompt, ...]
    dtype: str = "float32"
    notes: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()

    @property
    def sampled(self) -> bool:
        return self.manifest.temperature > 0

    @property
    def rule(self) -> Rule:
        return "argmax_draft" if self.sampled else "greedy"

    def counts(self, steps: int | None = None) -> tuple[PromptCounts, ...]:
        return tuple(prompt.counts(steps or self.steps) for prompt in self.prompts)

    def ceiling(self, steps: int | None = None) -> tuple[PromptCounts, ...]:
        return tuple(prompt.ceiling(steps or self.steps) for prompt in self.prompts)

    def ties(self, steps: int | None = None) -> tuple[Tie, ...]:
        """The decisions of the target at which the live loop may rightly go another way. A sampled recording has none:
        its tokens were drawn."""
        told = (
            (p.id, *tie) for p in self.prompts for tie in p.ties(steps or self.steps, tie_below(self.manifest.dtype))
        )
        return () if self.sampled else tuple(Tie(*one) for one in told)

    def close_drafts(self, steps: int | None = None) -> int:
        """The like of the drafter."""
        return sum(prompt.close_drafts(steps or self.steps, tie_below(self.dtype)) for prompt in self.prompts)

    @property
    def coverage(self) -> float:
        """The share of the answers' tokens that have a draft id."""
        return sum(prompt.held for prompt in self.prompts) / sum(len(prompt.matches) + 1 for prompt in self.prompts)


def replay(
    drafter: Drafter, recording: Recording, steps: int, *, watch: Callable[[int], None] = lambda _: None
) -> ReplayRun:
    """Every prompt of `recording`, drafted for by `drafter`, `steps` drafts a round. `watch` is told how many are done.

    Raises UsageError for more steps than the recording looks ahead, CannotRunError for a recording of another target or
    without the drafter's boundaries, and what reading it raises.
    """
    check_fits(drafter.spec, drafter.wiring, recording.manifest, steps)
    known = known_tokens(drafter, recording.manifest.vocab_size)
    done = []
    for prompt in recording.prompts(sorted(set(drafter.wiring.boundaries or ()))):
        done.append(replay_prompt(drafter, prompt, steps, known))
        watch(len(done))
    return ReplayRun(
        drafter.spec,
        recording.manifest,
        steps,
        tuple(done),
        drafter.loaded.dtype,
        drafter.loaded.notes,
        recording.lacks,
    )


def replay_prompt(drafter: Drafter, prompt: RecordedPrompt, steps: int, known: Tensor) -> ReplayedPrompt:
    """One prompt. `known` bool [vocabulary] marks the target's tokens that have a draft id. Raises CannotRunError."""
    starts, first = prompt.answer_length - 1, prompt.prompt_length - 1
    states = states_for(drafter, prompt)[:, : first + starts]
    found = choices(drafter, prompt.tokens[1:], states, steps, first)
    own = _own(prompt.tokens[first + 2 :], steps, starts)
    return ReplayedPrompt(
        id=prompt.id,
        category=prompt.category,
        capped=prompt.capped,
        degenerate=prompt.degenerate,
        held=int(known[prompt.tokens[first + 1 : first + 2 + starts]].sum()),
        drafts=found.ids,
        matches=_leading(found.ids == own),
        covered=_leading(known[own]),
        gaps=prompt.gaps,
        draft_gaps=found.gaps,
    )


def rounds_of(matches: Sequence[int], steps: int) -> Iterator[tuple[int, int]]:
    """(start, accepted drafts) of each round. The prefill emits the first token; a round emits what it accepted and one
    token of the target's, and counts whole where that passes the end."""
    start = 0
    while start < len(matches):
        accepted = min(matches[start], steps)
        yield start, accepted
        start += accepted + 1


def _own(tokens: Tensor, steps: int, starts: int) -> Tensor:
    """The target's own tokens that drafts are held to, [steps, starts]: draft k of start i is held to tokens[i + k]."""
    return tokens[torch.arange(steps)[:, None] + torch.arange(starts)]


def _leading(right: Tensor) -> Tensor:
    """How many of each column [steps, n] are true before the first that is not, [n]."""
    return right.long().cumprod(dim=0).sum(dim=0)


def known_tokens(drafter: Drafter, vocabulary: int) -> Tensor:
    """Which of the target's tokens, bool [vocabulary], have a draft id. Raises CannotRunError for others."""
    ids = drafter.target_ids(torch.arange(len(drafter.network.head.weight))).cpu()
    if int(ids.min()) < 0 or int(ids.max()) >= vocabulary:
        what = f"it drafts tokens {int(ids.min())}..{int(ids.max())}, the recorded target has {vocabulary}"
        raise CannotRunError(what, drafter.spec.name, "record the target that it was trained for")
    known = torch.zeros(vocabulary, dtype=torch.bool)
    known[ids] = True
    return known
