"""How fast the network computes logits, as a multiple of what its peers' own modules take for the same ones.

Peers are trainers whose releases are no dependency of ours. Each runs in an environment of its own, which the option
`--peer` or the variable DRAFTER_AUDIT_PEERS names as NAME=PYTHON; without one there is nothing to compare with, the
bound is not checked, and that is said.

All load one checkpoint, written for the occasion, and stay warm; each turn asks every one of them in order for the same
logits: so all meet the same machine at the same moment. Only the forward is timed (network_worker.py), and no time
counts unless the logits are ours. Judged is the median over the turns of ours / theirs, against the fastest peer's
module and so against each. The time judged is processor time of all threads, as in startup.py and for the same reason:
by the clock, two threads on a busy machine wait for each other. Beyond the bound, or where logits differ, the exit code
is 1.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import asdict, astuple, dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from benchmarks.bounds import machine, parser
from benchmarks.network_worker import INPUTS, THREADS
from benchmarks.startup import Timing, medians

BOUND = 1.25
CLOSE = 1e-4  # of the peer's largest logit, or of one
MIN_RUNS = 5
DEFAULT_RUNS = 9
VARIABLE = "DRAFTER_AUDIT_PEERS"
ROOT = Path(__file__).resolve().parents[1]

# Each peer's fastest attention on a CPU, which differs from case to case. speculators' eager and simple_flex_attention
# are left out: neither was the faster in any case.
BACKENDS = {"specforge": ("sdpa", "flex_attention"), "speculators": ("sdpa",)}
CASES = ((256, 1), (256, 3), (1024, 1), (1024, 3))  # tokens, steps
LONGEST = 1024

CONFIG: dict[str, object] = {
    "architectures": ["LlamaForCausalLMEagle3"],
    "model_type": "llama",
    "hidden_size": 1024,
    "intermediate_size": 2816,
    "num_hidden_layers": 1,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "head_dim": 64,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-05,
    "rope_theta": 10000.0,
    "max_position_embeddings": 2048,
    "vocab_size": 32000,
    "draft_vocab_size": 8192,
    "tie_word_embeddings": False,
    "torch_dtype": "float32",
}


@dataclass(frozen=True)
class Row:
    """One case of one peer's module: medians in milliseconds of processor time, the median of the turns' ratios, ours /
    theirs, the same by the clock on the wall, and how far the logits are apart. Without a peer, ours alone."""

    tokens: int
    steps: int
    ours_ms: float
    ours_wall_ms: float
    peer: str = ""
    peer_ms: float | None = None
    ratio: float | None = None
    wall_ratio: float | None = None
    apart: float | None = None

    @property
    def ok(self) -> bool | None:
        """None where there is nothing to compare with."""
        return None if self.ratio is None or self.apart is None else self.ratio <= BOUND and self.apart <= CLOSE


class Worker:
    """A process that holds one network, warm."""

    def __init__(self, python: str, folder: Path, name: str, backend: str = "") -> None:
        self.name = f"{name} {backend}".strip()
        script = str(Path(__file__).with_name("network_worker.py"))
        # Threads that wait for others sleep: a busy wait would count as processor time, and take it from the others.
        environment = {**os.environ, "OMP_WAIT_POLICY": "PASSIVE"}
        if name == "ours":
            environment["PYTHONPATH"] = str(ROOT)
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the process
        self._process = subprocess.Popen(
            [python, script, name, backend, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=environment,
            text=True,
        )
        told = self._answer()
        self.release = f"{self.name} {told['ready']} (torch {told['torch']})"

    def forward(self, tokens: int, steps: int, save: Path | None = None) -> Timing:
        """How long one took; its logits are written to `save`. Raises SystemExit where the process fails."""
        assert self._process.stdin is not None
        self._process.stdin.write(
            json.dumps({"tokens": tokens, "steps": steps, "save": None if save is None else str(save)}) + "\n"
        )
        self._process.stdin.flush()
        took = self._answer()
        return Timing(cpu=float(took["cpu"]), wall=float(took["wall"]))

    def close(self) -> None:
        """Ends the process, which ends with its input, and keeps what it said last."""
        with self._errors, self._process:
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process.wait()
            self._errors.seek(0)
            self._last_words = " ".join(self._errors.read().decode(errors="replace").strip().splitlines()[-1:])

    def _answer(self) -> dict[str, str]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self.close()
            raise SystemExit(f"error: {self.name} ended with {self._process.returncode}: {self._last_words}")
        answer: dict[str, str] = json.loads(line)
        return answer


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, and return the exit code: 1 when the bound is exceeded or logits differ."""
    known = ", ".join(BACKENDS)
    made = parser("Measure how fast the network computes, against its peers' modules.", DEFAULT_RUNS, MIN_RUNS)
    made.add_argument(
        "--peer",
        action="append",
        metavar="NAME=PYTHON",
        help=f"a peer ({known}) and the Python of an environment that has it; may be repeated",
    )
    options = made.parse_args(arguments)
    peers = dict(word.partition("=")[::2] for word in options.peer or os.environ.get(VARIABLE, "").split())
    for name, python in peers.items():
        if name not in BACKENDS or not python:
            made.error(f"{name}={python} is no NAME=PYTHON with a name of {known}")

    with tempfile.TemporaryDirectory() as folder:
        write_inputs(write_checkpoint(Path(folder)))
        rows, releases = measure(peers, Path(folder), options.runs)
    about = {"runs": options.runs, "machine": machine(), "load": os.getloadavg()[0], "modules": releases}
    print(as_json(rows, about) if options.json else as_table(rows, about))
    return 1 if any(row.ok is False for row in rows) else 0


def measure(peers: dict[str, str], folder: Path, runs: int) -> tuple[list[Row], list[str]]:
    """Every case with all workers in turns, and the releases that took part."""
    workers = [Worker(sys.executable, folder, "ours")]
    try:
        for name, python in peers.items():
            workers += [Worker(python, folder, name, backend) for backend in BACKENDS[name]]
        rows = [row for tokens, steps in CASES for row in compare(workers, tokens, steps, folder, runs)]
        return rows, [worker.release for worker in workers]
    finally:
        for worker in workers:
            worker.close()


def compare(workers: list[Worker], tokens: int, steps: int, folder: Path, runs: int) -> list[Row]:
    """One case: the logits first, which also compiles what a peer compiles, then `runs` turns."""
    saved = [folder / f"logits-{place}.safetensors" for place in range(len(workers))]
    for worker, path in zip(workers, saved, strict=True):
        worker.forward(tokens, steps, path)
    mine, *theirs = (load_file(path)["logits"] for path in saved)
    apart = [farthest(mine, logits) for logits in theirs]
    for path in saved:
        path.unlink()

    turns = [[worker.forward(tokens, steps) for worker in workers] for _ in range(runs)]
    if len(workers) == 1:
        cpu, wall = (
            statistics.median(times) * 1000 for times in zip(*(astuple(turn[0]) for turn in turns), strict=True)
        )
        return [Row(tokens, steps, cpu, wall)]
    return [
        judge(tokens, steps, worker.name, [(turn[place], turn[0]) for turn in turns], distance)
        for place, (worker, distance) in enumerate(zip(workers[1:], apart, strict=True), start=1)
    ]


def judge(tokens: int, steps: int, peer: str, turns: list[tuple[Timing, Timing]], apart: float) -> Row:
    """Turns of (theirs, ours)."""
    peer_cpu, cpu, ratio = medians([(theirs.cpu, ours.cpu) for theirs, ours in turns])
    _, wall, wall_ratio = medians([(theirs.wall, ours.wall) for theirs, ours in turns])
    return Row(tokens, steps, cpu, wall, peer, peer_cpu, ratio, wall_ratio, apart)


def farthest(mine: torch.Tensor, theirs: torch.Tensor) -> float:
    """The largest difference, of the peer's largest logit or of one, over the positions whose tokens there are: past
    the end SpecForge's flex_attention masks what its sdpa reads."""
    return max(
        float((ours[: len(ours) - step] - peers[: len(peers) - step]).abs().max() / peers.abs().max().clamp(min=1.0))
        for step, (ours, peers) in enumerate(zip(mine, theirs, strict=True))
    )


def write_checkpoint(folder: Path, **changed: int) -> Path:
    """A drafter as SpecForge names it, with random weights and a random draft vocabulary. Returns `folder`."""
    torch.manual_seed(0)
    sizes = {**CONFIG, **changed}
    (folder / "config.json").write_text(json.dumps(sizes), encoding="utf-8")
    hidden, inner, vocab, draft_vocab, heads, kv_heads, size = (
        int(str(sizes[key]))
        for key in (
            "hidden_size",
            "intermediate_size",
            "vocab_size",
            "draft_vocab_size",
            "num_attention_heads",
            "num_key_value_heads",
            "head_dim",
        )
    )
    layer = {
        "self_attn.q_proj": (heads * size, 2 * hidden),
        "self_attn.k_proj": (kv_heads * size, 2 * hidden),
        "self_attn.v_proj": (kv_heads * size, 2 * hidden),
        "self_attn.o_proj": (hidden, heads * size),
        "mlp.gate_proj": (inner, hidden),
        "mlp.up_proj": (inner, hidden),
        "mlp.down_proj": (hidden, inner),
    }
    tables = {f"midlayer.{name}": shape for name, shape in layer.items()}
    tables |= {"embed_tokens": (vocab, hidden), "fc": (hidden, 3 * hidden), "lm_head": (draft_vocab, hidden)}
    norms = ("norm", *(f"midlayer.{name}" for name in ("hidden_norm", "input_layernorm", "post_attention_layernorm")))
    # Each output of about the size of its inputs, as in a network that was trained.
    weights = {f"{name}.weight": torch.randn(shape) * shape[1] ** -0.5 for name, shape in tables.items()}
    weights |= {f"{name}.weight": 1 + 0.3 * torch.randn(hidden) for name in norms}
    kept = torch.randperm(vocab)[:draft_vocab].sort().values
    weights["d2t"] = kept - torch.arange(draft_vocab)
    weights["t2d"] = torch.isin(torch.arange(vocab), kept)
    save_file(weights, folder / "model.safetensors")
    return folder


def write_inputs(folder: Path, tokens: int = LONGEST) -> None:
    """Token ids, and states that grow from slot to slot, as a residual stream does."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    states = torch.randn(3, tokens, config["hidden_size"]) * torch.arange(1, 4).view(3, 1, 1)
    save_file({"ids": torch.randint(3, config["vocab_size"], (tokens,)), "states": states}, folder / INPUTS)


def as_table(rows: list[Row], about: dict[str, object]) -> str:
    """The rows for people, and a line on what was measured."""
    head = (
        "tokens",
        "steps",
        "ours ms",
        "peer",
        "peer ms",
        "ratio",
        "bound",
        "apart",
        "ok",
        "ours wall ms",
        "wall ratio",
    )
    body = [
        (
            str(row.tokens),
            str(row.steps),
            number(row.ours_ms, ".1f"),
            row.peer or "none",
            number(row.peer_ms, ".1f"),
            number(row.ratio, ".2f"),
            "" if row.ok is None else f"{BOUND:.2f}",
            number(row.apart, ".1e"),
            {None: "", True: "yes", False: "NO"}[row.ok],
            number(row.ours_wall_ms, ".1f"),
            number(row.wall_ratio, ".2f"),
        )
        for row in rows
    ]
    widths = [max(len(line[column]) for line in (head, *body)) for column in range(len(head))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in (head, *body)]
    told = (
        f"medians of {about['runs']} turns, processor time, {THREADS} threads, hidden {CONFIG['hidden_size']}, "
        f"{about['machine']}, load {about['load']:.1f}"
    )
    modules = about["modules"]
    assert isinstance(modules, list)
    if len(modules) == 1:
        told += f"\nno peer was named (--peer or {VARIABLE}): our own times only, the bound of {BOUND} is not checked"
    return "\n".join([*(line.rstrip() for line in lines), told, *modules])


def number(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


def as_json(rows: list[Row], about: dict[str, object]) -> str:
    """The rows for programs; `ok` is null where nothing was compared."""
    told = {"bound": BOUND, "config": CONFIG, "threads": THREADS}
    return json.dumps({**about, **told, "rows": [{**asdict(row), "ok": row.ok} for row in rows]}, indent=2)


if __name__ == "__main__":
    sys.exit(main())
