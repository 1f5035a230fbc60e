"""How fast the headers of a large target are read from the Hub, as a multiple of the Hub client's own way.

The target has the size of Kimi-K2.5: 62 shards, some 139,000 tensors, 10^12 parameters, headers of 340 kB. It lies in
sparse files behind a stand-in of the Hub on this machine, which waits 50 ms before each answer. Two whole processes
take turns, each with an empty cache: `HfApi.get_safetensors_metadata` and our `load_table`. Judged is the time of the
call: the import of the client, which both need, is apart. A last one reads by commit hash what ours left behind.

Beyond a bound the exit code is 1: the time, as the median over the turns of ours / theirs; the peak memory of the
process; the requests; the bytes read beyond the headers, 128 KiB a shard. Run it from the checkout: `make bench`.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.bounds import Row, parser, tell
from drafter_audit.checkpoint.header import LENGTH_BYTES
from tests.hub import Hub
from tests.hub.moe import SHARDS, TENSORS, write_target

LATENCY_S = 0.05
MIN_RUNS = 3
DEFAULT_RUNS = 5
REPO = "moonshotai/Kimi-K2.5"

TIME_BOUND = 0.6
MEMORY_BOUND_MB = 200
SPECULATIVE_BYTES = 131_072  # a shard

OURS = """
from drafter_audit.sources import hub, usage
from drafter_audit.sources.open import open_source
from drafter_audit.checkpoint.load import load_table
start = time.perf_counter()
tensors = len(load_table(open_source(ref)))
seconds = time.perf_counter() - start
counted = usage.hub_usage().to_dict()
"""
THEIRS = """
from huggingface_hub import HfApi
start = time.perf_counter()
metadata = HfApi().get_safetensors_metadata(ref)
tensors = sum(len(file.tensors) for file in metadata.files_metadata.values())
seconds = time.perf_counter() - start
counted = None
"""
FRAME = """
import json, re, resource, sys, time
from pathlib import Path
begun = time.perf_counter()
ref = sys.argv[1]
{code}
# What the kernel says of a child begins with the size of its parent, so Linux is asked elsewhere.
status = Path("/proc/self/status")
unit = 1 if sys.platform == "darwin" else 1024
peak = int(re.search(r"VmHWM:\\s+(\\d+) kB", status.read_text())[1]) * 1024 if status.exists() else (
    resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
)
print(json.dumps([tensors, seconds, time.perf_counter() - begun, peak, counted]))
"""


@dataclass(frozen=True)
class Run:
    """One process: seconds of the call and of all of it, peak bytes of memory; requests and body bytes of the log."""

    seconds: float
    process_seconds: float
    peak: int
    requests: int
    bytes: int


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, and return the exit code: 1 when a bound is exceeded."""
    about = "Measure how fast a large target's headers are read, against bounds."
    options = parser(about, DEFAULT_RUNS, MIN_RUNS).parse_args(arguments)
    told = f"{SHARDS} shards, {TENSORS} tensors, {LATENCY_S * 1000:.0f} ms a request"
    return tell(measure(options.runs), options, ("ours", "huggingface_hub"), told)


def measure(runs: int) -> list[Row]:
    """Reads the target in turns, theirs and ours, then once more by its commit hash from what ours left behind."""
    with tempfile.TemporaryDirectory() as folder:
        files = write_target(Path(folder))
        needed = sum(needed_bytes(path) for path in files.values())
        hub = Hub(Path(folder))
        try:
            commit = hub.add_repo(REPO, files)
            hub.latency = LATENCY_S
            homes = [Path(folder) / f"home-{turn}" for turn in range(2 * runs)]
            pairs = zip(homes[::2], homes[1::2], strict=True)
            turns = [(run(hub, THEIRS, REPO, first), run(hub, OURS, REPO, second)) for first, second in pairs]
            pinned = run(hub, OURS, f"{REPO}@{commit}", hub.home)
        finally:
            hub.close()
    return judge(turns, pinned, needed)


def needed_bytes(path: Path) -> int:
    """What must be read of a file: a shard's header, all of an index. config.json is not read here."""
    if path.suffix == ".safetensors":
        with path.open("rb") as file:
            return LENGTH_BYTES + int.from_bytes(file.read(LENGTH_BYTES), "little")
    return 0 if path.name == "config.json" else path.stat().st_size


def run(hub: Hub, code: str, ref: str, home: Path) -> Run:
    """`code` on `ref` in a process whose HF_HOME is `home`. Raises SystemExit where it fails or miscounts."""
    hub.home = home
    hub.requests.clear()
    command = [sys.executable, "-c", FRAME.format(code=code), ref]
    # As in startup.py: an installed package has its bytecode, and a checkout must not be compiled in each run.
    environment = {name: value for name, value in hub.env.items() if name != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"error: a run ended with {done.returncode}: {done.stderr.strip().splitlines()[-1:]}")
    tensors, seconds, process_seconds, peak, counted = json.loads(done.stdout)
    log = {"requests": len(hub.requests), "bytes": hub.sent}
    if tensors != TENSORS or counted not in (None, log):
        raise SystemExit(f"error: {tensors} tensors and {counted}, where {TENSORS} and {log} are right")
    return Run(seconds, process_seconds, peak, **log)


def judge(turns: list[tuple[Run, Run]], pinned: Run, needed: int) -> list[Row]:
    """The figures against their bounds; `needed` is the bytes that no reader can do without."""

    def medians(figure: Callable[[Run], float]) -> tuple[float, float]:
        return statistics.median(figure(ours) for _, ours in turns), statistics.median(figure(hf) for hf, _ in turns)

    ratio = statistics.median(ours.seconds / theirs.seconds for theirs, ours in turns)
    return [
        Row("time of the call / theirs", ratio, None, TIME_BOUND),
        Row("time of the call, s", *medians(lambda run: run.seconds)),
        Row("time of the process, s", *medians(lambda run: run.process_seconds)),
        Row("peak memory, MB", *medians(lambda run: run.peak / 1e6), MEMORY_BOUND_MB),
        Row("requests", *medians(lambda run: run.requests), SHARDS + 2),
        Row("bytes beyond the headers, kB a shard", *medians(lambda run: beyond(run, needed)), SPECULATIVE_BYTES / 1e3),
        Row("requests of a second run, by commit", pinned.requests, None, 0),
        Row("time of the second run's call, s", pinned.seconds),
    ]


def beyond(run: Run, needed: int) -> float:
    """kB a shard."""
    return (run.bytes - needed) / SHARDS / 1e3


if __name__ == "__main__":
    sys.exit(main())
