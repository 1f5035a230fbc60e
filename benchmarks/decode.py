"""How fast a replay is beside the live loop, and a sweep beside a replay, on the reference pair.

Prompts of the bundled pack are answered once and recorded. Then, in turns, the live loop answers them again at 3 steps,
a replay counts the same from the recording, reading it from disk, and a replay at 10 steps and a sweep over 1 to 10 end
with their results, intervals included. The counts must be the same. Judged is the median over the turns of the ratio of
processor times, on one thread; beyond a bound the exit code is 1. The target is tiny: beside a larger one the live loop
takes far longer, and a replay does not. Run it from the checkout: `make bench`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.headers import Row, number
from benchmarks.startup import machine

if TYPE_CHECKING:
    from drafter_audit import Drafter
    from drafter_audit.model.target.model import TargetModel
    from drafter_audit.prompts.prompt import TokenPrompt
    from drafter_audit.recording.recording import Recording

PROMPTS, NEW, LONGEST = 24, 64, 10
MIN_RUNS, DEFAULT_RUNS = 3, 7
REPLAY_BOUND = 0.1
SWEEP_BOUND = 1.3


@dataclass(frozen=True)
class Made:
    """The pair, some prompts, and the recording of its answers to them."""

    drafter: Drafter
    target: TargetModel
    prompts: tuple[TokenPrompt, ...]
    recording: Recording


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, and return the exit code: 1 when a bound is exceeded."""
    parser = argparse.ArgumentParser(description="Measure replay and sweep, against bounds.")
    parser.add_argument("--runs", type=int, default=DEFAULT_RUNS, help=f"turns, at least {MIN_RUNS}")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args(arguments)
    if options.runs < MIN_RUNS:
        parser.error(f"--runs must be at least {MIN_RUNS}, for the medians to mean something")
    with tempfile.TemporaryDirectory() as folder:
        rows = measure(made(Path(folder, "rec")), options.runs)
    print(as_json(rows, options.runs) if options.json else as_table(rows, options.runs))
    return 0 if all(row.ok for row in rows) else 1


def made(folder: Path) -> Made:
    """The pair in float32 on one thread, and a recording of it in `folder`."""
    import torch

    from drafter_audit.decode.loading import planned
    from drafter_audit.model.target.load import load_target
    from drafter_audit.model.target.tokenizer import load_tokenizer
    from drafter_audit.prompts.read import read_prompts
    from drafter_audit.prompts.render import render
    from drafter_audit.recording.make import Settings, record
    from drafter_audit.recording.open import open_recording

    torch.set_num_threads(1)  # threads that wait for each other burn processor time
    target, tokenizer, pack = (
        load_target("tiny-target", dtype="float32"),
        load_tokenizer("tiny-target"),
        read_prompts(None),
    )
    if tokenizer is None:
        raise SystemExit("error: the tiny target has no tokenizer")
    few = replace(pack, prompts=pack.prompts[:: len(pack.prompts) // PROMPTS][:PROMPTS])
    prompts = render(
        few,
        tokenizer.tokenizer,
        thinking=None,
        raw=False,
        vocab_size=target.vocab_size,
        max_positions=target.max_positions,
        max_new_tokens=NEW,
    )
    record(target, prompts, folder, Settings((2, 6, 9), max_new_tokens=NEW, lookahead=LONGEST))
    return Made(planned("tiny", target).load("float32"), target, prompts, open_recording(folder))


def measure(pair: Made, runs: int) -> list[Row]:
    """Takes the turns; the first is dropped. Raises SystemExit where replay and live loop count differently."""
    turns = [turn(pair) for _ in range(runs + 1)][1:]
    live, short, long, sweep = zip(*turns, strict=True)
    return [
        Row("replay / live loop, 3 steps", _ratio(short, live), None, REPLAY_BOUND),
        Row("sweep of 1 to 10 / replay, 10 steps", _ratio(sweep, long), None, SWEEP_BOUND),
        *(
            Row(f"{name}, ms", statistics.median(each) * 1e3)
            for name, each in (("live", live), ("replay, 3 steps", short), ("replay, 10 steps", long), ("sweep", sweep))
        ),
    ]


def turn(pair: Made) -> tuple[float, float, float, float]:
    """Seconds of processor time of the live loop, a replay as long, one at 10 steps, and a sweep."""
    from drafter_audit.decode.live import decode_live
    from drafter_audit.decode.outcome import replay_result
    from drafter_audit.decode.replay import replay
    from drafter_audit.decode.settings import Settings
    from drafter_audit.decode.sweep import sweep_result

    live, run = timed(lambda: decode_live(pair.drafter, pair.target, pair.prompts, Settings(3, NEW, plain=False)))
    short, replayed = timed(lambda: replay(pair.drafter, pair.recording, 3))
    tied = {tie.prompt for tie in replayed.ties()}
    if any(a != b and a.id not in tied for a, b in zip(run.counts, replayed.counts(), strict=True)):
        raise SystemExit("error: the replay counts other rounds than the live loop")
    steps = range(1, LONGEST + 1)
    long, _ = timed(lambda: replay_result(replay(pair.drafter, pair.recording, LONGEST)).to_dict())
    sweep, _ = timed(lambda: sweep_result(replay(pair.drafter, pair.recording, LONGEST), steps).to_dict())
    return live, short, long, sweep


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    begun = time.process_time()
    done = work()
    return time.process_time() - begun, done


def _ratio(ours: tuple[float, ...], theirs: tuple[float, ...]) -> float:
    return statistics.median(a / b for a, b in zip(ours, theirs, strict=True))


def as_table(rows: list[Row], runs: int) -> str:
    """The rows for people."""
    head = ("figure", "measured", "bound", "ok")
    body = [(row.name, number(row.ours), number(row.bound), "yes" if row.ok else "NO") for row in rows]
    widths = [max(len(line[column]) for line in (head, *body)) for column in range(len(head))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in (head, *body)]
    about = f"{PROMPTS} prompts of the pack, answers of up to {NEW} tokens, {runs} turns, {machine()}"
    return "\n".join([*(line.rstrip() for line in lines), about])


def as_json(rows: list[Row], runs: int) -> str:
    """The rows for programs."""
    told = [{**asdict(row), "ok": row.ok} for row in rows]
    return json.dumps({"runs": runs, "machine": machine(), "rows": told}, indent=2)


if __name__ == "__main__":
    sys.exit(main())
