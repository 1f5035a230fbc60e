"""Which of the drafts the target lets stand, and the token it puts after them.

Greedy: a draft stands if it is the target's likeliest token. Above temperature 0 a draft x that the drafter took for
certain stands with probability p(x), else the token is drawn from p without x, renormalised: what comes out follows p
exactly. That is speculative sampling (Leviathan et al. 2023, Chen et al. 2023) with a draft distribution of one token,
what SGLang and vLLM do by default.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import torch
from torch import Tensor

from drafter_audit.decode.settings import Settings
from drafter_audit.model.target.drawing import check_logits, drawn
from drafter_audit.model.target.model import TargetModel

Judge: TypeAlias = Callable[[Tensor, Tensor], Tensor]
"""(logits [k + 1, vocab], drafts int64 [k] on the CPU) -> the tokens emitted, int64 [1 .. k + 1] on the CPU: the drafts
that stand and one of the target's own. Without drafts it is the target's next token."""


@dataclass(frozen=True)
class Drafts:
    """What a round verifies after its last token, target ids int64 `tokens` [size] on the CPU: a chain, or the nodes of
    a tree, whose `parents` int64 [size] are as `Trees` numbers them."""

    tokens: Tensor
    parents: Tensor | None = None

    @property
    def follows(self) -> Tensor | None:
        """Of the last token and the drafts together, which one each follows, -1 for the text; None for a chain."""
        return None if self.parents is None else torch.cat((torch.tensor([-1]), self.parents))


def judged(target: TargetModel, judge: Judge, logits: Tensor, drafts: Drafts) -> tuple[Tensor, Tensor]:
    """Which of the last token and the drafts stay, int64 [m], and the m tokens emitted: those drafts and one of the
    target's. On every rank what rank 0 decides. Trees are judged greedily. Raises CannotRunError for logits that are
    not finite."""
    if drafts.parents is None:
        new = agreed(target, judge(logits, drafts.tokens), len(drafts.tokens) + 1)
        return torch.arange(len(new)), new
    highest, likeliest = logits.max(dim=-1)
    check_logits(highest, "decode")
    choices = agreed(target, likeliest, len(logits))
    stay = _path(drafts.tokens.tolist(), drafts.parents.tolist(), choices.tolist())
    return stay, choices[stay]


def _path(tokens: list[int], parents: list[int], choices: list[int]) -> Tensor:
    """The nodes of the longest path that are the target's own `choices`, node 0 at its head."""
    paths = {0: [0]}
    for node, (token, parent) in enumerate(zip(tokens, parents, strict=True), 1):
        if parent in paths and token == choices[parent]:
            paths[node] = [*paths[parent], node]
    return torch.tensor(max(paths.values(), key=len))


def judge_of(settings: Settings, prompt_id: str) -> Judge:
    """The rule for one prompt. Its random numbers follow from seed and id, whatever was decoded before."""
    if settings.temperature == 0:
        return greedy
    digest = hashlib.sha256(f"{settings.seed}:{prompt_id}".encode()).digest()
    source = torch.Generator().manual_seed(int.from_bytes(digest[:8], "big", signed=True))
    return partial(sampled, temperature=settings.temperature, source=source)


def greedy(logits: Tensor, drafts: Tensor) -> Tensor:
    """See Judge. Raises CannotRunError for logits that are not finite."""
    highest, choices = logits.max(dim=-1)
    check_logits(highest, "decode")
    choices = choices.cpu()
    standing = int((choices[:-1] == drafts).cumprod(0).sum())
    return choices[: standing + 1]


def sampled(logits: Tensor, drafts: Tensor, *, temperature: float, source: torch.Generator) -> Tensor:
    """See Judge. Each call takes one random number for each row from `source`, whatever it decides. Raises
    CannotRunError for logits that are not finite."""
    check_logits(logits.amax(dim=-1), "decode")
    chances = (logits.float() / temperature).softmax(dim=-1)
    draws = torch.rand(len(logits), generator=source, dtype=torch.float64)
    rows = torch.arange(len(drafts), device=logits.device)
    stands = draws[:-1] < chances[rows, drafts.to(logits.device)].cpu()
    standing = int(stands.cumprod(0).sum())
    last = chances[standing]
    if standing < len(drafts):
        last[drafts[standing]] = 0.0
    return torch.cat((drafts[:standing], drawn(last, float(draws[-1]))))


def agreed(target: TargetModel, tokens: Tensor, most: int) -> Tensor:
    """Rank 0's `tokens`, up to `most`, on every rank: rounding must not part them. On the CPU."""
    if target.ranks.size == 1:
        return tokens.cpu()
    padded = torch.full((most,), -1, dtype=torch.int64)
    padded[: len(tokens)] = tokens
    shared = target.ranks.same(padded, next(target.model.parameters()).device)
    return shared[shared >= 0]
