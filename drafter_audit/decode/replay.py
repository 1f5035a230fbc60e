"""Replay: how many drafts a target accepts, from a recording of it alone.

What greedy speculation emits is what the target would have written, and a round drafts from true states only: those
of rejected drafts are thrown away, the drafter's own of accepted ones are computed again. So a recording tells how many
drafts a round accepts wherever it starts, and each round tells where the next one does. On a sampled recording a draft
x is accepted where the target drew x, which it does with probability p(x), as the live loop accepts it: so the counts
there are distributed as the live loop's. A tree is grown from true states alone too, and the target's own tokens tell
the path through it that is accepted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from drafter_audit.decode.fit import check_fits, check_verified, states_for
from drafter_audit.decode.result import Rule, Tie
from drafter_audit.decode.ties import tie_below
from drafter_audit.drafter.spec import DrafterSpec
from drafter_audit.errors import CannotRunError
from drafter_audit.measure.acceptance import PromptCounts
from drafter_audit.measure.shape import Shape, shape_of
from drafter_audit.model.choices import Choices, branches, choices
from drafter_audit.model.drafter import Drafter
from drafter_audit.model.trees import Candidates
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

    In rounds of trees the drafts are nodes, `drafts` [size, N-1], and `parents` int64 [size, N-1] say which node each
    follows, as `Trees` numbers them; `matches` are those on the path that the target takes. `draft_gaps` [1, N-1] is
    then the least in log-probability by which a draft was chosen over another.
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
    parents: Tensor | None = None

    def counts(self, shape: Shape) -> PromptCounts:
        """What the answer takes in rounds of that shape: of a tree the one that was replayed, of chains any up to as
        many steps."""
        return self._counts(self.matches, shape)

    def ceiling(self, shape: Shape) -> PromptCounts:
        """The same for a drafter that is right wherever its vocabulary has the target's token."""
        return self._counts(self.covered, shape)

    def ties(self, shape: Shape, below: float) -> Iterator[tuple[int, float]]:
        """The answer tokens, counted from 0, that the target chose by less than `below`, and the gap: of all that
        the rounds emit, past the end too."""
        rounds = list(rounds_of(self.matches.tolist(), shape.deepest))
        emitted = sum(rounds[-1]) + 2 if rounds else 1
        for place in (self.gaps[:emitted] < below).nonzero()[:, 0].tolist():
            yield place, float(self.gaps[place])

    def close_drafts(self, shape: Shape, below: float) -> int:
        """How many of the drafts that decided a round, or of the trees, the drafter chose by less than `below`."""
        rounds = rounds_of(self.matches.tolist(), shape.deepest)
        decided = (self.draft_gaps[: min(accepted + 1, shape.steps), start] for start, accepted in rounds)
        return sum(int((gaps < below).sum()) for gaps in decided)

    def _counts(self, matches: Tensor, shape: Shape) -> PromptCounts:
        rounds = list(rounds_of(matches.tolist(), shape.deepest))
        end = sum(rounds[-1]) + 1 if rounds else 0
        accepted, flags = [one for _, one in rounds], {"capped": self.capped, "degenerate": self.degenerate}
        return PromptCounts.of(
            self.id, self.category, accepted, steps=shape.steps, overshoot=end - len(matches), **flags
        )


@dataclass(frozen=True)
class ReplayRun:
    """A drafter over a recording, in rounds of `shape`.

    `dtype` is the one that it ran in; `notes` tell how it was loaded, `lacks` what the recording does not hold.
    """

    spec: DrafterSpec
    manifest: Manifest
    shape: Shape
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

    def counts(self) -> tuple[PromptCounts, ...]:
        return tuple(prompt.counts(self.shape) for prompt in self.prompts)

    def ceiling(self) -> tuple[PromptCounts, ...]:
        return tuple(prompt.ceiling(self.shape) for prompt in self.prompts)

    def ties(self) -> tuple[Tie, ...]:
        """The decisions of the target at which the live loop may rightly go another way. A sampled recording has none:
        its tokens were drawn."""
        told = ((p.id, *tie) for p in self.prompts for tie in p.ties(self.shape, tie_below(self.manifest.dtype)))
        return () if self.sampled else tuple(Tie(*one) for one in told)

    def close_drafts(self) -> int:
        """The like of the drafter."""
        return sum(prompt.close_drafts(self.shape, tie_below(self.dtype)) for prompt in self.prompts)

    @property
    def coverage(self) -> float:
        """The share of the answers' tokens that have a draft id."""
        return sum(prompt.held for prompt in self.prompts) / sum(len(prompt.matches) + 1 for prompt in self.prompts)


def replay(
    drafter: Drafter, recording: Recording, steps: int, *, watch: Callable[[int], None] = lambda _: None
) -> ReplayRun:
    """Every prompt of `recording`, drafted for by `drafter`, in chains of `steps`. `watch` is told how many are done.

    Raises UsageError for more steps than the recording looks ahead, CannotRunError for a recording of another target or
    without the drafter's boundaries, and what reading it raises.
    """
    (run,) = replay_shapes(drafter, recording, [shape_of(steps)], watch=watch)
    return run


def replay_shapes(
    drafter: Drafter, recording: Recording, shapes: Sequence[Shape], *, watch: Callable[[int], None] = lambda _: None
) -> tuple[ReplayRun, ...]:
    """As `replay`, in rounds of each of `shapes`, from one reading of the recording. What is of one top-k is drafted
    once, for the most steps. Also raises UsageError for trees on a recording that was sampled."""
    for shape in shapes:
        check_fits(drafter.spec, drafter.wiring, recording.manifest, shape.steps)
        check_verified(recording.manifest, shape)
    known = known_tokens(drafter, recording.manifest.vocab_size)
    done = list[list[ReplayedPrompt]]()
    for prompt in recording.prompts(sorted(set(drafter.wiring.boundaries or ()))):
        done.append(replay_prompt(drafter, prompt, shapes, known))
        watch(len(done))
    prompts = zip(*done, strict=True) if done else [()] * len(shapes)
    loaded = drafter.loaded
    run = ReplayRun(drafter.spec, recording.manifest, shapes[0], (), loaded.dtype, loaded.notes, recording.lacks)
    return tuple(replace(run, shape=shape, prompts=tuple(each)) for shape, each in zip(shapes, prompts, strict=True))


def replay_prompt(
    drafter: Drafter, prompt: RecordedPrompt, shapes: Sequence[Shape], known: Tensor
) -> list[ReplayedPrompt]:
    """One prompt, in rounds of each shape. `known` bool [vocabulary] marks the target's tokens that have a draft id.
    Raises CannotRunError."""
    starts, first = prompt.answer_length - 1, prompt.prompt_length - 1
    own = _own(prompt.tokens[first + 2 :], max(shape.steps for shape in shapes), starts)
    states = states_for(drafter, prompt)[:, : first + starts]
    drafted = _drafted(drafter, (prompt.tokens[1:], states, first), shapes)
    return [
        ReplayedPrompt(
            id=prompt.id,
            category=prompt.category,
            capped=prompt.capped,
            degenerate=prompt.degenerate,
            held=int(known[prompt.tokens[first + 1 : first + 2 + starts]].sum()),
            covered=_leading(known[own]),
            gaps=prompt.gaps,
            **_matched(drafted[shape.topk], shape, own),
        )
        for shape in shapes
    ]


def _drafted(
    drafter: Drafter, given: tuple[Tensor, Tensor, int], shapes: Sequence[Shape]
) -> dict[int, Choices | Candidates]:
    """By top-k, what the most steps of it draft. `given` are tokens, states and the first position."""
    (tokens, states, first), found = given, dict[int, Choices | Candidates]()
    for topk in sorted({shape.topk for shape in shapes}):
        steps = max(shape.steps for shape in shapes if shape.topk == topk)
        if topk == 1:
            found[topk] = choices(drafter, tokens, states, steps, first)
        else:
            found[topk] = branches(drafter, tokens, states, steps, topk, first)
    return found


def _matched(drafted: Choices | Candidates, shape: Shape, own: Tensor) -> dict[str, Tensor]:
    """The drafts of rounds of that shape, and how many of each start's are the target's `own` [steps, starts]."""
    if isinstance(drafted, Choices):
        ids, gaps = drafted.ids[: shape.steps], drafted.gaps[: shape.steps]
        return {"drafts": ids, "draft_gaps": gaps, "matches": _leading(ids == own[: shape.steps])}
    trees = drafted.trees(shape)
    depths = trees.depths()
    said = own.T.gather(1, depths.clamp(max=len(own) - 1))  # what comes after the deepest nodes is not asked for
    matches = torch.where(trees.standing(said), depths, 0).amax(dim=1)
    return {"drafts": trees.tokens.T, "parents": trees.parents.T, "draft_gaps": trees.gaps[None], "matches": matches}


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
