"""What the search for a drafter's wiring costs, as a multiple of the recording that it reads.

A target answers prompts into a recording with every boundary; then every slot at every boundary and every value of
every knob is tried on it: the probe. The search goes on from what it confirms, a probe for each step. They take turns
in one process, and the median over the turns is judged, in processor time of one thread. Two kinds of pairs: the
bundled one, healthy and with a planted fault; and pairs with random weights of width 512, whose targets have more and
more layers. There every wiring is about as bad as any other, so that as many as may outlive the race do, and the
target's head is confirmed: two probes.

Beyond a bound the exit code is 1. Run it from the checkout: `make bench`.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from benchmarks.bounds import Row, cpu_seconds, parser, tell
from benchmarks.pairs import Pair, bundled_pair, random_pair
from drafter_audit.recording import make
from drafter_audit.recording.open import open_recording
from drafter_audit.recording.recording import Recording
from drafter_audit.wiring.probe import open_probe
from drafter_audit.wiring.search import search
from tests.planted import TINY, planted

MIN_RUNS = DEFAULT_RUNS = 3
BOUND = 1.0
STEPS, FAULT = 3, "ids -1"


@dataclass(frozen=True)
class Sizes:
    """`bundled` prompts of the bundled pair; of the random ones as many as `random`, of `prompt` tokens. Answers have
    up to `recorded` tokens. The random pair of `judged` layers has a bound, as has the healthy bundled one; those of
    `other` numbers show how it grows, and take one turn each, as the faulty drafter does."""

    bundled: int = 32
    random: int = 16
    prompt: int = 48
    recorded: int = 64
    judged: int = 12
    other: tuple[int, ...] = (8, 24)


@dataclass(frozen=True)
class Turn:
    """Seconds of a recording, of a probe of all wirings on it and of the search, and how many wirings were tried, those
    not observable too."""

    record: float
    probe: float
    search: float
    tried: int


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, and return the exit code: 1 when a bound is exceeded."""
    about, sizes = "Measure what the search for a wiring costs, against bounds.", Sizes()
    options = parser(about, DEFAULT_RUNS, MIN_RUNS).parse_args(arguments)
    return tell(list(measure(options.runs, sizes)), options, ("measured",), str(sizes))


def measure(runs: int, sizes: Sizes) -> Iterator[Row]:
    """The ratio of each pair, and what is behind it."""
    torch.set_num_threads(1)  # threads that wait for each other burn processor time
    with tempfile.TemporaryDirectory() as name:
        folder, small = Path(name), bundled_pair(sizes.bundled)
        yield from told("bundled", turns(small, folder, str(TINY), None, runs, sizes), BOUND, searched=BOUND)
        faulty = folder / "faulty"
        faulty.mkdir()
        yield from told(f"bundled with {FAULT}", turns(small, folder, planted(faulty, FAULT), None, 1, sizes))
        for layers in (sizes.judged, *sizes.other):
            own, judged = folder / f"random {layers}", layers == sizes.judged
            large = random_pair(own, layers, [sizes.prompt] * sizes.random)
            found = turns(large, own, str(own / "drafter"), str(own / "target"), runs if judged else 1, sizes)
            yield from told(f"random, {layers} layers", found, BOUND if judged else None)


def told(pair: str, found: Sequence[Turn], bound: float | None = None, searched: float | None = None) -> Iterator[Row]:
    """`bound` is that of the probe, `searched` of the search."""
    probes = [turn.probe / turn.record for turn in found]
    searches = [turn.search / turn.record for turn in found]
    yield Row(f"{pair}: probe / record", statistics.median(probes), bound=bound)
    yield Row(f"{pair}: search / record", statistics.median(searches), bound=searched)
    yield Row(f"{pair}: record, s", statistics.median(turn.record for turn in found))
    yield Row(f"{pair}: probe, s", statistics.median(turn.probe for turn in found))
    yield Row(f"{pair}: search, s", statistics.median(turn.search for turn in found))
    yield Row(f"{pair}: wirings", found[0].tried)


def turns(pair: Pair, folder: Path, drafter: str, target: str | None, runs: int, sizes: Sizes) -> list[Turn]:
    """Recording and search in turns, each recording into a folder of its own."""
    with tempfile.TemporaryDirectory(dir=folder) as name:
        return [one_turn(pair, Path(name, str(at)), drafter, target, sizes.recorded) for at in range(runs)]


def one_turn(pair: Pair, folder: Path, drafter: str, target: str | None, new: int) -> Turn:
    """The search reads drafter and recording from disk. Raises SystemExit where it tried too little to be one."""
    asked = make.Settings(tuple(range(pair.target.num_layers + 1)), max_new_tokens=new)
    recorded = cpu_seconds(lambda: make.record(pair.target, pair.prompts, folder, asked))
    recording, tried = open_recording(folder), list[int]()
    probed = cpu_seconds(lambda: probe_once(drafter, target, recording))
    searched = cpu_seconds(lambda: tried.append(wirings_tried(drafter, target, recording)))
    least = pair.target.num_layers * len(set(pair.drafter.wiring.boundaries or ()))
    if tried[0] < least:
        raise SystemExit(f"error: {tried[0]} wirings were tried, fewer than slots and boundaries alone are, {least}")
    return Turn(recorded, probed, searched, tried[0])


def probe_once(drafter: str, target: str | None, recording: Recording) -> None:
    probe = open_probe(drafter, recording, steps=STEPS, target=target)
    probe.attempts(probe.declared, probe.whole(probe.declared))


def wirings_tried(drafter: str, target: str | None, recording: Recording) -> int:
    found = search(open_probe(drafter, recording, steps=STEPS, target=target))
    return len(found.hypotheses) + len(found.not_observable)


if __name__ == "__main__":
    sys.exit(main())
