"""How often the gate is wrong, and how often it cannot tell: prompts drawn at random, each draw held to bars.

The truth is known: prompts are drawn, with replacement, from those of a replay of the reference pair, whose pooled
figure is the truth; or from a population made by formula. A draw is wrong that fails with the truth at the bar or
above (a false alarm), or passes with the truth below it (a miss).

    drafter-audit record tiny --target tiny-target -o rec/
    python -m benchmarks.gate rec/ --damaged ./theta  # rope_theta 500000 in its config.json: a baseline and a loss
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from drafter_audit.measure.acceptance import Acceptance, PromptCounts
from drafter_audit.measure.bars import standing
from drafter_audit.measure.bootstrap import Interval, accept_len_difference, accept_len_interval

STEPS = 3
DRAWS = 500
PROMPTS = (8, 12, 24, 48)
ABOVE = (-0.3, -0.2, -0.1, 0.0, 0.1, 0.2, 0.3)
"""The truth less the bar, in tokens a round."""


@dataclass(frozen=True)
class Rates:
    """Shares of draws."""

    passed: float
    failed: float
    unmeasured: float


def made_up(prompts: int, seed: int = 0) -> list[PromptCounts]:
    """A population by formula: each prompt accepts a draft with its own chance, from Beta(4, 3), and takes 10 to 80
    rounds, the fewer the better it goes."""
    draw, made = np.random.default_rng(seed), []
    for place in range(prompts):
        chance = draw.beta(4, 3)
        rounds = int(draw.integers(10, 80) * (1.5 - chance))
        accepted = np.minimum(draw.geometric(1 - chance, max(rounds, 4)) - 1, STEPS)
        made.append(PromptCounts.of(str(place), None, accepted.tolist(), steps=STEPS))
    return made


@dataclass(frozen=True)
class Draws:
    """A figure and its interval for each draw of `prompts`: what a bar is held to."""

    prompts: int
    figures: tuple[tuple[float, Interval | None], ...]

    def held_to(self, bar: float) -> Rates:
        found = Counter(standing(figure, within, bar, self.prompts).place for figure, within in self.figures)
        return Rates(*(found[place] / len(self.figures) for place in ("above", "below", "unsure")))


def of_figure(population: Sequence[PromptCounts], prompts: int, draws: int) -> Draws:
    """accept_len of prompts drawn from a population."""
    drawn = [_pooled(population, each) for each in _drawn(len(population), prompts, draws)]
    return Draws(prompts, tuple((each.accept_len, accept_len_interval(each)) for each in drawn))


def of_change(before: Sequence[PromptCounts], after: Sequence[PromptCounts], prompts: int, draws: int) -> Draws:
    """accept_len after less before, of the same prompts, drawn together."""
    found = []
    for drawn in _drawn(len(before), prompts, draws):
        change = accept_len_difference(_pooled(before, drawn), _pooled(after, drawn))
        found.append((change.difference, change.interval))
    return Draws(prompts, tuple(found))


def _drawn(population: int, prompts: int, draws: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, population, (draws, prompts))


def _pooled(population: Sequence[PromptCounts], drawn: np.ndarray) -> Acceptance:
    """Drawn twice, a prompt is two."""
    chosen = [replace(population[each], id=str(place)) for place, each in enumerate(drawn.tolist())]
    return Acceptance.pooled(chosen, steps=STEPS)


def replayed(drafter: str, recording: Path) -> list[PromptCounts]:
    from drafter_audit.decode.loading import planned
    from drafter_audit.decode.replay import replay
    from drafter_audit.recording.open import open_recording

    opened = open_recording(recording)
    run = replay(planned(drafter, opened.manifest).load("float32"), opened, STEPS)
    return [prompt for prompt in run.counts() if prompt.rounds]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("recording", type=Path, help="of the reference target, by its drafter")
    parser.add_argument("--damaged", help="a damaged export of that drafter, to be held to the whole one as a baseline")
    parser.add_argument("--draws", type=int, default=DRAWS)
    given = parser.parse_args()
    whole = replayed("tiny", given.recording)
    for name, population in (("reference pair", whole), ("by formula", made_up(2000))):
        _show(name, population, given.draws)
    if given.damaged:
        _show_baseline(whole, replayed(given.damaged, given.recording), given.draws)


def _show(name: str, population: Sequence[PromptCounts], draws: int) -> None:
    truth = accept_len(population)
    made = [of_figure(population, prompts, draws) for prompts in PROMPTS]
    _table(f"{name}: accept_len {truth:.3f}", "truth less bar", {f"{x:+.1f}": truth - x for x in ABOVE}, made)


def _show_baseline(whole: Sequence[PromptCounts], damaged: Sequence[PromptCounts], draws: int) -> None:
    lost = accept_len(whole) - accept_len(damaged)
    made = [of_change(whole, damaged, prompts, draws) for prompts in PROMPTS]
    bars = {f"{allowed:.3f}": -allowed for allowed in (0.0, 0.05, 0.1, lost, 0.3)}
    _table(f"against the baseline: {lost:.3f} lost", "largest loss", bars, made)


def accept_len(population: Sequence[PromptCounts]) -> float:
    return Acceptance.pooled(population, steps=STEPS).accept_len


def _table(title: str, what: str, bars: dict[str, float], made: Sequence[Draws]) -> None:
    print(f"\n{title}, {len(made[0].figures)} draws: pass / fail / unmeasured\n")
    print(f"| {what} | " + " | ".join(f"{draws.prompts} prompts" for draws in made) + " |")
    print("|---" * (len(made) + 1) + "|")
    for name, bar in bars.items():
        print(f"| {name} | " + " | ".join(_cell(draws.held_to(bar)) for draws in made) + " |", flush=True)


def _cell(rates: Rates) -> str:
    return " / ".join(f"{rate:.1%}" for rate in (rates.passed, rates.failed, rates.unmeasured))


if __name__ == "__main__":
    main()
