"""What a target's taps cost: time as a multiple of the same forward without them, and memory by the number of layers.

The target is a Llama with random weights, 24 layers of width 512. Time: forwards with and without taps at all 25
boundaries take turns in one process. Memory: one process for each number of layers runs one forward over a longer text
and gives each state away as it comes, to a file; what the peak adds to what was held before must not grow with the
layers. A last one keeps all states, to show what is saved.

Beyond a bound the exit code is 1. Run it from the checkout: `make bench`.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.bounds import Row, parser, tell

if TYPE_CHECKING:
    from drafter_audit.model.target.model import TargetModel

LAYERS, HIDDEN, TOKENS, LONG = 24, 512, 256, 1024
FEWER = (6, 12)
MIN_RUNS, DEFAULT_RUNS = 3, 15
STATE_MB = LONG * HIDDEN * 4 / 1e6

TIME_BOUND = 1.1
MEMORY_BOUND_STATES = 2.0
"""How many states more the peak of 24 layers may hold than that of 6: it would be 18 if they were kept."""


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, and return the exit code: 1 when a bound is exceeded."""
    made = parser("Measure what taps cost, against bounds.", DEFAULT_RUNS, MIN_RUNS)
    made.add_argument("--peak", nargs=2, metavar=("FOLDER", "WHERE"), help=argparse.SUPPRESS)
    options = made.parse_args(arguments)
    if options.peak:
        print(peak_mb(*options.peak))
        return 0
    about = f"{LAYERS} layers of width {HIDDEN}, {TOKENS} tokens ({LONG} for memory)"
    return tell(measure(options.runs), options, ("tapped", "untapped"), about)


def measure(runs: int) -> list[Row]:
    """Writes a target for each number of layers and measures it."""
    with tempfile.TemporaryDirectory() as folder:
        refs = {layers: write_target(Path(folder, str(layers)), layers) for layers in (*FEWER, LAYERS)}
        given = {layers: peak_of(ref, f"{folder}/states") for layers, ref in refs.items()}
        kept = peak_of(refs[LAYERS], "kept")
        tapped, plain = zip(*turns(refs[LAYERS], runs), strict=True)
    ratio = statistics.median(ours / theirs for ours, theirs in zip(tapped, plain, strict=True))
    more = (given[LAYERS] - given[FEWER[0]]) / STATE_MB
    return [
        Row("time of a tapped forward / untapped", ratio, None, TIME_BOUND),
        Row("time of a forward, ms", statistics.median(tapped) * 1e3, statistics.median(plain) * 1e3),
        Row(f"peak beyond that of {FEWER[0]} layers, states", more, None, MEMORY_BOUND_STATES),
        *(Row(f"peak of a forward, {layers} layers, MB", mb) for layers, mb in given.items()),
        Row(f"peak of a forward, {LAYERS} layers, all states kept, MB", kept),
    ]


def write_target(folder: Path, layers: int) -> str:
    """A Llama with random weights. Returns its folder."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=HIDDEN,
        intermediate_size=2 * HIDDEN,
        num_hidden_layers=layers,
        num_attention_heads=8,
        num_key_value_heads=4,
        vocab_size=1024,
        max_position_embeddings=LONG,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    return str(folder)


def load(ref: str) -> TargetModel:
    from drafter_audit.model.target.load import load_target

    return load_target(ref)


def turns(ref: str, runs: int) -> list[tuple[float, float]]:
    """Seconds of processor time of one forward with all taps and one without, in turns; the first turn is dropped."""
    import torch

    torch.set_num_threads(1)  # threads that wait for each other burn processor time
    target = load(ref)
    text = torch.arange(TOKENS) + 3
    found = []
    for _ in range(runs + 1):
        begun = time.process_time()
        target.forward_with_taps(text, range(LAYERS + 1))
        between = time.process_time()
        with torch.no_grad():
            target.model(text[None], use_cache=False)
        found.append((between - begun, time.process_time() - between))
    return found[1:]


def peak_of(ref: str, where: str) -> float:
    """`peak_mb` in a process of its own. Raises SystemExit where that fails."""
    command = [sys.executable, "-m", "benchmarks.taps", "--peak", ref, where]
    # Each tensor is given back to the system when it is freed, so that the peak is of tensors and not of the allocator.
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_ARENA_MAX": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode != 0:
        raise SystemExit(f"error: a run ended with {done.returncode}: {done.stderr.strip().splitlines()[-1:]}")
    return float(done.stdout)


def peak_mb(ref: str, where: str) -> float:
    """What the peak of one forward over a long text adds to the memory in use, in MB (Linux).

    Each state goes to the file `where` as it comes; "kept" holds all of them.
    """
    import torch
    from torch import Tensor

    target = load(ref)
    text = torch.arange(LONG) % 1000 + 3
    boundaries = range(target.num_layers + 1)
    target.forward_with_taps(text[:16], boundaries)
    Path("/proc/self/clear_refs").write_text("5")  # the peak is what is in use now: proc(5)
    before = resident_mb("VmRSS")
    if where == "kept":
        target.forward_with_taps(text, boundaries)
    else:
        with open(where, "wb") as file:

            def give_away(slot: int, state: Tensor) -> None:
                file.write(state.numpy().data)

            target.forward_into(text, boundaries, give_away)
    return resident_mb("VmHWM") - before


def resident_mb(name: str) -> float:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(f"{name}:"))
    return int(line.split()[1]) * 1024 / 1e6


if __name__ == "__main__":
    sys.exit(main())
