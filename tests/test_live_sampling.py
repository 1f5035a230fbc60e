"""What is drawn with drafts follows the target's distribution: chi-square, at the rule and through the whole loop."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from drafter_audit.decode.live import decode_live
from drafter_audit.decode.sampling import Judge, greedy, judge_of, sampled
from drafter_audit.decode.settings import Settings
from drafter_audit.errors import CannotRunError
from drafter_audit.model.target.model import TargetModel
from drafter_audit.prompts.prompt import TokenPrompt
from tests.live_pairs import narrow_pair, narrow_prompts

VOCABULARY, TEXTS, TEMPERATURE = 5, 3000, 0.8
LOGITS = torch.randn((VOCABULARY, VOCABULARY), generator=torch.Generator().manual_seed(11))
"""Of the token after each, all that this target looks at."""
NONE = torch.empty(0, dtype=torch.int64)

Rule = Callable[[Tensor, Tensor, torch.Generator], Tensor]


def right(logits: Tensor, drafts: Tensor, source: torch.Generator) -> Tensor:
    return sampled(logits, drafts, temperature=TEMPERATURE, source=source)


def rejected_drawn_again(logits: Tensor, drafts: Tensor, source: torch.Generator) -> Tensor:
    """After a rejection the token is drawn from all of p, the rejected draft included."""
    chances = (logits / TEMPERATURE).softmax(-1)
    for at, draft in enumerate(drafts):
        if torch.rand((), generator=source) >= chances[at, draft]:
            return torch.cat((drafts[:at], torch.multinomial(chances[at], 1, generator=source)))
    return torch.cat((drafts, torch.multinomial(chances[-1], 1, generator=source)))


def greedy_then_drawn(logits: Tensor, drafts: Tensor, source: torch.Generator) -> Tensor:
    """Drafts stand that are the likeliest, and the target's own token is drawn."""
    standing = len(greedy(logits, drafts)) - 1
    return torch.cat((drafts[:standing], right(logits[standing : standing + 1], NONE, source)))


def another_temperature(logits: Tensor, drafts: Tensor, source: torch.Generator) -> Tensor:
    return sampled(logits, drafts, temperature=1.0, source=source)


def first_two(rule: Rule) -> Counter[tuple[int, int]]:
    """The first two tokens after token 0 of many texts, in rounds of two drafts: the likeliest, then another."""
    source, found = torch.Generator().manual_seed(1), Counter[tuple[int, int]]()
    best = LOGITS.argmax(-1).tolist()
    for _ in range(TEXTS):
        text = [0]
        while len(text) < 3:
            one = best[text[-1]]
            drafts = torch.tensor([one, (best[one] + 1) % VOCABULARY])
            text += rule(LOGITS[torch.tensor([text[-1], *drafts.tolist()])], drafts, source).tolist()
        found[text[1], text[2]] += 1
    return found


def surprise(found: Counter[tuple[int, int]], expected: dict[tuple[int, int], float]) -> float:
    """Chi-square of counts, as a normal deviate (Wilson and Hilferty 1931); cells that expect fewer than 5 are one."""
    total, cells = sum(found.values()), list[tuple[float, float]]()
    small = [cell for cell, chance in expected.items() if total * chance < 5]
    for group in [*([cell] for cell in expected if cell not in small), small]:
        cells += [(sum(found[cell] for cell in group), total * sum(expected[cell] for cell in group))] if group else []
    statistic = sum((seen - due) ** 2 / due for seen, due in cells)
    freedom = len(cells) - 1
    spread = 2 / (9 * freedom)
    return float(((statistic / freedom) ** (1 / 3) - (1 - spread)) / np.sqrt(spread))


def chain_of_two() -> dict[tuple[int, int], float]:
    chances = (LOGITS / TEMPERATURE).softmax(-1)
    return {(a, b): float(chances[0, a] * chances[a, b]) for a, b in product(range(VOCABULARY), repeat=2)}


def test_the_rule_draws_what_the_target_would() -> None:
    assert abs(surprise(first_two(right), chain_of_two())) < 3


@pytest.mark.parametrize("wrong", [rejected_drawn_again, greedy_then_drawn, another_temperature])
def test_a_rule_that_is_wrong_is_told_by_the_same_measure(wrong: Rule) -> None:
    assert surprise(first_two(wrong), chain_of_two()) > 6


def test_the_loop_draws_what_the_target_would(tmp_path: Path) -> None:
    """Prompts that differ in their id alone; the second and third token of each, the first round's."""
    drafter, target = narrow_pair(tmp_path, "llama", (1, 2, 3))
    ids, temperature = (3, 5, 4), 3.0
    prompts = [TokenPrompt(str(at), None, ids) for at in range(250)]
    run = decode_live(
        drafter,
        target,
        prompts,
        Settings(steps=2, max_new_tokens=3, temperature=temperature, plain=False, ignore_end=True),
    )
    found = Counter((tokens[1], tokens[2]) for tokens in run.tokens)
    assert sum(c.accepted for c in run.counts) > 0
    assert run.lossless is None
    assert abs(surprise(found, second_and_third(target, ids, temperature))) < 3
    assert surprise(found, second_and_third(target, ids, temperature / 2)) > 6


def second_and_third(target: TargetModel, ids: tuple[int, ...], temperature: float) -> dict[tuple[int, int], float]:
    def after(*more: int) -> Tensor:
        logits, _ = target.forward_with_taps([*ids, *more], (), logits_to_keep=1)
        return (logits[0].double() / temperature).softmax(-1)

    size = range(target.vocab_size)
    first = after()
    second = {a: after(a) for a in size}
    return {
        (b, c): float(sum(first[a] * second[a][b] * third[c] for a, third in thirds.items()))
        for b in size
        for thirds in [{a: after(a, b) for a in size}]
        for c in size
    }


def test_draws_follow_from_seed_and_id_alone(tmp_path: Path) -> None:
    drafter, target = narrow_pair(tmp_path, "llama", (1, 2, 3))
    prompts = narrow_prompts()

    def drawn(order: list[TokenPrompt], seed: int) -> dict[str, tuple[int, ...]]:
        run = decode_live(drafter, target, order, Settings(max_new_tokens=8, temperature=2.0, seed=seed, plain=False))
        return {prompt.id: tokens for prompt, tokens in zip(order, run.tokens, strict=True)}

    once = drawn(list(prompts), 4)
    assert drawn(list(reversed(prompts)), 4) == once
    assert drawn(list(prompts), 5) != once


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_logits_that_are_not_finite_are_no_choice(temperature: float, value: float) -> None:
    judge: Judge = judge_of(Settings(temperature=temperature), "x")
    logits = torch.zeros((2, 4))
    logits[1, 2] = value
    with pytest.raises(CannotRunError, match="logits are not finite"):
        judge(logits, torch.tensor([1]))
