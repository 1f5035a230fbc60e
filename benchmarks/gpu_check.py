"""What only a GPU can show, in one go of 8 minutes at most: `make gpu-check`, on a machine that has one.

The peers' logits in bfloat16 (tests marked `gpu`); live decoding against replay, round by round up to the first tie, of
the bundled pair and of one of Llama-3.1-8B's shape with random weights; and the verdicts of the wiring check: healthy
for the bundled drafter, miswired for it with other layer ids, and neither for one of random weights. Each stage prints
its time and the most GPU memory that it held. The exit code is 0 where all stages pass, 1 where one does not, 3 without
a GPU or past the limit.

`--small` runs the same on a CPU with a small random pair, to try the script itself; it says nothing about a GPU.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from functools import partial
from io import StringIO
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from safetensors.torch import load_file, save_file

import drafter_audit
from benchmarks.network import write_checkpoint
from benchmarks.pairs import Pair, bundled_pair, random_llama
from drafter_audit.cli.main import main as command
from drafter_audit.decode.live import LiveRun, decode_live
from drafter_audit.decode.loading import planned
from drafter_audit.decode.replay import ReplayedPrompt, ReplayRun, replay, rounds_of
from drafter_audit.decode.settings import Settings
from drafter_audit.decode.ties import tie_below
from drafter_audit.facts import pair as bundled
from drafter_audit.measure.acceptance import Acceptance
from drafter_audit.model.target.load import load_target
from drafter_audit.prompts.prompt import TokenPrompt
from drafter_audit.recording import make
from drafter_audit.recording.open import open_recording

LIMIT_S, STEPS = 480, 3
ROOT = Path(__file__).resolve().parents[1]
SLIPPED = [1, 4, 7]
"""Where training had the outputs of layers 1, 5 and 8."""

SPREAD = 5.0
"""Of the logits of random weights: their largest lie about 20, as a trained target's do, so that not all are ties."""


@dataclass(frozen=True)
class Sizes:
    """Of the random pair, and of what is decoded: `prompts` of the bundled pair, answered with `new` tokens each. The
    wiring checks have `wired` prompts, of the random pair those that are decoded too."""

    hidden: int = 4096
    inner: int = 14336
    layers: int = 32
    heads: int = 32
    kv_heads: int = 8
    vocab: int = 128_256
    draft_vocab: int = 32_000
    prompts: int = 16
    new: int = 64
    wired: int = 24


SMALL = Sizes(64, 128, 8, 4, 2, 512, 128, prompts=2, new=16, wired=20)


@dataclass(frozen=True)
class Found:
    """Whether a stage passed, and what it saw."""

    ok: bool
    text: str


Stage = Callable[[], Found]


def main(arguments: list[str] | None = None) -> int:
    """Run all stages, print a line for each, and return the exit code."""
    asked = argparse.ArgumentParser(description="Check what only a GPU can show.")
    asked.add_argument("--small", action="store_true", help="try the script on a CPU, with a small random pair")
    small = asked.parse_args(arguments).small
    if not small and not torch.cuda.is_available():
        print("no GPU here", file=sys.stderr)
        return 3
    print("a CPU, to try the script" if small else torch.cuda.get_device_name(), f"torch {torch.__version__}", sep=", ")
    with tempfile.TemporaryDirectory() as folder:
        return run(stages(SMALL if small else Sizes(), Path(folder), small), LIMIT_S)


def run(named: Iterable[tuple[str, Stage]], limit_s: float) -> int:
    """Each stage, whatever becomes of the others, while there is time."""
    until, outcomes = time.monotonic() + limit_s, set()
    for name, stage in named:
        begun = time.monotonic()
        if torch.cuda.is_available():
            torch.cuda.reset_peak_memory_stats()
        word, text = outcome(stage, until - begun)
        outcomes.add(word)
        print(f"{word:11}  {name:34}  {time.monotonic() - begun:6.1f} s  {memory():>9}  {text}", flush=True)
    return 1 if "failed" in outcomes else 3 if "not reached" in outcomes else 0


def outcome(stage: Stage, left_s: float) -> tuple[str, str]:
    if left_s <= 0:
        return "not reached", "the time was over"
    try:
        with alarm(left_s):
            found = stage()
    except TimeoutError:
        return "not reached", "the time was over"
    except Exception as error:
        return "failed", f"{type(error).__name__}: {error}"
    return ("passed" if found.ok else "failed"), found.text


@contextmanager
def alarm(seconds: float) -> Iterator[None]:
    def over(_: int, __: FrameType | None) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def memory() -> str:
    return f"{torch.cuda.max_memory_allocated() / 2**30:.2f} GiB" if torch.cuda.is_available() else "–"


def stages(sizes: Sizes, folder: Path, small: bool) -> Iterator[tuple[str, Stage]]:
    yield "the peers' logits", partial(oracles, small)
    for dtype in ("float32", "bfloat16"):
        yield f"bundled pair, {dtype}", partial(bundled_agrees, sizes, dtype, folder / f"bundled-{dtype}")
    yield "bundled pair, recorded", partial(recorded, sizes, folder)
    yield "bundled drafter, wiring", partial(verdict, "tiny", folder / "rec", ("healthy",))
    yield "other layer ids, wiring", partial(slipped_verdict, folder)
    yield "random pair, written", partial(written, sizes, folder)
    yield "random pair, bfloat16", partial(random_agrees, sizes, folder)
    unlike = ("damaged", "undertrained", "inconclusive")
    yield "random drafter, wiring", partial(verdict, str(folder / "drafter"), folder / "random", unlike)


def oracles(small: bool) -> Found:
    """The tests marked `gpu`; of the small run one test of the same peers on a CPU."""
    named = "tests/test_network_peers.py"
    which = [f"{named}::test_the_peers_logits[speculators_plain]"] if small else ["-m", "gpu", named]
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *which],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    told = ran.stdout.strip().splitlines()[-1:] or [ran.stderr.strip()[-200:]]
    return Found(ran.returncode == 0 and "skipped" not in told[0], told[0])


def bundled_agrees(sizes: Sizes, dtype: str, folder: Path) -> Found:
    target = load_target("tiny-target", dtype=dtype)
    prompts = bundled_pair(sizes.prompts).prompts
    return agrees(Pair(planned("tiny", target).load(dtype), target, prompts), sizes.new, folder)


def agrees(pair: Pair, new: int, folder: Path, boundaries: tuple[int, ...] | None = None) -> Found:
    """Live decoding takes the rounds that the replay of a recording takes, up to the first tie; and emits the target's
    own text, but for ties."""
    kept = boundaries or tuple(sorted(set(pair.drafter.wiring.boundaries or ())))
    began = time.monotonic()
    live = decode_live(pair.drafter, pair.target, pair.prompts, Settings(STEPS, new))
    decoded = time.monotonic()
    make.record(pair.target, pair.prompts, folder, make.Settings(kept, max_new_tokens=new, lookahead=STEPS))
    stored = time.monotonic()
    run = replay(pair.drafter, open_recording(folder), STEPS)
    seconds = (decoded - began, stored - decoded, time.monotonic() - stored)
    return judged(live, run, seconds)


def judged(live: LiveRun, run: ReplayRun, seconds: tuple[float, float, float]) -> Found:
    certain = [list(certain_rounds(prompt, run)) for prompt in run.prompts]
    apart = [
        prompt.id
        for accepted, sure, prompt in zip(live.rounds, certain, run.prompts, strict=True)
        if list(accepted[: len(sure)]) != sure
    ]
    mismatches = live.lossless.mismatches if live.lossless else 0
    figures = [Acceptance.pooled(counts, steps=STEPS).accept_len for counts in (live.counts, run.counts())]
    text = (
        f"{sum(map(len, certain))} of {sum(map(len, live.rounds))} rounds before a tie, {len(apart)} prompts apart, "
        f"{mismatches} mismatches; accept_len {figures[0]:.3f} live, {figures[1]:.3f} replayed; "
        f"{seconds[0]:.1f} s live and plain, {seconds[1]:.1f} s recorded, {seconds[2]:.1f} s replayed"
    )
    return Found(any(certain) and not apart and not mismatches, text)


def certain_rounds(prompt: ReplayedPrompt, run: ReplayRun) -> Iterator[int]:
    """Accepted drafts of each round, up to the first in which the target or the drafter chose a token by so little that
    rounding may choose another."""
    targets, drafters = tie_below(run.manifest.dtype), tie_below(run.dtype)
    for start, accepted in rounds_of(prompt.matches.tolist(), STEPS):
        decided = prompt.draft_gaps[: min(accepted + 1, STEPS), start]
        if bool((prompt.gaps[: start + accepted + 2] < targets).any()) or bool((decided < drafters).any()):
            return
        yield accepted


def recorded(sizes: Sizes, folder: Path) -> Found:
    """For the wiring check: every boundary, prompts of the pack."""
    lines = Path(drafter_audit.__file__).with_name("prompts").joinpath("pack.jsonl").read_text().splitlines()
    prompts = folder / "prompts.jsonl"
    prompts.write_text("".join(f"{line}\n" for line in lines[:: len(lines) // sizes.wired]))
    asked = ("--target", "tiny-target", "--prompts", str(prompts), "--max-new-tokens", "64", "--boundaries", "all")
    with redirect_stdout(StringIO()):
        code = command(("record", *asked, "-o", str(folder / "rec")))
    return Found(code == 0, f"exit code {code}")


def verdict(drafter: str, recording: Path, expected: Sequence[str]) -> Found:
    """Of the wiring check, one of those expected."""
    answer = recording.parent / "answer.json"
    answer.unlink(missing_ok=True)
    code = command(("wiring", drafter, "--recording", str(recording), "--format", "json", "-o", str(answer)))
    told: dict[str, Any] = json.loads(answer.read_text()) if answer.exists() else {}
    return Found(told.get("verdict") in expected, f"{told.get('verdict')}, exit code {code}")


def slipped_verdict(folder: Path) -> Found:
    shutil.copytree(bundled.folder_of("tiny") or "", folder / "slipped")
    config = folder / "slipped" / "config.json"
    told = json.loads(config.read_text())
    told["eagle_config"]["eagle_aux_hidden_state_layer_ids"] = SLIPPED
    config.write_text(json.dumps(told))
    return verdict(str(folder / "slipped"), folder / "rec", ("miswired",))


def written(sizes: Sizes, folder: Path) -> Found:
    """Target and drafter with random weights, made where they are fastest made, and written as checkpoints."""
    torch.manual_seed(0)
    shape: dict[str, Any] = {
        "hidden_size": sizes.hidden,
        "intermediate_size": sizes.inner,
        "num_attention_heads": sizes.heads,
        "num_key_value_heads": sizes.kv_heads,
        "vocab_size": sizes.vocab,
        "max_position_embeddings": 2048,
    }
    with default_dtype(torch.bfloat16), torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        model = random_llama(sizes.layers, shape)
    with torch.no_grad():
        model.lm_head.weight.normal_(std=SPREAD / sizes.hidden**0.5)
    count = sum(weight.numel() for weight in model.parameters())
    model.save_pretrained(folder / "target", max_shard_size="4GB")
    (folder / "drafter").mkdir()
    head_dim = sizes.hidden // sizes.heads
    write_checkpoint(folder / "drafter", draft_vocab_size=sizes.draft_vocab, head_dim=head_dim, **shape)
    weights = load_file(folder / "drafter/model.safetensors")
    weights["lm_head.weight"] *= SPREAD
    save_file(weights, folder / "drafter/model.safetensors")
    return Found(True, f"{count / 1e9:.2f}B parameters in the target")


@contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def random_agrees(sizes: Sizes, folder: Path) -> Found:
    target = load_target(str(folder / "target"), dtype="bfloat16")
    ids = torch.randint(3, sizes.vocab, (sizes.wired, 32), generator=torch.Generator().manual_seed(0)).tolist()
    prompts = tuple(TokenPrompt(str(place), None, tuple(each)) for place, each in enumerate(ids))
    drafter = planned(str(folder / "drafter"), target, str(folder / "target")).load("bfloat16")
    every = tuple(range(target.num_layers + 1))
    return agrees(Pair(drafter, target, prompts), sizes.new // 4, folder / "random", every)


if __name__ == "__main__":
    sys.exit(main())
