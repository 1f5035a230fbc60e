"""How fast drafters are decoded live, recorded and replayed, as ratios of loops that take turns in one process.

Two pairs: the bundled one, on prompts of the pack, whose drafts are right as often as a trained drafter's; and one with
random weights, 12 layers of width 512, beside whose forwards what is around them can be judged. Judged is the median
over the turns, in processor time of one thread. No time counts unless live loop, replay and the loop without caches
accept the same drafts.

Beyond a bound the exit code is 1. Run it from the checkout: `make bench`.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

import torch

from benchmarks.bounds import Row, cpu_seconds, parser, tell
from benchmarks.loops import forwards_alone, one_prefill, plain_generation, without_caches
from benchmarks.pairs import Pair, bundled_pair, random_pair
from drafter_audit.decode.live import LiveRun, decode_live
from drafter_audit.decode.outcome import replay_result
from drafter_audit.decode.replay import ReplayRun, replay, replay_shapes
from drafter_audit.decode.settings import Settings
from drafter_audit.decode.sweep import sweep_result
from drafter_audit.measure.shape import shape_of
from drafter_audit.recording import make
from drafter_audit.recording.open import open_recording

MIN_RUNS = DEFAULT_RUNS = 3
STEPS, MOST = 3, 10
BUNDLED, RANDOM = "bundled", "random"

T = TypeVar("T")
Turn = Mapping[str, float]


@dataclass(frozen=True)
class Sizes:
    """`bundled` prompts of the bundled pair, whose answers end by themselves or after `recorded` tokens; of the random
    one its `layers`, and the tokens of its prompt, of its `new` answer, and of one that is `recorded`. The long text
    has `whole` tokens; the random pair answers the `end` of it."""

    bundled: int = 8
    layers: int = 12
    prompt: int = 48
    new: int = 64
    recorded: int = 256
    whole: int = 1000
    end: int = 16


@dataclass(frozen=True)
class Ratio:
    """`over` / `under`, what was timed under these names, and its bound by pair."""

    name: str
    over: str
    under: tuple[str, ...]
    bounds: Mapping[str, float] = field(default_factory=dict)
    least: bool = False

    def of(self, turn: Turn) -> float:
        return turn[self.over] / sum(turn[name] for name in self.under)


RATIOS = (
    Ratio("live / replay, 3 steps", "live", ("replay",), {BUNDLED: 10, RANDOM: 10}, least=True),
    Ratio("sweep of 1-10 / replay at 10", "sweep", ("replay at 10",), {BUNDLED: 1.3, RANDOM: 1.3}),
    Ratio("without caches / live", "without caches", ("live",), {RANDOM: 2.5}, least=True),
    Ratio("live / its forwards alone", "live", ("forwards alone",), {RANDOM: 1 / 0.85}),
    Ratio("record / plain generation and a prefill", "record", ("plain generation", "prefill"), {RANDOM: 1.25}),
)
"""15% of a cycle around the forwards is 1 / 0.85 of the forwards. The bundled target is so small that a forward of its
text takes little longer than one of four tokens, and its answers so short that the look-ahead is a quarter of them."""


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, and return the exit code: 1 when a bound is exceeded."""
    about = "Measure how fast drafters are decoded, recorded and replayed, against bounds."
    options, sizes = parser(about, DEFAULT_RUNS, MIN_RUNS).parse_args(arguments), Sizes()
    return tell(list(measure(options.runs, sizes)), options, ("measured",), str(sizes))


def measure(runs: int, sizes: Sizes) -> Iterator[Row]:
    """The ratios of both pairs, the seconds behind them, and what caches are worth where the text is long."""
    torch.set_num_threads(1)  # threads that wait for each other burn processor time
    with tempfile.TemporaryDirectory() as folder:
        small = bundled_pair(sizes.bundled)
        large = random_pair(Path(folder), sizes.layers, (sizes.prompt, sizes.whole - sizes.end))
        for name, pair, new in ((BUNDLED, small, sizes.recorded), (RANDOM, first(large, 0), sizes.new)):
            loops = Loops(pair, Path(folder, name), Settings(STEPS, new, plain=False), sizes.recorded)
            turns = [loops.turn(Path(folder, f"{name}-{at}")) for at in range(runs)]
            yield from judged(name, turns)
        yield Row(f"{BUNDLED}: without caches / live, up to {sizes.whole} tokens", up_to(first(small, 0), sizes.whole))
        yield Row(f"{RANDOM}: the same of a round at {sizes.whole} tokens", round_at(first(large, 1), sizes.end))


def first(pair: Pair, place: int) -> Pair:
    """The pair with that one prompt."""
    return replace(pair, prompts=pair.prompts[place : place + 1])


def judged(pair: str, turns: Sequence[Turn]) -> Iterator[Row]:
    for ratio in RATIOS:
        median = statistics.median(map(ratio.of, turns))
        yield Row(f"{pair}: {ratio.name}", median, bound=ratio.bounds.get(pair), least=ratio.least)
    for name in turns[0]:
        yield Row(f"{pair}: {name}, s", statistics.median(turn[name] for turn in turns))


class Loops:
    """One pair's, over the same prompts. `recorded` is the longest answer of a recording that is timed; replayed is one
    of the very answers that are decoded live."""

    def __init__(self, pair: Pair, folder: Path, asked: Settings, recorded: int) -> None:
        self._pair, self._folder, self._asked, self._recorded = pair, folder, asked, recorded
        self._record(folder, asked.max_new_tokens)

    def turn(self, folder: Path) -> Turn:
        """Seconds of each loop, run one after another; `folder` takes a recording. Those at 10 steps end with their
        results, intervals included."""
        pair, asked, spent = self._pair, self._asked, dict[str, float]()
        live = timed(spent, "live", lambda: decode_live(pair.drafter, pair.target, pair.prompts, asked))
        spent["forwards alone"] = forwards_alone(pair, live.rounds, STEPS)
        rounds = timed(spent, "without caches", lambda: without_caches(pair, asked))
        replayed = timed(spent, "replay", lambda: self._replay(STEPS))
        timed(spent, "replay at 10", lambda: replay_result(self._replay(MOST)).to_dict())
        timed(spent, "sweep", lambda: sweep_result(self._swept()).to_dict())
        timed(spent, "record", lambda: self._record(folder, self._recorded))
        self._record_plainly(folder, spent)
        check_same(live, rounds, replayed)
        return spent

    def _swept(self) -> tuple[ReplayRun, ...]:
        shapes = [shape_of(steps) for steps in range(1, MOST + 1)]
        return replay_shapes(self._pair.drafter, open_recording(self._folder), shapes)

    def _replay(self, steps: int) -> ReplayRun:
        return replay(self._pair.drafter, open_recording(self._folder), steps)

    def _record(self, folder: Path, new: int) -> None:
        boundaries = tuple(sorted(set(self._pair.drafter.wiring.boundaries or ())))
        make.record(self._pair.target, self._pair.prompts, folder, make.Settings(boundaries, max_new_tokens=new))

    def _record_plainly(self, folder: Path, spent: dict[str, float]) -> None:
        """The answers of the recording in `folder` once more: by generation alone, then each whole text at once."""
        target, prompts, answers = self._pair.target, self._pair.prompts, open_recording(folder).manifest.answers
        lengths = [answer.answer_length for answer in answers]
        texts = list(zip(prompts, lengths, strict=True))
        timed(spent, "plain generation", lambda: [plain_generation(target, p.ids, new) for p, new in texts])
        timed(spent, "prefill", lambda: [one_prefill(target, len(p.ids) + new) for p, new in texts])


def timed(spent: dict[str, float], name: str, call: Callable[[], T]) -> T:
    """What `call` returns; its seconds are put down under `name`."""
    made: list[T] = []
    spent[name] = cpu_seconds(lambda: made.append(call()))
    return made[0]


def check_same(live: LiveRun, rounds: Sequence[tuple[int, ...]], replayed: ReplayRun) -> None:
    """Raises SystemExit where one accepted other drafts: a loop that does something else is no measure."""
    if live.rounds != tuple(rounds) or live.counts != replayed.counts():
        raise SystemExit(f"error: accepted were {live.rounds} live, {rounds} without caches, {replayed.counts()}")


def up_to(pair: Pair, whole: int) -> float:
    """Without caches / live, of one text from its prompt up to `whole` tokens; no token ends it."""
    asked = Settings(STEPS, whole - len(pair.prompts[0].ids), plain=False, ignore_end=True)
    live = cpu_seconds(lambda: decode_live(pair.drafter, pair.target, pair.prompts, asked))
    return cpu_seconds(lambda: without_caches(pair, asked)) / live


def round_at(pair: Pair, new: int) -> float:
    """The same of `new` tokens beside a long prompt, whose prefill is left out. Both loops then do one round more than
    they count: the live one before the first, the other to find the first token."""

    def live(count: int) -> float:
        asked = Settings(STEPS, count, plain=False)
        return cpu_seconds(lambda: decode_live(pair.drafter, pair.target, pair.prompts, asked))

    alone = cpu_seconds(lambda: without_caches(pair, Settings(STEPS, new, plain=False)))
    return alone / (live(new) - live(1))


if __name__ == "__main__":
    sys.exit(main())
