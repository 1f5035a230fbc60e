"""The reference pair recorded by vLLM and by transformers, by the command: VLLM_PYTHON names vLLM's Python."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch

from drafter_audit.cli.main import main
from drafter_audit.errors import EXIT_OK
from drafter_audit.recording.open import open_recording
from tests.engines_run.marks import REAL_VLLM
from tests.engines_run.vllm_pair import token_rows
from tests.tiny_targets import LAYERS, write_family

pytestmark = REAL_VLLM

AS_CLOSE, OF_NORM = 1e-4, 1e-5
LAST = 12  # the last boundary: its numbers reach 500, and float32 knows them to 3e-5
ALL_TOKENS = 60  # the first prompt has more


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Folders of the two recordings, by vLLM first: eight prompts, every boundary of the first of them."""
    folder = tmp_path_factory.mktemp("recorded")
    (folder / "prompts.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in token_rows()[:8]))
    assert main(command(folder, "vllm", *engine())) == EXIT_OK
    assert main(command(folder, "transformers")) == EXIT_OK
    return folder / "vllm", folder / "transformers"


def command(folder: Path, into: str, *more: str) -> list[str]:
    given = ["record", "tiny", "--target", "tiny-target", "--prompts", str(folder / "prompts.jsonl")]
    how = ["--max-new-tokens", "64", "--boundaries", "all", "--all-tokens", str(ALL_TOKENS)]
    return [*given, *how, *more, "-o", str(folder / into)]


def engine() -> list[str]:
    return ["--engine", "vllm", "--engine-python", os.environ["VLLM_PYTHON"]]


def test_a_killed_command_leaves_no_engine_and_goes_on(both: tuple[Path, Path]) -> None:
    """To the same bytes as the one that was not killed."""
    whole, folder = both[0], both[0].parent
    killed, root = folder / "killed", Path(__file__).parents[1]
    run = [sys.executable, "-m", "drafter_audit", *command(folder, "killed", *engine())]
    process = subprocess.Popen(run, env={**os.environ, "PYTHONPATH": str(root)}, stdout=subprocess.DEVNULL)
    assert within(300, (killed / "00002.safetensors").exists)
    workers = running(str(killed))
    process.kill()
    process.wait()
    assert workers
    assert within(10, lambda: not running(str(killed)))
    assert not (killed / "00007.safetensors").exists()
    stayed = (killed / "00000.safetensors").stat().st_mtime_ns
    assert main(command(folder, "killed", *engine())) == EXIT_OK
    assert (killed / "00000.safetensors").stat().st_mtime_ns == stayed
    for path in whole.glob("0*"):
        assert (killed / path.name).read_bytes() == path.read_bytes()


def running(folder: str) -> list[str]:
    """Processes of vLLM's worker for a recording in `folder`."""
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            lines.append(path.read_text())
    return [line for line in lines if "vllm_worker.py" in line and folder in line]


def within(seconds: float, met: Callable[[], bool]) -> bool:
    until = time.monotonic() + seconds
    while not met() and time.monotonic() < until:
        time.sleep(0.05)
    return met()


def test_they_are_the_same(both: tuple[Path, Path]) -> None:
    theirs, ours = map(open_recording, both)
    assert (theirs.manifest.engine, ours.manifest.engine) == ("vllm", None)
    assert theirs.manifest.boundaries == ours.manifest.boundaries
    counts = []
    for one, other in zip(ours.prompts(), theirs.prompts(), strict=True):
        assert torch.equal(one.tokens, other.tokens)
        assert (one.answer_length, one.capped, one.boundaries) == (other.answer_length, other.capped, other.boundaries)
        apart = one.states - other.states
        assert float((apart.norm(dim=-1) / one.states.norm(dim=-1)).max()) < OF_NORM
        assert float(apart[:LAST].abs().max()) < AS_CLOSE
        assert float((one.top_logits - one.logsumexp[:, None] - other.top_logits).abs().max()) < AS_CLOSE
        assert float((one.gaps - other.gaps).abs().max()) < AS_CLOSE
        counts.append(len(other.boundaries))
    assert counts[0] == theirs.manifest.num_layers + 1 > counts[-1]


def test_latent_attention_is_the_same(tmp_path: Path) -> None:
    """Of a DeepSeek-V3 in the only widths that vLLM's CPU kernels decode; its layers are dense."""
    widths = {"kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128}
    how = {"first_k_dense_replace": LAYERS, "initializer_range": 0.1}  # attention that is not nearly one-hot
    target = write_family("deepseek_v3", tmp_path / "target", **widths, **how)
    rows = [{"id": str(i), "token_ids": [(7 * i + 5 * k) % 90 + 3 for k in range(12)]} for i in range(2)]
    (tmp_path / "prompts.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    given = ["record", "--target", target, "--prompts", str(tmp_path / "prompts.jsonl"), "--max-new-tokens", "8"]
    for into, more in (("vllm", engine()), ("transformers", [])):
        boundaries = ",".join(map(str, range(1, LAYERS + 1)))
        assert main([*given, "--boundaries", boundaries, *more, "-o", str(tmp_path / into)]) == EXIT_OK
    theirs, ours = (open_recording(tmp_path / into).prompts() for into in ("vllm", "transformers"))
    for one, other in zip(ours, theirs, strict=True):
        assert torch.equal(one.tokens, other.tokens)
        assert float(((one.states - other.states).norm(dim=-1) / one.states.norm(dim=-1)).max()) < OF_NORM


def test_they_replay_alike(both: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    theirs, ours = (told(capsys, "decode", "tiny", folder) for folder in both)
    same = ("accept_len", "rounds", "accepted", "drafted", "tokens", "histogram", "per_prompt", "stop")
    assert {name: ours[name] for name in same} == {name: theirs[name] for name in same}
    assert ours["accept_len"] > 2


def test_wiring_says_the_same(both: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    theirs, ours = (told(capsys, "wiring", "tiny", folder) for folder in both)
    assert ours["verdict"] == theirs["verdict"]
    assert ours["declared"]["accept_len"] == theirs["declared"]["accept_len"]
    assert abs(ours["declared"]["kl"] - theirs["declared"]["kl"]) < AS_CLOSE


def told(capsys: pytest.CaptureFixture[str], command: str, drafter: str, recording: Path) -> dict[str, Any]:
    main([command, drafter, "--recording", str(recording), "--format", "json"])
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    return result
