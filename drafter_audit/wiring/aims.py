"""What the target thought at each answer token, in a drafter's own vocabulary.

KL(target ‖ drafter) is over the target's tokens that have a draft id, the target's probabilities renormalised to them.
A recording holds each answer token's `top` largest logits and the logsumexp of all. Where `top` is the whole
vocabulary the figure is exact. Else the tokens T of the draft vocabulary that are among the top are taken for all of
it, and the target's probabilities renormalised to T. With e the share of the draft vocabulary's mass that lies outside
T, p the target's renormalised to the draft vocabulary and q the drafter's, the exact figure is

    (1 - e) (figure + log(1 - e)) + sum over x outside T of p(x) log(p(x) / q(x)),

so it differs from the figure by at most e (figure + 1 + max over x outside T of |log(p(x) / q(x))|). Of e, no more is
known than a bound: what is left of one beside the top, 1 - sum exp(logit - logsumexp), over that and the mass of T.
The mean of these bounds is `omitted`: with 256 logits of a target that is as sure as language models are it is far
below one per cent, and a difference of two wirings, both of which leave out the same tokens, is off by less. A position
at which no token of the draft vocabulary is among the top counts for no KL; it is counted as `unseen`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from drafter_audit.model.drafter import Drafter
from drafter_audit.wiring.corpus import Pack


@dataclass(frozen=True)
class Aims:
    """What the target thought, in a drafter's own columns, a row for each answer token.

    `columns` [R, top] and `weights` [R, top]: the distinct target ids among the draft vocabulary, by their place, and
    the renormalised probability of each; `negative_entropy` [R]. `known` [R]: whether there was any. `ids`
    [draft_vocab] are the drafts' target ids; `merged` [draft_vocab] their places among the distinct ones, None where
    all are distinct.
    """

    columns: Tensor
    weights: Tensor
    negative_entropy: Tensor
    known: Tensor
    omitted: Tensor
    ids: Tensor
    merged: Tensor | None

    @classmethod
    def of(cls, pack: Pack, ids: Tensor, vocabulary: int) -> Aims:
        distinct, merged = _distinct(ids)
        place_of = torch.full((vocabulary,), -1, device=ids.device)
        inside = (distinct >= 0) & (distinct < vocabulary)
        several = len(distinct) < len(ids)
        own = torch.arange(len(distinct), device=ids.device) if several else merged.argsort()
        place_of[distinct[inside]] = own[inside]
        columns, thought = place_of[pack.top_ids], pack.top_logits.double()
        held = columns >= 0
        known = held.any(dim=-1)
        shares = thought.masked_fill(~held, float("-inf")).log_softmax(dim=-1).masked_fill(~known[:, None], 0.0)
        weights = shares.exp() * held
        mass = (thought - pack.logsumexp[:, None].double()).exp()
        whole = pack.top_ids.shape[1] >= vocabulary  # what rounding leaves of one is then no token's
        left = torch.zeros_like(pack.logsumexp) if whole else (1 - mass.sum(dim=-1)).clamp(min=0.0)
        omitted = left / (left + (mass * held).sum(dim=-1)).clamp(min=1e-30)
        entropy = (weights * shares.masked_fill(~held, 0.0)).sum(dim=-1)
        return cls(columns.clamp(min=0), weights, entropy, known, omitted, ids, merged if several else None)

    def merge(self, logits: Tensor) -> Tensor:
        """Log-probs [n, draft_vocab] -> those of the distinct ids."""
        if self.merged is None:
            return logits
        shares = logits.double().exp()  # in float32 those below e^-103 would be none
        return shares.new_zeros((len(shares), int(self.merged.max()) + 1)).index_add_(1, self.merged, shares).log()


def _distinct(ids: Tensor) -> tuple[Tensor, Tensor]:
    """The distinct ids, ascending, and the place among them of each of `ids`."""
    distinct, merged = torch.unique(ids, return_inverse=True)
    return distinct, merged


def vocabulary_ids(drafter: Drafter) -> Tensor:
    """The target ids of all drafts [draft_vocab], those outside the target's vocabulary too."""
    return drafter.target_ids(torch.arange(len(drafter.network.head.weight)))
