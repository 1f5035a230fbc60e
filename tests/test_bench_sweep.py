"""`sweep --engine` on stand-ins: what it finds, what it keeps, what it does not start."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from drafter_audit.bench.cells import Cell, EnvSet, Outcome, Store
from drafter_audit.bench.sweep import Known, hopeless
from drafter_audit.cli.main import main
from drafter_audit.errors import UsageError
from drafter_audit.facts.pair import folder_of
from drafter_audit.recording.whole_file import alone
from tests.engine_servers import engine_python, prompt_file

# A target of 1T parameters on several GPUs, one request at a time: 62.9 tokens/s plain, 88.8 with NCCL_PROTO=LL
# NCCL_ALGO=Ring NCCL_P2P_LEVEL=SYS, and with these 94 at 2 steps, the best of 1 to 10, where verifying takes 95% of a
# cycle. So a cycle of 2 steps with an accept_len of 2.1 takes 2.1 / 94 s, of which 5% are two draft steps.
CYCLE_MS = 1000 * 2.1 / 94
STORY = {
    "rates": [0.75, 0.35],  # the third draft is never right
    "plain_ms": 1000 / 62.9,
    "verify_ms": 0.95 * CYCLE_MS * 88.8 / 62.9,
    "draft_ms": 0.025 * CYCLE_MS * 88.8 / 62.9,
    "fast": "NCCL_PROTO=LL",
    "gain": 88.8 / 62.9,
    "length": 22,
}
NCCL = "nccl-ll=NCCL_PROTO=LL,NCCL_ALGO=Ring,NCCL_P2P_LEVEL=SYS"


def words(folder: Path, plan: dict[str, Any], *more: str, prompts: bool = True) -> list[str]:
    return [
        *("sweep", "tiny", "--target", "tiny-target", "--engine", "sglang", "--engine-python", engine_python(folder)),
        *("--out", str(folder / "night"), "--env", f"STAND_IN={json.dumps(plan)}"),
        *(("--prompts", prompt_file(folder, count=2)) if prompts else ()),
        *("--format", "json", *more),
    ]


def swept(capsys: pytest.CaptureFixture[str], command: list[str], code: int = 0) -> tuple[dict[str, Any], str]:
    assert main(command) == code, capsys.readouterr().err
    printed = capsys.readouterr()
    return json.loads(printed.out), printed.err


def begun(command: list[str], awaited: Path) -> subprocess.Popen[bytes]:
    """A sweep of its own process, that has got as far as to write `awaited`."""
    run = subprocess.Popen([sys.executable, "-m", "drafter_audit", *command], stderr=subprocess.DEVNULL)
    until = time.monotonic() + 20
    while not awaited.exists():
        assert time.monotonic() < until
        time.sleep(0.01)
    return run


def nearly(value: float) -> object:
    """The stand-in keeps its times on the average; a busy machine is late with the last piece of an answer."""
    return pytest.approx(value, rel=0.07)


def test_the_story_of_a_night(tmp_path, capsys) -> None:
    """What tokens/s were measured there is found here, which cell is best, and why."""
    told, said = swept(capsys, words(tmp_path, STORY, "--steps", "1,2,10", "--env-set", NCCL, "--what-if", "2.8"))
    assert "8 of 8 servers to start: up to 2 h 0 min" in said
    plain = {row["env_set"]: row["tokens_per_s"] for row in told["plain"]}
    assert plain == {"default": nearly(62.9), "nccl-ll": nearly(88.8)}
    best = told["best"]
    assert (best["env_set"], best["steps"]) == ("nccl-ll", 2)
    assert best["tokens_per_s"] == nearly(94)
    assert best["accept_len"] == pytest.approx(2.1, rel=0.03)
    low, high = best["tokens_per_s_interval"]
    assert low <= best["tokens_per_s"] <= high
    assert told["verify_share"] == pytest.approx(0.95, abs=0.04)
    assert told["costs"]["verify_ms"] == nearly(0.95 * CYCLE_MS)
    assert told["break_even_accept_len"] == nearly(CYCLE_MS * 88.8 / 1000)
    assert told["what_if"][0]["tokens_per_s"] == nearly(2800 / CYCLE_MS)
    assert told["next_lever"] == "communication"  # a verification takes twice as long as a plain token
    assert [row["status"] for row in (*told["plain"], *told["rows"])] == ["done"] * 8
    # again, nothing is started: the words for people come from what lies on disk
    table = words(tmp_path, STORY, "--steps", "1,2,10", "--env-set", NCCL)
    assert main([*table, "--format", "table"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "nccl-ll, 2 steps: 9" in shown
    assert "variables alone make it 1.4" in shown
    assert "next: communication" in shown


QUICK = {"verify_ms": 1.0, "draft_ms": 0.1, "plain_ms": 1.0, "length": 12}


def test_a_killed_run_goes_on_where_it_was(tmp_path, capsys) -> None:
    command = words(tmp_path, QUICK, "--steps", "1-2")
    first = tmp_path / "night" / "cells" / "default-plain.json"
    run = begun(command, first)
    run.kill()
    run.wait()
    before = first.read_bytes()
    told, said = swept(capsys, command)
    assert "of 3 servers to start" in said
    assert "3 of 3" not in said
    assert first.read_bytes() == before
    assert [row["status"] for row in told["rows"]] == ["done", "done"]


def test_a_cell_that_fails_is_a_row_with_its_reason_and_is_tried_again(tmp_path, capsys) -> None:
    bad = {**QUICK, "claims": {"speculative_draft_model_path": "/x/theirs"}}
    told, _ = swept(capsys, words(tmp_path, bad, "--steps", "1"), code=3)
    assert (told["best"], told["rows"][0]["status"]) == (None, "failed")
    assert "it drafts with /x/theirs" in told["rows"][0]["reason"]
    assert told["rows"][0]["tokens_per_s"] is None
    assert told["plain"][0]["status"] == "done"
    _, again = swept(capsys, words(tmp_path, bad, "--steps", "1"), code=3)
    assert "1 of 2 servers to start" in again


@pytest.mark.parametrize(
    ("plan", "more", "reason"),
    [
        ({**QUICK, "whole": True}, (), "no speed is told: answers came whole"),
        (QUICK, ("--max-new-tokens", "1"), "no speed is told: no answer had a token after its first piece"),
    ],
)
def test_a_cell_without_a_speed_is_none(plan, more, reason, tmp_path, capsys) -> None:
    told, _ = swept(capsys, words(tmp_path, plan, "--steps", "1", *more), code=3)
    assert (told["best"], told["plain"][0]["status"]) == (None, "failed")
    assert reason in told["plain"][0]["reason"]


def test_another_sweep_does_not_go_into_the_same_folder(tmp_path, capsys) -> None:
    bad = {**QUICK, "crash_loading": True}
    assert main(words(tmp_path, bad, "--steps", "1")) == 3
    capsys.readouterr()
    assert main(words(tmp_path, bad, "--steps", "1", "--max-new-tokens", "9")) == 2
    assert "asked otherwise (max_new_tokens)" in capsys.readouterr().err


def test_with_a_recording_its_prompts_are_asked_and_hopeless_cells_are_not_started(
    tmp_path, capsys, tiny_recording
) -> None:
    """The tiny drafter gains less and less, and the stand-in takes 40 ms for each step, 60 for a plain token."""
    plan = {"verify_ms": 1.0, "draft_ms": 40.0, "plain_ms": 60.0, "length": 3}
    more = ("--steps", "1-3", "--recording", str(tiny_recording.folder))
    told, _ = swept(capsys, words(tmp_path, plan, *more, prompts=False))
    statuses = [row["status"] for row in told["rows"]]
    assert statuses == ["done", "done", "skipped"]
    assert "in the replay" in told["rows"][2]["reason"]
    assert told["prompts"]["count"] == tiny_recording.manifest.count
    assert told["best"]["steps"] == 1


def test_two_sweeps_do_not_run_in_one_folder(tmp_path, capsys) -> None:
    command = words(tmp_path, {**QUICK, "ready_after": 600}, "--steps", "1")
    run = begun(command, tmp_path / "night" / "logs" / "default-plain.log")
    try:
        assert main(command) == 2
        assert "another run is at work in it" in capsys.readouterr().err
    finally:
        run.send_signal(signal.SIGTERM)
        run.wait(60)
    with alone(tmp_path / "night"):  # which the end of that run has let go
        pass


@pytest.mark.parametrize(
    "damage",
    [
        {"status": "weird"},
        {"took_s": "x"},
        {"result": None},
        {"result": 5},
        {"result": {"tokens_per_s": "fast", "steps": 1, "rounds": 1, "tokens": 2, "cycle_s": 1.0, "accept_len": 1.0}},
        {"result": {"tokens_per_s": None, "steps": 1, "rounds": 1, "tokens": 2, "cycle_s": 1.0, "accept_len": 1.0}},
        {"result": {"steps": 1}},
        {"result": {"accept_len": float("nan")}},
    ],
    ids=str,
)
def test_a_damaged_cell_is_said(damage, tmp_path) -> None:
    store, cell = Store(tmp_path), Cell(EnvSet("default", {}), 1)
    store.begin({})
    result = {"tokens_per_s": 1.0, "steps": 1, "rounds": 1, "tokens": 2, "cycle_s": 1.0, "accept_len": None}
    store.keep(Outcome(cell, "done", result, start_s=1.0, took_s=2.0))
    assert store.find(cell) is not None
    (path,) = (tmp_path / "cells").iterdir()
    path.write_text(json.dumps({**json.loads(path.read_text()), **damage}))
    with pytest.raises(UsageError, match="no cell of a sweep"):
        store.find(cell)


def test_a_folder_of_another_version_is_refused(tmp_path) -> None:
    Store(tmp_path).begin({"engine": "vllm"})
    plan = tmp_path / "sweep.json"
    assert json.loads(plan.read_text())["schema_version"] == 1
    plan.write_text(json.dumps({"engine": "vllm", "schema_version": 2}))
    with pytest.raises(UsageError, match="asked otherwise"):
        Store(tmp_path).begin({"engine": "vllm"})
    plan.write_text("[" * 5000)
    with pytest.raises(UsageError, match="no folder of a sweep"):
        Store(tmp_path).begin({"engine": "vllm"})


def test_a_folder_of_other_things_is_left_alone(tmp_path, capsys) -> None:
    (tmp_path / "night").mkdir()
    (tmp_path / "night" / "theirs").touch()
    assert main(words(tmp_path, QUICK, "--steps", "1")) == 2
    printed = capsys.readouterr()
    assert (printed.out, "it holds 'theirs' and no sweep" in printed.err) == ("", True)
    assert [path.name for path in (tmp_path / "night").iterdir()] == ["theirs"]


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        (("--engine-python", "/no/such/python"), "it cannot be started"),
        (("--engine-args", "--port 1"), "--port is set by this command"),
        (("--engine-args", "'open"), "no arguments"),
    ],
)
def test_what_starts_no_server_is_not_a_night_of_failures(more, reason, tmp_path, capsys) -> None:
    assert main(words(tmp_path, QUICK, "--steps", "1", *more)) == 2
    printed = capsys.readouterr()
    assert (printed.out, len(printed.err.splitlines())) == ("", 1)
    assert reason in printed.err
    assert not (tmp_path / "night").exists()  # so that the mended command may take it


@pytest.mark.parametrize(
    ("steps", "known", "cycles", "reason"),
    [
        (3, {}, {2: 20.0}, None),
        (3, {2: 2.1, 3: 2.2}, {2: 20.0}, None),  # at most 110 tokens/s: it may win
        (3, {2: 2.1, 3: 2.1}, {2: 20.0}, "no more than that of 2 steps"),
        (3, {2: 2.1, 3: 2.2}, {1: 15.0, 2: 23.0}, "at most 95.7 tokens/s, and 105.0 were measured"),
        (3, {2: 2.1, 3: 2.2}, {}, None),  # nothing was measured yet
    ],
)
def test_which_cells_cannot_win_any_more(steps, known, cycles, reason) -> None:
    """A cycle gets no shorter by more steps. The best so far is 105 tokens/s, and plain decoding is faster."""
    set_ = EnvSet("default", {})
    results = {k: {"cycle_s": ms / 1000, "tokens_per_s": 105.0} for k, ms in cycles.items()}
    outcomes = [Outcome(Cell(set_, k), "done", results.get(k)) for k in (1, 2)]
    outcomes.append(Outcome(Cell(set_, 0), "done", {"tokens_per_s": 200.0}))
    found = hopeless(Cell(set_, steps), outcomes, Known(known))
    assert (found is None) if reason is None else reason in str(found)


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ((), "nothing to sweep over"),
        (("--recording", "rec", "--env-set", "a=K=V"), "--env-set says how servers are measured"),
        (("--engine", "vllm", "--verify-ms", "3"), "--verify-ms gives a cost"),
        (("--engine", "vllm", "--dtype", "float32"), "--dtype says how a drafter is replayed"),
        (("--engine", "vllm", "--recording", "rec", "--prompts", "x"), "--prompts says what is asked"),
        (("--engine", "vllm"), "no folder for the cells"),
        (("--engine", "vllm", "--out", "x", "--what-if", "99"), "accept_len 99 cannot be had"),
        (("--engine", "vllm", "--env-set", "a"), "is no set"),
        (("--engine", "vllm", "--env-set", f"{'a' * 300}=K=V"), "is no set"),  # it names files
        (("--engine", "vllm", "--env-set", "default=K=V"), "a name of its own"),
    ],
)
def test_usage(more, reason, tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["sweep", str(folder_of("tiny")), *more]) == 2
    assert reason in capsys.readouterr().err


def test_a_key_is_kept_nowhere_and_may_change(tmp_path, capsys) -> None:
    for key in ("secret-1", "secret-2"):
        env = ("--env", f"HF_TOKEN={key}", "--env-set", f"other=MY_KEY={key},A=b")
        told, said = swept(capsys, words(tmp_path, QUICK, "--steps", "1", *env))
        assert "secret" not in str(told)
    assert "0 of 4 servers to start" in said
    kept = list((tmp_path / "night").rglob("*.json"))
    assert len(kept) == 5
    assert not [path for path in kept if "secret" in path.read_text()]


def test_a_value_may_hold_commas(tmp_path) -> None:
    from drafter_audit.cli.engine_options import _env_set

    assert _env_set(None, None, "two=A=1,2,B=3") == ("two", {"A": "1,2", "B": "3"})  # type: ignore[arg-type]
