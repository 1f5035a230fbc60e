"""How much time and memory the network takes, against hidden size, vocabulary, length of the text and steps.

One setting is changed at a time. Each is a fresh process, whose peak is the kernel's own figure; beside it stands what
the formula of docs/performance.md gives. Times are processor time of one thread, which other work on the machine
changes least. Nothing is bounded here: `python -m benchmarks.network_size`, `--json`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file

from benchmarks.bounds import machine
from benchmarks.network import write_checkpoint, write_inputs
from benchmarks.network_worker import INPUTS
from drafter_audit import load_drafter

RUNS, DRAFTS, THREADS = 3, 10, 1
FLOAT = 4  # bytes
OWN = 130_000_000  # of modules that are imported as a drafter loads, and what the allocator keeps: fitted, not derived


@dataclass(frozen=True)
class Size:
    """What a run is made of. Heads are 64 wide, four queries to a key; the MLP is 2.75 times as wide as the state."""

    hidden: int = 2048
    draft_vocab: int = 32000
    tokens: int = 1024
    steps: int = 3

    @property
    def vocab(self) -> int:
        return max(32000, self.draft_vocab)

    @property
    def config(self) -> dict[str, int]:
        return {
            "hidden_size": self.hidden,
            "intermediate_size": self.hidden * 11 // 4,
            "num_attention_heads": self.hidden // 64,
            "num_key_value_heads": self.hidden // 256,
            "vocab_size": self.vocab,
            "draft_vocab_size": self.draft_vocab,
            "max_position_embeddings": 8192,
        }

    @property
    def weights(self) -> int:
        """Bytes: embedding and head; fc, 3 x hidden^2; q 2, k and v 1/2 each, o 1 and the MLP's 3 x 2.75."""
        tables = (self.vocab + self.draft_vocab) * self.hidden
        return round(FLOAT * (tables + (3 + 2 + 2 * 0.5 + 1 + 3 * 2.75) * self.hidden**2))

    @property
    def logits(self) -> int:
        """Bytes of what `unroll` returns."""
        return FLOAT * self.steps * self.tokens * self.draft_vocab

    @property
    def work(self) -> int:
        """Bytes beside those: keys and values of all steps, and those after the first stacked once more; the widest
        moment of a layer, 4 rows of the MLP and 7 states a token; 256 rows of logits."""
        kept = 2 * (2 * self.steps - 1) * self.tokens * self.hidden // 4
        layer = self.tokens * self.hidden * (7 + 4 * 11 // 4)
        return FLOAT * (kept + layer + 256 * self.draft_vocab)


SIZES = (
    *(Size(hidden=hidden) for hidden in (1024, 2048, 4096)),
    *(Size(draft_vocab=rows) for rows in (8192, 128000)),
    *(Size(tokens=tokens) for tokens in (256, 2048, 4096)),
    *(Size(steps=steps) for steps in (1, 5)),
    Size(tokens=2048, steps=5),
)


@dataclass(frozen=True)
class Run:
    """One process: the least processor time, in seconds, of `unroll` and of one cached step after `tokens`; resident
    bytes before the drafter was loaded and after, the peak of loading, and of all up to the end of `unroll`."""

    seconds: float
    step_seconds: float
    before: int
    loaded: int
    load_peak: int
    peak: int


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Measure time and memory of the network at several sizes.")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)  # folder, steps
    options = parser.parse_args(arguments)
    if options.child:
        print(json.dumps(asdict(run(Path(options.child[0]), int(options.child[1])))))
        return 0
    if not options.json:
        print(
            "hidden  draft vocab  tokens  steps  unroll s  step ms  peak MB  formula MB  weights  logits  work  loading"
        )
    for size in SIZES:
        done = measure(size)
        print(as_json(size, done) if options.json else as_line(size, done), flush=True)
    print(
        f"least of {RUNS} runs, {THREADS} thread, processor time, {machine()}",
        file=sys.stderr if options.json else sys.stdout,
    )
    return 0


def measure(size: Size) -> Run:
    """One size in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        write_inputs(write_checkpoint(Path(folder), **size.config), size.tokens)
        command = [sys.executable, "-m", "benchmarks.network_size", "--child", folder, str(size.steps)]
        return Run(**json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout))


def run(folder: Path, steps: int) -> Run:
    """In the child: load, unroll, then draft beside the cached text."""
    torch.set_num_threads(THREADS)
    inputs, before = load_file(folder / INPUTS), memory("VmRSS")
    drafter = load_drafter(str(folder))
    loaded, load_peak = memory("VmRSS"), memory("VmHWM")
    seconds = [timed(lambda: drafter.unroll(inputs["ids"], inputs["states"], steps)) for _ in range(RUNS)]
    peak, cache = memory("VmHWM"), drafter.start()
    drafter.extend(cache, inputs["ids"], inputs["states"])
    drafts = [timed(lambda: drafter.draft(cache, 3)) for _ in range(DRAFTS)]
    return Run(min(seconds), min(drafts), before, loaded, load_peak, peak)


def timed(call: Callable[[], object]) -> float:
    start = time.process_time()
    call()
    return time.process_time() - start


def memory(figure: str) -> int:
    """Bytes, of the kernel: VmRSS now, VmHWM at most so far. Linux only."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{figure}:"))


def as_line(size: Size, done: Run) -> str:
    expected = done.before + OWN + size.weights + size.logits + size.work
    bytes_ = (done.peak, expected, size.weights, size.logits, size.work, done.load_peak)
    figures = (size.hidden, size.draft_vocab, size.tokens, size.steps)
    times = (f"{done.seconds:.2f}", f"{done.step_seconds * 1000:.1f}")
    return "  ".join([*map(str, figures), *times, *(f"{count / 1e6:.0f}" for count in bytes_)])


def as_json(size: Size, done: Run) -> str:
    """One line."""
    parts = {"weights": size.weights, "logits": size.logits, "work": size.work}
    return json.dumps({**asdict(size), **asdict(done), **parts})


if __name__ == "__main__":
    sys.exit(main())
