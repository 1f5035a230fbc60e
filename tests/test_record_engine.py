"""Recordings that an engine makes: vLLM's own files against transformers' recording, and an engine that fails.

The files lie in data/engines/extracted; engines_run/README.md tells how vLLM made them. Where an engine must die, hang
or answer wrongly, engines_run/stand_in.py leaves these files in its place, as a program of its own.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from drafter_audit.cli.main import main
from drafter_audit.errors import EXIT_NOT_MEASURED, EXIT_USAGE, AuditError, CannotRunError, UsageError
from drafter_audit.model.target.load import load_target
from drafter_audit.process import running, stop
from drafter_audit.recording.engine import make
from drafter_audit.recording.engine.job import Engine
from drafter_audit.recording.engine.make import Served, record_served
from drafter_audit.recording.engine.target import served_target
from drafter_audit.recording.make import record
from drafter_audit.recording.manifest import from_text, to_text
from drafter_audit.recording.open import open_recording
from drafter_audit.recording.recording import Recording
from drafter_audit.recording.whole_file import alone
from tests.engines_run import stand_in
from tests.engines_run.vllm_extraction import KEPT, SETTINGS, served
from tests.engines_run.vllm_pair import DRAFTER, TARGET
from tests.tiny_targets import edit_config

AS_CLOSE = 1e-4  # of two engines in float32, by sums in another order
OF_NORM = 1e-5  # the same of a state, whose numbers reach 500 before the final norm


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The stand-in, called as a Python is."""
    path = tmp_path_factory.mktemp("bin") / "python"
    path.write_text(f'#!/bin/sh\nexec {sys.executable} {stand_in.__file__} "$@"\n')
    path.chmod(0o755)
    return str(path)


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    """transformers' recording of the same prompts."""
    folder = tmp_path_factory.mktemp("ours") / "rec"
    record(load_target(str(TARGET)), served(Engine("none")).prompts, folder, SETTINGS)
    return open_recording(folder)


@pytest.fixture(scope="module")
def theirs(python: str, tmp_path_factory: pytest.TempPathFactory) -> Recording:
    folder = tmp_path_factory.mktemp("theirs") / "rec"
    record_served(served(Engine(python)), folder)
    return open_recording(folder)


def asked(python: str, wrong: str = "", **more: Any) -> Served:
    return served(Engine(python, environment={"STAND_IN": wrong, **more.pop("environment", {})}, **more))


def test_vllms_answers_are_transformers_answers(ours: Recording, theirs: Recording) -> None:
    for one, other in zip(ours.prompts(), theirs.prompts(), strict=True):
        assert torch.equal(one.tokens, other.tokens)
        assert (one.prompt_length, one.answer_length) == (other.prompt_length, other.answer_length)
        assert (one.capped, one.degenerate, one.id) == (other.capped, other.degenerate, other.id)
    assert {prompt.capped for prompt in theirs.prompts()} == {True, False}


def test_vllms_states_are_transformers_states(ours: Recording, theirs: Recording) -> None:
    for one, other in zip(ours.prompts(), theirs.prompts(), strict=True):
        assert one.boundaries == other.boundaries == SETTINGS.boundaries
        apart = one.states - other.states
        assert float(apart[:-1].abs().max()) < AS_CLOSE
        assert float((apart.norm(dim=-1) / one.states.norm(dim=-1)).max()) < OF_NORM


def test_log_probabilities_stand_for_logits(ours: Recording, theirs: Recording) -> None:
    """What a reader makes of them is the same: probabilities, and how far the likeliest stands above the second."""
    for one, other in zip(ours.prompts(), theirs.prompts(), strict=True):
        assert torch.equal(other.logsumexp, torch.zeros(len(other.logsumexp)))
        logprobs = one.top_logits - one.logsumexp[:, None]
        assert float((logprobs - other.top_logits).abs().max()) < AS_CLOSE
        assert float((one.gaps - other.gaps).abs().max()) < AS_CLOSE
        assert float((one.top_ids == other.top_ids).float().mean()) > 0.99  # neighbours may change places


def test_the_manifest_says_who_ran_it(ours: Recording, theirs: Recording) -> None:
    ran = json.loads((KEPT / "engine.json").read_text(encoding="utf-8"))
    assert (theirs.manifest.engine, ours.manifest.engine) == ("vllm", None)
    assert (theirs.manifest.libraries, theirs.manifest.dtype) == (ran["libraries"], "float32")
    differ = {name for name, _, _ in ours.manifest.differences(theirs.manifest)}
    assert differ == {"engine", "libraries", "last_normed"}


def test_a_key_that_the_engine_is_given_is_kept_nowhere(python: str, tmp_path: Path) -> None:
    """Nor where the engine died. Another key is no other recording."""

    def holding() -> list[Path]:
        return [path for path in (tmp_path / "rec").rglob("*") if path.is_file() and b"hf_" in path.read_bytes()]

    with pytest.raises(CannotRunError):
        record_served(asked(python, "midway", arguments=("--hf-token", "hf_one", "--seed", "1")), tmp_path / "rec")
    assert holding() == []
    record_served(asked(python, arguments=("--hf-token", "hf_two", "--seed", "1")), tmp_path / "rec")
    assert open_recording(tmp_path / "rec").manifest.engine_args == ("--hf-token", "***", "--seed", "1")
    assert holding() == []


def test_a_manifest_of_before_is_still_read(ours: Recording) -> None:
    raw = json.loads(to_text(ours.manifest, "finished"))
    del raw["engine"], raw["engine_args"]
    assert from_text(json.dumps(raw), "manifest.json") == (ours.manifest, "finished")


def test_both_replay_alike(ours: Recording, theirs: Recording, capsys: pytest.CaptureFixture[str]) -> None:
    results = []
    for recording in (ours, theirs):
        code = main(["decode", str(DRAFTER), "--recording", str(recording.folder), "--format", "json"])
        results.append((code, json.loads(capsys.readouterr().out)))
    (code, one), (other_code, other) = results
    assert code == other_code
    assert one["rounds"] > 0
    same = ("accept_len", "rounds", "accepted", "histogram", "per_prompt")
    assert {name: one[name] for name in same} == {name: other[name] for name in same}


def test_it_goes_on_where_the_engine_died(python: str, theirs: Recording, tmp_path: Path) -> None:
    rec = tmp_path / "rec"
    with pytest.raises(CannotRunError, match="vllm was killed by SIGKILL"):
        record_served(asked(python, "midway"), rec)
    first = (rec / "00000.safetensors").stat().st_mtime_ns
    told: list[int] = []
    record_served(asked(python), rec, told.append)
    assert told == [1, 2]
    assert (rec / "00000.safetensors").stat().st_mtime_ns == first
    for path in theirs.folder.glob("[0-9m]*"):
        assert (rec / path.name).read_bytes() == path.read_bytes()
    assert [path.name for path in (rec / ".engine").iterdir()] == ["log"]


def test_a_finished_recording_starts_no_engine(python: str, theirs: Recording) -> None:
    before = {path.name: path.read_bytes() for path in theirs.folder.glob("[0-9m]*")}
    record_served(asked(python, "loading"), theirs.folder)
    assert {path.name: path.read_bytes() for path in theirs.folder.glob("[0-9m]*")} == before


def test_an_engine_that_dies_loading_says_why(python: str, tmp_path: Path) -> None:
    with pytest.raises(CannotRunError) as told:
        record_served(asked(python, "loading"), tmp_path / "rec")
    assert told.value.what == "vllm ended with exit code 1: torch.OutOfMemoryError: CUDA out of memory."
    log = tmp_path / "rec" / ".engine" / "log"
    assert told.value.where == str(log)
    assert "root cause above" in log.read_text()
    record_served(asked(python), tmp_path / "rec")  # what it left stands in nobody's way
    assert "root cause above" in log.read_text()


@pytest.mark.parametrize(
    ("wrong", "more", "told"),
    [
        ("silence", {"timeout_s": 0.5}, "vllm took more than 0.5 s to load the target: Loading weights"),
        ("other", {}, "states of .* tokens that are not the .* of prompt and answer"),
        ("short", {}, "states of 49 tokens that are not the 70 of prompt and answer"),
    ],
)
def test_nothing_of_the_engine_is_left(python: str, tmp_path: Path, wrong: str, more: Any, told: str) -> None:
    child = tmp_path / "child"
    environment = {"STAND_IN_CHILD": str(child)}
    with pytest.raises(AuditError, match=told):
        record_served(asked(python, wrong, environment=environment, **more), tmp_path / "rec")
    assert not alive(int(child.read_text()))


def alive(pid: int) -> bool:
    """Zombies are not: who adopts them need not bury them."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_worker_ends_with_its_caller(number: int, tmp_path: Path) -> None:
    """Also with one that is killed, so that it cannot stop what it started."""
    worker = f"""
import runpy, subprocess, sys, time
runpy.run_path({str(make.WORKER)!r})["end_with_the_caller"]()
print(subprocess.Popen(["sleep", "600"]).pid, flush=True)
time.sleep(600)
"""
    caller = f"""
import pathlib, time
from drafter_audit.process import running
with running([{sys.executable!r}, "-c", {worker!r}], pathlib.Path({str(tmp_path / "log")!r}), {{}}):
    time.sleep(600)
"""
    root = Path(__file__).parents[1]
    process = subprocess.Popen([sys.executable, "-c", caller], env={**os.environ, "PYTHONPATH": str(root)})
    log = tmp_path / "log"
    assert within(30, lambda: log.exists() and log.read_text().endswith("\n"))
    child = int(log.read_text())
    assert alive(child)
    process.send_signal(number)
    process.wait()
    assert within(10, lambda: not alive(child))


def within(seconds: float, met: Any) -> bool:
    until = time.monotonic() + seconds
    while not met() and time.monotonic() < until:
        time.sleep(0.05)
    return bool(met())


def test_a_tree_that_will_not_end_is_killed(tmp_path: Path) -> None:
    deaf = ["sh", "-c", "trap '' TERM; echo deaf; while true; do sleep 1; done"]
    with running(deaf, tmp_path / "log", {}) as program:
        assert within(10, lambda: "deaf" in (tmp_path / "log").read_text())
        stop(program, grace_s=0.2)
        assert program.death() == "was killed by SIGKILL: deaf"


def test_an_engine_that_cannot_be_started(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="it cannot be started"):
        record_served(asked(str(tmp_path / "no-python")), tmp_path / "rec")


def test_two_runs_do_not_write_to_one_folder(python: str, tmp_path: Path) -> None:
    """The second would take away what the first's engine has written."""
    with alone(tmp_path / "rec"), pytest.raises(UsageError, match="another run is at work in it"):
        record_served(asked(python), tmp_path / "rec")
    assert list((tmp_path / "rec").iterdir()) == []


def test_without_psutil_no_engine_is_started(tmp_path: Path) -> None:
    """One that could not be stopped."""
    hidden = "import sys; sys.modules['psutil'] = None; from drafter_audit.cli.main import main; sys.exit(main("
    (tmp_path / "prompts.jsonl").write_text('{"id": "a", "token_ids": [5, 6, 7]}\n')
    given = ["record", "--target", str(TARGET), "--prompts", str(tmp_path / "prompts.jsonl"), "--boundaries", "2"]
    words = [*given, "--engine", "vllm", "--engine-python", sys.executable, "-o", str(tmp_path / "rec")]
    done = subprocess.run([sys.executable, "-c", f"{hidden}{words!r}))"], capture_output=True, text=True, check=False)
    mend = "pip install 'drafter-audit[bench]'"
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.splitlines()[-1] == f"error: psutil is not installed, drafter-audit, {mend}"
    assert not (tmp_path / "rec").exists()


@pytest.mark.parametrize("argument", ["--dtype=half", "--speculative_config", "--speculative-config.method", "--model"])
def test_what_recording_decides_is_not_for_the_caller(argument: str) -> None:
    with pytest.raises(UsageError, match="--engine-args"):
        Engine("python", (argument,))


def test_no_temperature(python: str, tmp_path: Path) -> None:
    warm = replace(asked(python), settings=replace(SETTINGS, temperature=0.5))
    with pytest.raises(UsageError, match="recorded greedily"):
        record_served(warm, tmp_path / "rec")


def test_a_temperature_is_refused_before_anything_is_read(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = ["--target", str(tmp_path / "no"), "--prompts", "no.jsonl", "-o", str(tmp_path / "rec")]
    engine = ["--engine", "vllm", "--engine-python", sys.executable, "--temperature", "0.5"]
    assert main(["record", *words, *engine]) == 2
    assert "recorded greedily" in capsys.readouterr().err


def test_boundary_0_of_a_family_that_vllm_cannot_tap(tmp_path: Path) -> None:
    folder = tmp_path / "target"
    folder.mkdir()
    (folder / "config.json").write_text((TARGET / "config.json").read_text())
    edit_config(folder, model_type="deepseek_v3")
    found = served_target(str(folder))
    assert found.given((0, 2, 6), named=False) == (2, 6)
    with pytest.raises(UsageError, match="no boundary 0 of a deepseek_v3"):
        found.given((0, 2, 6), named=True)
    assert served_target(str(TARGET)).given((0, 2, 6), named=True) == (0, 2, 6)


def test_the_first_prompts_have_all_boundaries_and_the_rest_the_chosen_ones(python: str) -> None:
    """One engine gives the same of all: every boundary, as long as one prompt is to have every."""
    every = replace(asked(python), settings=replace(SETTINGS, all_tokens=60))
    assert every.job([0, 0]).boundaries == tuple(range(13))
    assert every.job([71, 0]).boundaries == SETTINGS.boundaries
    assert (every.boundaries(0), every.boundaries(71)) == (tuple(range(13)), SETTINGS.boundaries)


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["--engine-args", "--tensor-parallel-size 2"], "add --engine vllm"),
        (["--engine", "vllm"], "--engine-python"),
        (["--engine", "vllm", "--engine-python", "/no/such/python"], "it cannot be started"),
        (["--engine", "vllm", "--engine-python", sys.executable, "--device-map", "auto"], "say it in --engine-args"),
        (["--engine", "vllm", "--engine-python", sys.executable, "--env", "NCCL"], "write NAME=VALUE"),
        (["--engine", "vllm", "--engine-python", sys.executable, "--dtype", "int8"], "no dtype 'int8'"),
    ],
)
def test_no_option_is_passed_over(
    more: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["record", "--target", str(TARGET), *more, "-o", str(tmp_path / "rec")]) == EXIT_USAGE
    assert told in capsys.readouterr().err
    assert not (tmp_path / "rec").exists()


def test_on_the_command_line(python: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prompts = served(Engine(python)).prompts
    rows = [{"id": prompt.id, "token_ids": list(prompt.ids)} for prompt in prompts]
    (tmp_path / "prompts.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    given = ["record", "--target", str(TARGET), "--prompts", str(tmp_path / "prompts.jsonl"), "-o", str(tmp_path / "r")]
    how = ["--boundaries", "0,2,6,9,12", "--max-new-tokens", "24", "--lookahead", "4", "--engine", "vllm"]
    # The files were made with 16 logits each, and the command keeps 256.
    assert main([*given, *how, "--engine-python", python, "--format", "json"]) == EXIT_NOT_MEASURED
    out, err = capsys.readouterr()
    assert out == ""
    assert "with 256 of the likeliest each" in err
    assert "its log is" in err
