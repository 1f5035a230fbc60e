"""A server that was started is gone afterwards, with all that it started, whatever ended the run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from drafter_audit.cli.main import main
from drafter_audit.process import EndedError, last_error, running, wait_until
from tests.engine_servers import launch


def workers(folder: Path) -> dict[str, object]:
    """Two processes in sessions of their own, that take no SIGTERM."""
    return {"workers": 2, "worker_pids": str(folder / "pids")}


def all_pids(folder: Path) -> list[int]:
    """The server's, from its log, and its workers'."""
    (log,) = (folder / "logs").iterdir()
    (loading,) = (line for line in log.read_text().splitlines() if line.startswith("loading, pid "))
    return [int(loading.split()[-1]), *map(int, (folder / "pids").read_text().split())]


def alive(pids: list[int]) -> list[int]:
    return [pid for pid in pids if psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE]


class Signalled:
    """Whose destructor gets a SIGTERM; what is raised there goes no further."""

    def __del__(self) -> None:
        os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_signal_that_python_drops_ends_the_run_all_the_same(tmp_path) -> None:
    went_on = []

    def run() -> None:
        with running([sys.executable, "-c", ""], tmp_path / "log", {}):
            Signalled()
            went_on.append(True)

    with pytest.raises(KeyboardInterrupt):
        run()
    assert went_on


FORKING = """
import os, signal, sys
from pathlib import Path
from drafter_audit.process import running
os.register_at_fork(after_in_parent=lambda: os.kill(os.getpid(), signal.SIGTERM))
try:
    with running([sys.executable, "-c", "import time; time.sleep(60)"], Path(sys.argv[1]), {}):
        print("went on")
except KeyboardInterrupt:
    print("interrupted")
import psutil
print([child.status() for child in psutil.Process().children()])
"""


def test_a_signal_while_it_forks_interrupts_and_leaves_nothing(tmp_path) -> None:
    """What a signal raises in a callback of fork, Python drops."""
    done = subprocess.run([sys.executable, "-c", FORKING, str(tmp_path / "log")], capture_output=True, text=True)
    assert done.stdout.splitlines() == ["interrupted", "[]"], done.stderr


@pytest.mark.parametrize("fault", [{}, {"crash_after": 1}], ids=str)
def test_nothing_is_left_of_it(fault, tmp_path, capsys) -> None:
    code = main(launch(tmp_path, "vllm", {**workers(tmp_path), **fault}))
    assert code == (3 if fault else 0), capsys.readouterr().err
    assert len(all_pids(tmp_path)) == 3
    assert alive(all_pids(tmp_path)) == []


def interrupted(folder: Path, number: int) -> tuple[int, str]:
    """A run that gets a signal while it measures: its exit code and stderr."""
    plan = {**workers(folder), "verify_ms": 2000.0}
    words = launch(folder, "sglang", plan)
    with started([sys.executable, "-m", "drafter_audit", *words]) as run:
        until = time.monotonic() + 20
        while not list((folder / "logs").glob("*")) or "POST" not in next((folder / "logs").iterdir()).read_text():
            assert time.monotonic() < until
            time.sleep(0.05)
        run.send_signal(number)
        _, said = run.communicate(timeout=30)
    return run.returncode, said


@contextmanager
def started(command: list[str]) -> Iterator[subprocess.Popen[str]]:
    """As from a terminal, whatever these tests are run by: behind `nohup` or `&` signals are ignored."""
    taken = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    run = subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: [signal.signal(number, signal.SIG_DFL) for number in taken],
    )
    with run:
        try:
            yield run
        finally:
            run.kill()


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    "number",
    [signal.SIGINT, pytest.param(signal.SIGTERM, marks=SLOW), pytest.param(signal.SIGHUP, marks=SLOW)],
)
def test_signals_stop_it_too(number, tmp_path) -> None:
    assert interrupted(tmp_path, number) == (130, INTERRUPTED)
    assert alive(all_pids(tmp_path)) == []


INTERRUPTED = "error: interrupted, before the result was written, run the command again\n"


@SLOW
@pytest.mark.skipif(sys.platform != "linux", reason="the kernel tells a process of its parent's death on Linux alone")
def test_a_run_that_is_killed_takes_its_server_with_it(tmp_path) -> None:
    """Nothing can be stopped any more, so the kernel asks the server to end: the first process, as an engine's does."""
    assert interrupted(tmp_path, signal.SIGKILL)[0] == -signal.SIGKILL
    server, *left = all_pids(tmp_path)
    until = time.monotonic() + 10
    while alive([server]):
        assert time.monotonic() < until
        time.sleep(0.05)
    for pid in left:  # the stand-in leaves its own, which take no SIGTERM
        os.kill(pid, signal.SIGKILL)


def test_the_log_is_kept_and_named(tmp_path, capsys) -> None:
    main(launch(tmp_path, "sglang", {}))
    log = Path(json.loads(capsys.readouterr().out)["engine"]["log"])
    assert log.parent == tmp_path / "logs"
    assert "GET /health" in log.read_text()


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("ok\nRuntimeError: NCCL error\nclosing\n", "RuntimeError: NCCL error"),
        ("only this\n\n", "only this"),
        (
            "(Worker pid=7) ERROR 12-01 torch.OutOfMemoryError: CUDA.\nRuntimeError: failed. See root cause above.\n",
            "torch.OutOfMemoryError: CUDA.",
        ),
        ("loading\nKilled by the kernel\n", "Killed by the kernel"),
        ("", ""),
    ],
)
def test_the_last_line_that_names_an_error(text, line, tmp_path) -> None:
    (tmp_path / "log").write_text(text)
    assert last_error(tmp_path / "log") == line


def test_an_earlier_runs_error_is_not_this_ones(tmp_path) -> None:
    """The log of both is one file."""
    log = tmp_path / "log"
    for said in ("ValueError: the first", "the second"):
        with running(["sh", "-c", f"echo '{said}'; exit 3"], log, {}) as program, pytest.raises(EndedError) as told:
            wait_until(program, lambda: False, 20)
        assert str(told.value) == f"ended with exit code 3: {said}"
    assert log.read_text() == "ValueError: the first\nthe second\n"


def test_what_it_did_before_it_ended_counts(tmp_path) -> None:
    done = tmp_path / "done"
    with running(["touch", str(done)], tmp_path / "log", {}) as program:
        assert program.process.wait(20) == 0
        wait_until(program, done.exists, 20)
