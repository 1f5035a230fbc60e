"""How often the gate is wrong, and how often it cannot tell: prompts drawn at random, each draw held to bars.

The truth is known: prompts are drawn, with replacement, from those of a replay of the reference pair, whose pooled
figure is the truth; or from a population made by formula. A draw is wrong that fails with the truth at the bar or
above (a false alarm), or passes with the truth below it (a miss).

    drafter-audit record tiny --target tiny-target -o rec/
    python -m benchmarks.gate rec/
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from drafter_audit.measure.acceptance import Acceptance, PromptCounts
from drafter_audit.measure.bars import standing
from drafter_audit.measure.bootstrap import accept_len_difference, accept_len_interval

STEPS = 3
DRAWS = 1000
PROMPTS = (8, 12, 24, 48, 96)
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


def against_a_bar(population: Sequence[PromptCounts], prompts: int, above: float, draws: int, seed: int = 0) -> Rates:
    """`prompts` drawn `draws` times from a population whose accept_len lies `above` the bar."""
    bar = Acceptance.pooled(population, steps=STEPS).accept_len - above
    found: Counter[str] = Counter()
    for drawn in _drawn(len(population), prompts, draws, seed):
        acceptance = _pooled(population, drawn)
        place = standing(acceptance.accept_len, accept_len_interval(acceptance), bar, prompts).place
        found[place] += 1
    return Rates(found["above"] / draws, found["below"] / draws, found["unsure"] / draws)


def against_a_baseline(
    before: Sequence[PromptCounts], after: Sequence[PromptCounts], prompts: int, allowed: float, draws: int
) -> Rates:
    """The same prompts before and after, drawn together; a loss of `allowed` passes."""
    found: Counter[str] = Counter()
    for drawn in _drawn(len(before), prompts, draws, 0):
        lost = accept_len_difference(_pooled(before, drawn), _pooled(after, drawn))
        found[standing(lost.difference, lost.interval, -allowed, prompts).place] += 1
    return Rates(found["above"] / draws, found["below"] / draws, found["unsure"] / draws)


def _drawn(population: int, prompts: int, draws: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, population, (draws, prompts))


def _pooled(population: Sequence[PromptCounts], drawn: np.ndarray) -> Acceptance:
    """Drawn twice, a prompt is two."""
    from dataclasses import replace

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
    truth = Acceptance.pooled(population, steps=STEPS).accept_len
    print(f"\n{name}: accept_len {truth:.3f} over {len(population)} prompts, {draws} draws: pass / fail / unmeasured")
    print("| truth less bar | " + " | ".join(f"{prompts} prompts" for prompts in PROMPTS) + " |")
    print("|---" * (len(PROMPTS) + 1) + "|")
    for above in ABOVE:
        cells = [_cell(against_a_bar(population, prompts, above, draws)) for prompts in PROMPTS]
        print(f"| {above:+.1f} | " + " | ".join(cells) + " |")


def _show_baseline(whole: Sequence[PromptCounts], damaged: Sequence[PromptCounts], draws: int) -> None:
    lost = accept_len_difference(
        Acceptance.pooled(whole, steps=STEPS), Acceptance.pooled(damaged, steps=STEPS)
    ).difference
    print(f"\nagainst the baseline: {-lost:.3f} lost, {draws} draws: pass / fail / unmeasured")
    print("| largest loss | " + " | ".join(f"{prompts} prompts" for prompts in PROMPTS) + " |")
    print("|---" * (len(PROMPTS) + 1) + "|")
    for allowed in (0.0, 0.05, 0.1, -lost, 0.3):
        cells = [_cell(against_a_baseline(whole, damaged, prompts, allowed, draws)) for prompts in PROMPTS]
        print(f"| {allowed:.3f} | " + " | ".join(cells) + " |")


def _cell(rates: Rates) -> str:
    return " / ".join(f"{rate:.1%}" for rate in (rates.passed, rates.failed, rates.unmeasured))


if __name__ == "__main__":
    main()
