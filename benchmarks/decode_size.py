"""How decoding, recording and replay grow with the text, the target's layers and the steps.

One setting is changed at a time, on pairs with random weights (pairs.py): drafts are hardly ever right, so that each
round of the live loop emits one token. Times are processor time of one thread, the least of the runs. Nothing is
bounded here: `python -m benchmarks.decode_size`, `--json`.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from benchmarks.bounds import cpu_seconds, machine, parser
from benchmarks.pairs import Pair, random_pair
from drafter_audit.decode.live import decode_live
from drafter_audit.decode.replay import replay
from drafter_audit.decode.settings import Settings
from drafter_audit.recording import make
from drafter_audit.recording.open import open_recording


@dataclass(frozen=True)
class Size:
    """A prompt of so many tokens, of which the answer has `NEW` more; the target's layers; drafts of a round."""

    tokens: int = 256
    layers: int = 12
    steps: int = 3


NEW = 32
SIZES = (
    *(Size(tokens=tokens) for tokens in (64, 256, 1024)),
    *(Size(layers=layers) for layers in (8, 24)),
    *(Size(steps=steps) for steps in (1, 10)),
)


@dataclass(frozen=True)
class Grown:
    """Milliseconds: of the prompt in both models, of a round, of a recorded token after the prompt, and of the whole
    replay; and the recording's size, in kB a token of the text."""

    prefill_ms: float
    round_ms: float
    recorded_ms: float
    replay_ms: float
    kb_a_token: float


def main(arguments: list[str] | None = None) -> int:
    """Measure and print."""
    options = parser("Measure decoding, recording and replay at several sizes.", 3, 1).parse_args(arguments)
    if not options.json:
        print("tokens  layers  steps  prefill ms  round ms  recorded token ms  replay ms  kB a token")
    for size in SIZES:
        grown = measure(size, options.runs)
        print(as_json(size, grown) if options.json else as_line(size, grown), flush=True)
    print(f"least of {options.runs} runs, 1 thread, processor time, {machine()}", file=sys.stderr)
    return 0


def measure(size: Size, runs: int, new: int = NEW) -> Grown:
    """One size; `new` tokens are answered."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        pair = random_pair(Path(name), size.layers, (size.tokens,))
        turns = [turn(pair, Path(name, str(at)), size.steps, new) for at in range(runs)]
    return Grown(*(min(each) for each in zip(*turns, strict=True)))


def turn(pair: Pair, folder: Path, steps: int, new: int) -> Sequence[float]:
    """The figures of `Grown`, in its order. The live loop with one token emitted is the prompt alone, twice: it decodes
    a first round uncounted, which has none then. Each recording looks ahead by 16 tokens."""
    prompt, boundaries = len(pair.prompts[0].ids), tuple(sorted(set(pair.drafter.wiring.boundaries or ())))

    def live(count: int) -> float:
        asked = Settings(steps, count, plain=False)
        return 1000 * cpu_seconds(lambda: decode_live(pair.drafter, pair.target, pair.prompts, asked))

    def recorded(count: int) -> float:
        asked = make.Settings(boundaries, max_new_tokens=count)
        where = folder / str(count)
        return 1000 * cpu_seconds(lambda: make.record(pair.target, pair.prompts, where, asked))

    folder.mkdir()
    alone, whole = live(1), live(new + 1)
    first, last = recorded(1), recorded(new + 1)
    recording = open_recording(folder / str(new + 1))
    replayed = 1000 * cpu_seconds(lambda: replay(pair.drafter, recording, steps))
    rounds, kb = new + 1, recording.manifest.answers[0].nbytes / 1000 / (prompt + new + 1)
    return alone / 2, (whole - alone) / rounds, (last - first) / new, replayed, kb


def as_line(size: Size, grown: Grown) -> str:
    return "  ".join([*map(str, asdict(size).values()), *(f"{value:.1f}" for value in asdict(grown).values())])


def as_json(size: Size, grown: Grown) -> str:
    """One line."""
    return json.dumps({**asdict(size), **asdict(grown)})


if __name__ == "__main__":
    sys.exit(main())
