"""Trees of drafts as EAGLE-2 grows them, for many starts at once; what a step computes is left to the caller.

Both peers were read: SafeAILab EAGLE cb7e084, `eagle/model/cnets.py` (`topK_genrate`), and SGLang,
`srt/speculative/spec_utils.py` (`select_top_k_tokens`) and `eagle_utils.py` (`organize_draft_results`). They choose the
same: SGLang multiplies probabilities where EAGLE adds their logarithms, as is done here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from drafter_audit.measure.shape import Shape, drafted_by


@dataclass(frozen=True)
class Likeliest:
    """The k likeliest drafts at each place, likeliest first: target `ids` int64 [..., k] and their `log_probs` float32
    [..., k]. `gaps` float32 [...]: how far the last of them stood above the next, infinite where there is none."""

    ids: Tensor
    log_probs: Tensor
    gaps: Tensor


Advance = Callable[[Tensor, Tensor], Likeliest]
"""(tokens int64 [n, k], origins int64 [n, k]) -> [n, k, k]: each of n starts has k beams, each of which reads its token
one step after the beam `origins` of the step before; before the first step all are the same."""


@dataclass(frozen=True)
class Trees:
    """n trees of the same size. Node 0 is the last token of the text; node i is draft i - 1, int64 `tokens` [n, size],
    and follows node `parents` [n, size], which is of a smaller number. `gaps` float32 [n]: the least by which a draft
    was chosen over one that was not, in log-probability."""

    tokens: Tensor
    parents: Tensor
    gaps: Tensor

    def depths(self) -> Tensor:
        """How many drafts lead to each node, itself included: int64 [n, 1 + size]."""
        found = torch.zeros((len(self.tokens), 1 + self.tokens.shape[1]), dtype=torch.int64)
        for place in range(self.tokens.shape[1]):
            found[:, place + 1] = 1 + found.gather(1, self.parents[:, place : place + 1])[:, 0]
        return found

    def standing(self, choices: Tensor) -> Tensor:
        """Which nodes the target bears out, bool [n, 1 + size]: node 0, and a draft that is what it would say after a
        node that stands. `choices` int64 [n, 1 + size] is what it would say after each."""
        found = torch.ones(choices.shape, dtype=torch.bool)
        for place in range(self.tokens.shape[1]):
            parent = self.parents[:, place : place + 1]
            said = choices.gather(1, parent) == self.tokens[:, place : place + 1]
            found[:, place + 1] = (found.gather(1, parent) & said)[:, 0]
        return found


@dataclass(frozen=True)
class Candidates:
    """All that the steps drafted after n starts, step after step: target ids `tokens` int64 [n, drafted], what the path
    to each is worth, `scores` float32 [n, drafted] (the sum of log-probabilities), and the place of the candidate that
    each follows, `parents` int64 [n, drafted], -1 for the text itself. `gaps` float32 [n, steps]: as those of `Trees`,
    for what each step chose."""

    tokens: Tensor
    scores: Tensor
    parents: Tensor
    gaps: Tensor

    def trees(self, shape: Shape) -> Trees:
        """The likeliest paths of the first `shape.steps` steps, as many as are verified. Of two alike the earlier is
        taken: a path is worth no more than its beginning, so no draft comes without the one that it follows."""
        size, drafted = shape.num_draft_tokens - 1, drafted_by(shape.steps, shape.topk)
        ranked = self.scores[:, :drafted].sort(dim=1, descending=True, stable=True)
        kept = ranked.indices[:, :size].sort(dim=1).values
        parents = self.parents.gather(1, kept)
        nodes = torch.searchsorted(kept, parents.clamp(min=0)) + 1
        gaps = torch.minimum(_gap_after(ranked.values, size), self.gaps[:, : shape.steps].amin(dim=1))
        return Trees(self.tokens.gather(1, kept), torch.where(parents < 0, 0, nodes), gaps)

    @classmethod
    def none(cls, steps: int, topk: int) -> Candidates:
        """Of no start at all."""
        places = torch.zeros((0, drafted_by(steps, topk)), dtype=torch.int64)
        return cls(places, places.float(), places, torch.zeros((0, steps)))

    @classmethod
    def joined(cls, parts: Sequence[Candidates]) -> Candidates:
        """The starts of all `parts`, one or more, on the CPU."""
        each = zip(*((part.tokens, part.scores, part.parents, part.gaps) for part in parts), strict=True)
        return cls(*(torch.cat(tensors).cpu() for tensors in each))


def grown(first: Likeliest, advance: Advance, steps: int) -> Candidates:
    """What `steps` steps draft after each of n starts, with as many beams as `first` [n, k] has drafts."""
    beams, scores, topk = first.ids, first.log_probs, first.ids.shape[1]
    places, origins = torch.arange(topk, device=beams.device).expand(beams.shape), torch.zeros_like(beams)
    found = [(first.ids, scores, torch.full_like(beams, -1), first.gaps)]
    gap = torch.full_like(first.gaps, torch.inf)  # of the choice of the beams
    for step in range(1, steps):
        drafts = advance(beams, origins)
        ids, worth = drafts.ids.flatten(1), (scores[..., None] + drafts.log_probs).flatten(1)
        parents = places[..., None].expand_as(drafts.ids).flatten(1)
        found.append((ids, worth, parents, torch.minimum(gap, drafts.gaps.amin(dim=1))))
        ranked = worth.sort(dim=1, descending=True, stable=True)
        scores, chosen, gap = ranked.values[:, :topk], ranked.indices[:, :topk], _gap_after(ranked.values, topk)
        beams, origins, places = ids.gather(1, chosen), chosen // topk, topk + (step - 1) * topk**2 + chosen
    tokens, worths, follows, gaps = zip(*found, strict=True)
    return Candidates(torch.cat(tokens, 1), torch.cat(worths, 1), torch.cat(follows, 1), torch.stack(gaps, 1))


def likeliest(logits: Tensor, count: int) -> Likeliest:
    """The `count` likeliest of logits [..., draft_vocab], by draft id."""
    best = logits.topk(min(count + 1, logits.shape[-1]), dim=-1)
    log_probs = best.values[..., :count] - logits.logsumexp(dim=-1, keepdim=True)
    return Likeliest(best.indices[..., :count], log_probs, _gap_after(best.values, count))


def _gap_after(ranked: Tensor, count: int) -> Tensor:
    """How far the first `count` of falling values [..., m] stand above the others, infinite where there are none."""
    if ranked.shape[-1] == count:
        return torch.full_like(ranked[..., 0], torch.inf)
    return ranked[..., count - 1] - ranked[..., count]
