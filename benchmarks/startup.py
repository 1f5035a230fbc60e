"""How long `drafter-audit` takes to start, as a multiple of what it cannot do without.

Each command is timed against a baseline, the bare import of the libraries it needs, in whole processes that take turns:
baseline, command, baseline, command. So both meet the same machine at the same moment, and their ratio travels from one
machine to another where milliseconds do not. The ratio is the median over the turns of command / baseline, which moves
less than the quotient of the two medians when a machine changes its speed half way. A command over its bound ends the
run with exit code 1.

The time judged is processor time, user and system, of that process and its own children. On an idle machine it repeats
as well as the clock on the wall; with every core busy, about twice as well. Wall time stands beside it.

Run it with the environment's own Python: `make bench`. POSIX only, for `os.wait4`.
"""

from __future__ import annotations

import json
import os
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.bounds import machine, parser

MIN_RUNS = 15
DEFAULT_RUNS = 31

HELP_BOUND = 1.5
COMPARE_BOUND = 3.0
LINT_BOUND = 30.0  # of a bare Python, which takes some 15 ms
LINT_SECONDS = 1.0

_BYTES = {"BF16": 2, "I64": 8, "BOOL": 1}
_DRAFT_VOCAB = 128


@dataclass(frozen=True)
class Row:
    """One command against its baseline: medians in milliseconds, and the median of the turns' ratios."""

    name: str
    baseline: str
    median_ms: float
    baseline_ms: float
    ratio: float
    bound: float
    ok: bool
    wall_ms: float
    baseline_wall_ms: float
    wall_ratio: float
    wall_bound_ms: float | None = None


@dataclass(frozen=True)
class Timing:
    """One process: seconds of processor time, and seconds by the clock on the wall."""

    cpu: float
    wall: float


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, and return the exit code: 1 when a bound is exceeded."""
    about = "Measure how fast the command line starts, against its bounds."
    options = parser(about, DEFAULT_RUNS, MIN_RUNS).parse_args(arguments)
    rows = measure(options.runs)
    print(as_json(rows, options.runs) if options.json else as_table(rows, options.runs))
    return 0 if all(row.ok for row in rows) else 1


def measure(runs: int) -> list[Row]:
    """Time every command against its baseline, on two small drafters made for the occasion."""
    command = command_line()
    with tempfile.TemporaryDirectory() as folder:
        drafters = [str(write_tiny_drafter(Path(folder) / name)) for name in ("ours", "theirs")]
        compare = [*command, "compare", *drafters]
        lint = [*command, "lint", drafters[0], "--target", str(write_target(Path(folder) / "target")), *_LINT]
        return [
            compare_starts("--help", [*command, "--help"], "import click", HELP_BOUND, runs),
            compare_starts("compare A B", compare, "import click, tabulate", COMPARE_BOUND, runs),
            compare_starts("lint A --target B", lint, "pass", LINT_BOUND, runs, seconds=LINT_SECONDS),
        ]


def command_line() -> list[str]:
    """The console script, which is what users run; without one, `python -m`, and a word about it on stderr."""
    # The folder as it is named, not resolved: in a virtual environment python is a link to one elsewhere.
    script = Path(sys.executable).parent / "drafter-audit"
    if script.exists():
        return [str(script)]
    print(f"note: no console script beside {sys.executable}, measuring python -m drafter_audit", file=sys.stderr)
    return [sys.executable, "-m", "drafter_audit"]


def compare_starts(
    name: str, command: list[str], baseline: str, bound: float, runs: int, *, seconds: float | None = None
) -> Row:
    """Time `python -c baseline` and `command` in turns, `runs` times each; `seconds` bounds the wall time too."""
    base = [sys.executable, "-c", baseline]
    for argv in (base, command):
        # Once unmeasured: the first run compiles bytecode and fetches files from the disk.
        run_once(argv)
    turns = [(run_once(base), run_once(command)) for _ in range(runs)]

    base_cpu, cpu, ratio = medians([(first.cpu, second.cpu) for first, second in turns])
    base_wall, wall, wall_ratio = medians([(first.wall, second.wall) for first, second in turns])
    limit = None if seconds is None else seconds * 1000
    ok = ratio <= bound and (limit is None or wall <= limit)
    return Row(name, baseline, cpu, base_cpu, ratio, bound, ok, wall, base_wall, wall_ratio, limit)


def medians(turns: list[tuple[float, float]]) -> tuple[float, float, float]:
    """Of turns of (baseline, command) in seconds: the median of each in milliseconds, and of command / baseline."""
    return (
        statistics.median(base for base, _ in turns) * 1000,
        statistics.median(command for _, command in turns) * 1000,
        statistics.median(command / base for base, command in turns),
    )


def run_once(argv: list[str]) -> Timing:
    """Run `argv` to its end. Raises SystemExit with its last words if it fails: a crash is quick, and no figure."""
    # An installed package has its bytecode. Where writing it is turned off, as in many containers, a checkout has none,
    # and each run would compile the package again, next to a baseline that never compiles.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with tempfile.TemporaryFile() as errors:
        start = time.perf_counter()
        process = subprocess.Popen(
            argv, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors
        )
        # wait4 gives the usage of this child alone; RUSAGE_CHILDREN would be the sum over all so far.
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            errors.seek(0)
            last_words = errors.read().decode(errors="replace").strip().splitlines()[-1:]
            raise SystemExit(f"error: {' '.join(argv)} ended with {process.returncode}: {' '.join(last_words)}")
    return Timing(cpu=usage.ru_utime + usage.ru_stime, wall=wall)


def as_table(rows: list[Row], runs: int) -> str:
    """The rows for people, processor time first."""
    head = ("name", "median ms", "baseline", "baseline ms", "ratio", "bound", "wall ms", "bound", "ok", "wall ratio")
    body = [
        (
            row.name,
            f"{row.median_ms:.1f}",
            row.baseline,
            f"{row.baseline_ms:.1f}",
            f"{row.ratio:.2f}",
            f"{row.bound:.2f}",
            f"{row.wall_ms:.1f}",
            "" if row.wall_bound_ms is None else f"{row.wall_bound_ms:.0f}",
            "yes" if row.ok else "NO",
            f"{row.wall_ratio:.2f}",
        )
        for row in rows
    ]
    widths = [max(len(line[column]) for line in (head, *body)) for column in range(len(head))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in (head, *body)]
    return "\n".join([*(line.rstrip() for line in lines), f"medians of {runs} runs each, processor time, {machine()}"])


def as_json(rows: list[Row], runs: int) -> str:
    """The rows for programs."""
    return json.dumps(
        {"runs": runs, "time": "cpu", "machine": machine(), "rows": [asdict(row) for row in rows]}, indent=2
    )


def write_tiny_drafter(folder: Path) -> Path:
    """Write an EAGLE-3 drafter as SpecForge names it, small enough that reading it costs nothing. Returns `folder`.

    Its weights are zeros: only the headers and the config are looked at here. The file is put together by hand, so that
    this needs no library that the measured command does not.
    """
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(_CONFIG, indent=2), encoding="utf-8")

    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    body = bytearray()
    for name, (dtype, shape) in _TENSORS.items():
        size = _BYTES[dtype]
        for length in shape:
            size *= length
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(body), len(body) + size]}
        # d2t is zeros, an offset of 0 for each draft token, so t2d holds exactly the first tokens of the vocabulary.
        body += bytes([1]) * _DRAFT_VOCAB + bytes(size - _DRAFT_VOCAB) if name == "t2d" else bytes(size)
    encoded = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(encoded)) + encoded + body)
    return folder


def write_target(folder: Path) -> Path:
    """Write the config.json of a target that the tiny drafter fits, and nothing else. Returns `folder`."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(_TARGET, indent=2), encoding="utf-8")
    return folder


_LINT = ("--engine", "all", "--fail-on", "never")

_TARGET: dict[str, object] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 8,
    "num_attention_heads": 4,
    "vocab_size": 512,
    "max_position_embeddings": 2048,
}

_CONFIG: dict[str, object] = {
    "architectures": ["LlamaForCausalLMEagle3"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-05,
    "rope_theta": 10000.0,
    "max_position_embeddings": 2048,
    "vocab_size": 512,
    "draft_vocab_size": _DRAFT_VOCAB,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 3, 4], "use_aux_hidden_state": True},
}

# 8-byte numbers first, then 2, then 1, so that each tensor starts where its type wants it.
_TENSORS: dict[str, tuple[str, list[int]]] = {
    "d2t": ("I64", [_DRAFT_VOCAB]),
    "fc.weight": ("BF16", [64, 192]),
    "lm_head.weight": ("BF16", [_DRAFT_VOCAB, 64]),
    "midlayer.hidden_norm.weight": ("BF16", [64]),
    "midlayer.input_layernorm.weight": ("BF16", [64]),
    "midlayer.mlp.down_proj.weight": ("BF16", [64, 128]),
    "midlayer.mlp.gate_proj.weight": ("BF16", [128, 64]),
    "midlayer.mlp.up_proj.weight": ("BF16", [128, 64]),
    "midlayer.post_attention_layernorm.weight": ("BF16", [64]),
    "midlayer.self_attn.k_proj.weight": ("BF16", [64, 128]),
    "midlayer.self_attn.o_proj.weight": ("BF16", [64, 128]),
    "midlayer.self_attn.q_proj.weight": ("BF16", [128, 128]),
    "midlayer.self_attn.v_proj.weight": ("BF16", [64, 128]),
    "norm.weight": ("BF16", [64]),
    "t2d": ("BOOL", [512]),
}


if __name__ == "__main__":
    sys.exit(main())
