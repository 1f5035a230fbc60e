"""One target in one process, over a device map with disk, and over two ranks: the same tokens and states."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from drafter_audit.errors import UsageError
from drafter_audit.model.target.load import load_target
from drafter_audit.model.target.model import Greedy, TargetModel
from tests.target_rank import BOUNDARIES, NEW, PROMPT, RESULT, TIMEOUT_S
from tests.tiny_targets import LAYERS, write_family

START_S = 60.0
"""What torchrun and the imports may take on a machine with other work; a test's own wait comes on top."""

SPLIT = ("llama", "deepseek_v3", "gpt_oss", "gemma3_wrapped")
"""Plain layers; latent attention with experts; experts that are dealt out, as the plan leaves them whole; a wrapper."""


def torchrun(fault: str, *refs: str, limit: float = START_S) -> tuple[int, str, float]:
    """Exit code, stderr and seconds of two ranks. A run beyond `limit` fails the test."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]
    command += ["-m", "tests.target_rank", "run", fault, *refs]
    root = Path(__file__).parents[1]
    environment = {**os.environ, "PYTHONPATH": str(root), "PYTHONWARNINGS": "error"}
    begun = time.monotonic()
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=limit, cwd=root, env=environment
    )
    assert done.stdout == ""
    return done.returncode, done.stderr, time.monotonic() - begun


def alone(ref: str) -> tuple[TargetModel, Greedy]:
    target = load_target(ref)
    return target, target.greedy(PROMPT, NEW, BOUNDARIES)


def close(states: torch.Tensor, expected: torch.Tensor) -> bool:
    """To 1e-4; the states are of up to 33."""
    return float((states - expected).abs().max()) <= 1e-4


def test_two_ranks_give_what_one_process_gives(tmp_path: Path) -> None:
    refs = {name: write_family(name, tmp_path / name) for name in SPLIT}
    code, stderr, _ = torchrun("none", *refs.values(), limit=2 * START_S)
    assert code == 0, stderr
    for name, ref in refs.items():
        target, expected = alone(ref)
        found = load_file(Path(ref, RESULT))
        assert torch.equal(found["tokens"], expected.tokens), name
        assert close(found["states"], expected.states), name
        whole = sum(each.numel() for each in target.model.parameters())
        assert int(found["held"]) < whole, name


def test_a_rank_that_is_killed_ends_the_other(tmp_path: Path) -> None:
    code, stderr, _ = torchrun("killed", write_family("llama", tmp_path))
    assert code == 1
    assert "error: rank 0 of 2: another rank is gone" in stderr or "Signal 9 (SIGKILL)" in stderr
    assert not (tmp_path / RESULT).exists()


def test_a_rank_that_does_not_answer_ends_the_other_in_time(tmp_path: Path) -> None:
    code, stderr, seconds = torchrun("asleep", write_family("llama", tmp_path), limit=START_S + TIMEOUT_S)
    assert code == 1
    assert seconds >= TIMEOUT_S
    assert stderr.count("error: rank 0 of 2: another rank did not answer in time") == 1


@pytest.mark.slow
def test_a_rank_that_never_joins_ends_the_other_in_time(tmp_path: Path) -> None:
    code, stderr, _ = torchrun("late", write_family("llama", tmp_path), limit=START_S + TIMEOUT_S)
    assert code == 1
    assert stderr.count("error: rank 0 of 2: another rank did not answer in time") == 1, stderr


@pytest.mark.slow
def test_a_rank_short_of_memory_says_so(tmp_path: Path) -> None:
    code, stderr, _ = torchrun("short_of_memory", write_family("llama", tmp_path))
    assert code == 1
    assert stderr.count("error: rank 1 of 2: too little memory") == 1, stderr


@pytest.mark.slow
def test_a_rank_that_fails_says_why(tmp_path: Path) -> None:
    code, stderr, _ = torchrun("refused", write_family("llama", tmp_path))
    assert code == 1
    assert stderr.count("error: rank 1 of 2: the disk is full, /somewhere, make room") == 1, stderr


@pytest.mark.parametrize(
    ("name", "modules"),
    [
        ("llama", ("model",)),
        ("gemma3_wrapped", ("model.language_model", "model.vision_tower", "model.multi_modal_projector")),
    ],
)
def test_a_device_map_with_disk_gives_what_one_device_gives(
    name: str, modules: tuple[str, ...], tmp_path: Path
) -> None:
    ref = write_family(name, tmp_path / name)
    _, expected = alone(ref)
    disk = load_target(ref, device_map=half_on_disk(*modules), offload_folder=str(tmp_path / "offload"))
    assert {each.device.type for each in disk.model.parameters()} == {"cpu", "meta"}
    found = disk.greedy(PROMPT, NEW, BOUNDARIES)
    assert torch.equal(found.tokens, expected.tokens)
    assert close(found.states, expected.states)


def half_on_disk(stack: str, *beside: str) -> dict[str, str]:
    """The embedding and the last layers on disk, all else in memory; `stack` holds the layers."""
    disk = {f"{stack}.layers.{index}": "disk" for index in range(LAYERS // 2, LAYERS)}
    first = {f"{stack}.layers.{index}": "cpu" for index in range(LAYERS // 2)}
    cpu = dict.fromkeys((f"{stack}.norm", f"{stack}.rotary_emb", "lm_head", *beside), "cpu")
    return cpu | first | disk | {f"{stack}.embed_tokens": "disk"}


def test_auto_places_a_small_target_whole(tmp_path: Path) -> None:
    ref = write_family("llama", tmp_path)
    _, expected = alone(ref)
    assert torch.equal(load_target(ref, device_map="auto").greedy(PROMPT, NEW, BOUNDARIES).states, expected.states)


def test_a_device_map_and_ranks_exclude_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ref = write_family("llama", tmp_path)
    with pytest.raises(UsageError, match="only one, load_target, start it as torchrun"):
        load_target(ref, tensor_parallel=True)
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UsageError, match="exclude each other"):
        load_target(ref, device_map="auto")
