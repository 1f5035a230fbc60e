"""The live loop: draft, verify in one forward, accept, roll back, and let the drafter read the true states. It is the
ground truth that replay is held to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from drafter_audit.decode.answer import Answer, ending_of, ends_of, timing_of
from drafter_audit.decode.lossless import compared
from drafter_audit.decode.pairing import Wanted, wanted_states
from drafter_audit.decode.plain import plain_answer
from drafter_audit.decode.result import Lossless, Tie
from drafter_audit.decode.sampling import Drafts, agreed, judge_of, judged
from drafter_audit.decode.settings import Settings
from drafter_audit.decode.text import Text
from drafter_audit.decode.ties import tie_below
from drafter_audit.decode.timing import Stopwatch, devices_of
from drafter_audit.measure.acceptance import PromptCounts
from drafter_audit.measure.costs import Timing
from drafter_audit.measure.shape import Shape
from drafter_audit.model.drafter import Drafter, DrafterCache
from drafter_audit.model.target.branches import check_branches
from drafter_audit.model.target.model import TargetModel
from drafter_audit.model.trees import Candidates
from drafter_audit.prompts.limits import check_prompts
from drafter_audit.prompts.prompt import TokenPrompt


@dataclass(frozen=True)
class LiveRun:
    """What became of each prompt, in their order: counts, the tokens emitted up to the end, and the accepted drafts of
    each round; all rounds were of one `shape`.

    `timing` is of all rounds, with plain decoding's where that was asked for; None where there was no round.
    `prefill_s` is in none of it. `lossless` is None without plain decoding and above temperature 0; `partings` are the
    places behind it, ties and mismatches. `coverage` is the share of the tokens that the drafter can draft.
    """

    shape: Shape
    counts: tuple[PromptCounts, ...]
    tokens: tuple[tuple[int, ...], ...]
    rounds: tuple[tuple[int, ...], ...]
    coverage: float
    timing: Timing | None
    prefill_s: float
    lossless: Lossless | None
    partings: tuple[Tie, ...] = ()


def decode_live(
    drafter: Drafter, target: TargetModel, prompts: Sequence[TokenPrompt], settings: Settings | None = None
) -> LiveRun:
    """Every prompt answered with the drafter's help, one after another, and without it where `settings.plain`.

    A round counts whole, past the end token and the limit too. A round is decoded first that counts nowhere, so that no
    time holds a first call's set-up. Under torchrun every rank calls this, and gets the same tokens. Raises, before any
    long work, CannotRunError where drafter and target do not fit or the target cannot verify trees, InputsError for
    prompts that cannot be run and for more beams than the drafter has drafts.
    """
    asked = settings or Settings()
    pair = _Pair(drafter, target, wanted_states(drafter, target))
    check_prompts(
        prompts,
        target.ref,
        vocab_size=target.vocab_size,
        max_positions=target.max_positions,
        max_new_tokens=asked.max_new_tokens,
        lookahead=asked.steps - 1,
    )
    if not asked.shape.is_chain:
        check_branches(target)
    _answers(pair, prompts[:1], replace(asked, max_new_tokens=min(asked.max_new_tokens, 2)))
    answers, plain = _answers(pair, prompts, asked)
    lossless, parted = None, tuple[Tie, ...]()
    if plain and asked.temperature == 0:
        lossless, parted = compared(target, prompts, answers, plain, tie_below(target.dtype))
    return LiveRun(
        shape=asked.shape,
        counts=tuple(each.counts(prompt, asked.steps) for each, prompt in zip(answers, prompts, strict=True)),
        tokens=tuple(each.tokens for each in answers),
        rounds=tuple(each.accepted for each in answers),
        coverage=_coverage(drafter, answers),
        timing=timing_of(answers, plain),
        prefill_s=sum(each.spent.prefill_s for each in answers),
        lossless=lossless,
        partings=parted,
    )


def _coverage(drafter: Drafter, answers: Sequence[Answer]) -> float:
    known = set(drafter.target_ids(torch.arange(len(drafter.network.head.weight))).tolist())
    tokens = [token for each in answers for token in each.tokens]
    return sum(token in known for token in tokens) / len(tokens)


@dataclass(frozen=True)
class _Pair:
    """A drafter beside its target. Every rank runs the target; rank 0's drafter drafts for all."""

    drafter: Drafter
    target: TargetModel
    wanted: Wanted

    def extend(self, seen: DrafterCache, ids: Tensor, states: Tensor) -> None:
        if self.target.ranks.first:
            self.drafter.extend(seen, ids, states, logits_to_keep=1)

    def drafts(self, seen: DrafterCache, shape: Shape) -> Drafts:
        """What rank 0's drafter drafts in one round."""
        most = shape.num_draft_tokens - 1
        if shape.is_chain:
            own = self.drafter.chain(seen, shape.steps) if self.target.ranks.first else torch.zeros(most).long()
            return Drafts(agreed(self.target, own, most))
        both = torch.zeros(2 * most, dtype=torch.int64)
        if self.target.ranks.first:
            grown = Candidates.joined([self.drafter.branches(seen, shape.steps, shape.topk)])
            tree = grown.trees(shape)
            both = torch.cat((tree.tokens[0], tree.parents[0]))
        shared = agreed(self.target, both, 2 * most)
        return Drafts(shared[:most], shared[most:])


def _answers(pair: _Pair, prompts: Sequence[TokenPrompt], asked: Settings) -> tuple[list[Answer], list[Answer]]:
    """With the drafter and, if asked for, without, in turn: what slows the machine for a while slows both."""
    with_it, without = [], []
    for prompt in prompts:
        with_it.append(_answer(pair, prompt, asked))
        if asked.plain:
            without.append(plain_answer(pair.target, prompt, asked))
    return with_it, without


@torch.no_grad()
def _answer(pair: _Pair, prompt: TokenPrompt, asked: Settings) -> Answer:
    """One prompt's, by rounds of `asked.shape`."""
    drafter, target, judge, ends = pair.drafter, pair.target, judge_of(asked, prompt.id), ends_of(pair.target, asked)
    watch = Stopwatch((drafter.device, *devices_of(target)))
    text, seen, ids = Text(target, pair.wanted, drafter.device), drafter.start(), torch.tensor(prompt.ids)
    with watch.phase("prefill"):
        logits, states = text.read(ids, logits_to_keep=1)
        new = agreed(target, judge(logits, ids[:0]), 1)
        pair.extend(seen, torch.cat((ids[1:], new)), states)
    emitted, accepted = new.tolist(), list[int]()
    while (ending := ending_of(emitted, len(emitted) - len(new), ends, asked.max_new_tokens)) is None:
        with watch.phase("draft"):
            drafts = pair.drafts(seen, asked.shape)
        with watch.phase("verify"):
            logits, states = text.read_ahead(torch.cat((new[-1:], drafts.tokens)), drafts.follows)
        stay, new = judged(target, judge, logits, drafts)
        with watch.phase("verify"):
            text.keep(stay)
        with watch.phase("extend"):
            pair.extend(seen, new, states[:, stay.to(states.device)])
        emitted += new.tolist()
        accepted.append(len(new) - 1)
    return Answer(tuple(emitted), tuple(accepted), ending, watch.spent())
