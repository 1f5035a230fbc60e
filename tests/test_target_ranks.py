"""One target in one process, over a device map with disk, and over two ranks: the same tokens and states."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from subprocess import PIPE

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from drafter_audit.errors import CannotRunError, UsageError
from drafter_audit.model.target.load import load_target
from drafter_audit.model.target.model import Greedy, TargetModel
from drafter_audit.model.target.ranks import failures
from tests.target_rank import BOUNDARIES, NEW, PROMPT, RESULT, TIMEOUT_S
from tests.tiny_targets import LAYERS, write_family

START_S = 180.0
"""What torchrun and the imports may take on a machine with much other work; a test's own wait comes on top."""

SPLIT = ("llama", "deepseek_v3", "gpt_oss", "gemma3_wrapped")
"""Plain layers; latent attention with experts; experts that are dealt out, as the plan leaves them whole; a wrapper."""


def torchrun(*arguments: str, module: str = "tests.target_rank", limit: float = START_S) -> tuple[int, str, str, float]:
    """Exit code, stdout, stderr and seconds of two ranks. A run beyond `limit` fails the test, and none of it stays."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone", "-m", module]
    root = Path(__file__).parents[1]
    environment = {**os.environ, "PYTHONPATH": str(root), "PYTHONWARNINGS": "error"}
    begun = time.monotonic()
    with subprocess.Popen(
        [*command, *arguments], stdout=PIPE, stderr=PIPE, text=True, cwd=root, env=environment
    ) as run:
        try:
            stdout, stderr = run.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            run.terminate()  # torchrun ends its ranks, which a kill would leave behind
            raise
    return run.returncode, stdout, stderr, time.monotonic() - begun


def faulty(fault: str, *refs: str, limit: float = START_S) -> tuple[int, str, float]:
    """Exit code, stderr and seconds of two ranks that load targets, while `fault` befalls rank 1."""
    code, stdout, stderr, seconds = torchrun("run", fault, *refs, limit=limit)
    assert stdout == ""
    return code, stderr, seconds


def alone(ref: str) -> tuple[TargetModel, Greedy]:
    target = load_target(ref)
    return target, target.greedy(PROMPT, NEW, BOUNDARIES)


def close(states: torch.Tensor, expected: torch.Tensor) -> bool:
    """To 1e-4; the states are of up to 33."""
    return float((states - expected).abs().max()) <= 1e-4


def test_two_ranks_give_what_one_process_gives(tmp_path: Path) -> None:
    refs = {name: write_family(name, tmp_path / name) for name in SPLIT}
    code, stderr, _ = faulty("none", *refs.values(), limit=2 * START_S)
    assert code == 0, stderr
    for name, ref in refs.items():
        target, expected = alone(ref)
        found = load_file(Path(ref, RESULT))
        assert torch.equal(found["tokens"], expected.tokens), name
        assert close(found["states"], expected.states), name
        whole = sum(each.numel() for each in target.model.parameters())
        assert int(found["held"]) < whole, name


def test_a_rank_that_is_killed_ends_the_other(tmp_path: Path) -> None:
    code, stderr, _ = faulty("killed", write_family("llama", tmp_path))
    assert code == 1
    assert "error: rank 0 of 2: another rank is gone" in stderr or "Signal 9 (SIGKILL)" in stderr
    assert not (tmp_path / RESULT).exists()


def test_a_rank_that_does_not_answer_ends_the_other_in_time(tmp_path: Path) -> None:
    code, stderr, seconds = faulty("asleep", write_family("llama", tmp_path), limit=START_S + TIMEOUT_S)
    assert code == 1
    assert seconds >= TIMEOUT_S
    assert stderr.count("error: rank 0 of 2: another rank did not answer in time") == 1


@pytest.mark.slow
def test_a_rank_that_never_joins_ends_the_other_in_time(tmp_path: Path) -> None:
    code, stderr, _ = faulty("late", write_family("llama", tmp_path), limit=START_S + TIMEOUT_S)
    assert code == 1
    assert stderr.count("error: rank 0 of 2: another rank did not answer in time") == 1, stderr


@pytest.mark.slow
def test_a_rank_short_of_memory_says_so(tmp_path: Path) -> None:
    code, stderr, _ = faulty("short_of_memory", write_family("llama", tmp_path))
    assert code == 1
    assert stderr.count("error: rank 1 of 2: too little memory") == 1, stderr


@pytest.mark.slow
def test_a_rank_that_fails_says_why(tmp_path: Path) -> None:
    code, stderr, _ = faulty("refused", write_family("llama", tmp_path))
    assert code == 1
    assert stderr.count("error: rank 1 of 2: the disk is full, /somewhere, make room") == 1, stderr


BUNDLED = "aq-medai-kimi-k2-instruct-eagle3"


def test_what_runs_no_target_rank_0_does_alone(tmp_path: Path) -> None:
    """Its output comes once, on stdout."""
    code, stdout, stderr, _ = torchrun("params", BUNDLED, "--format", "json", module="drafter_audit")
    assert (code, json.loads(stdout)["drafters"][0]["ref"]) == (0, BUNDLED)
    assert "note:" not in stderr


@pytest.mark.slow
def test_help_comes_once() -> None:
    for arguments in ((), ("--help",), ("params", "--help"), ("--version",)):
        code, stdout, _, _ = torchrun(*arguments, module="drafter_audit")
        assert code == 0
        assert stdout.count("Usage:") == (arguments != ("--version",))
        assert stdout.count("drafter-audit") >= 1
        assert stdout.count("drafter-audit, version") == (arguments == ("--version",))


@pytest.mark.slow
def test_a_usage_error_names_the_rank() -> None:
    code, stdout, stderr, _ = torchrun("params", "--no-such", module="drafter_audit")
    assert (code, stdout) == (1, "")
    assert stderr.count("error: rank 0 of 2: No such option") == 1
    assert "rank 1 of 2" not in stderr
    assert "exitcode  : 2 " in stderr  # torchrun's own report; its own code is 1


@pytest.mark.slow
def test_every_rank_runs_a_target_and_the_first_writes_its_result(tmp_path: Path) -> None:
    """That a check failed is told when it was written, by no rank before."""
    ref, output = write_family("llama", tmp_path / "target"), tmp_path / "result.json"
    code, stdout, stderr, _ = torchrun("judge", "--target", ref, "--format", "json", "-o", str(output))
    assert (code, stdout) == (1, "")
    assert json.loads(output.read_text())["ranks"] == 2
    assert stderr.count("note: judged") == 1
    assert "rank 1" not in stderr.replace("local_rank: 0", "")
    assert "rank      : 0 (local_rank: 0)" in stderr


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        OSError(12, "Cannot allocate memory"),  # a weight file that cannot be mapped
        SafetensorError("Error while mapping: Cannot allocate memory (os error 12)"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes"),
        RuntimeError("std::bad_alloc"),
        torch.OutOfMemoryError("CUDA out of memory"),
    ],
)
def test_too_little_memory_is_told_whatever_raises_it(error: Exception) -> None:
    with pytest.raises(CannotRunError, match="too little memory, here, spread it"), failures("here"):
        raise error


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), RuntimeError("shape"), KeyError("a")])
def test_what_is_no_lack_of_memory_is_left_as_it_is(error: Exception) -> None:
    with pytest.raises(type(error)) as caught, failures("here"):
        raise error
    assert caught.value is error


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
    with pytest.raises(UsageError, match="only one, tensor_parallel, start it as torchrun"):
        load_target(ref, tensor_parallel=True)
    for name, value in {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    load_target(ref, device_map="auto")  # another launcher's variables
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "here")
    with pytest.raises(UsageError, match="exclude each other"):
        load_target(ref, device_map="auto")
