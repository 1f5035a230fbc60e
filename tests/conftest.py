"""Fixtures for all tests. No test reaches the real Hub: a stand-in takes its place before its client is imported."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.hub import Hub

if TYPE_CHECKING:
    from drafter_audit.recording.recording import Recording

_HUB = pytest.StashKey[Hub]()
_HOME = pytest.StashKey["tempfile.TemporaryDirectory[str]"]()

RunPython = Callable[..., "subprocess.CompletedProcess[str]"]


def pytest_configure(config: pytest.Config) -> None:
    """Starts the stand-in: the Hub's client reads its settings when it is imported, and never again."""
    home: tempfile.TemporaryDirectory[str] = tempfile.TemporaryDirectory(prefix="drafter-audit-tests-")
    config.stash[_HOME] = home
    config.stash[_HUB] = Hub(Path(home.name))
    environment = config.stash[_HUB].env
    for key in os.environ.keys() - environment.keys():
        del os.environ[key]
    os.environ.update(environment | {"COLUMNS": "120"})  # tables as they are where no terminal tells its width


def pytest_unconfigure(config: pytest.Config) -> None:
    if client := sys.modules.get("huggingface_hub"):
        client.close_session()
    config.stash[_HUB].close()
    config.stash[_HOME].cleanup()


# Run by hand, each in the environment of its peer.
collect_ignore = ["oracles/scripts"]


@pytest.fixture
def hub(request: pytest.FixtureRequest) -> Hub:
    """The stand-in of the Hub, empty: `hub.add_repo("org/name", files={...})`. This process's client talks to it."""
    server = request.config.stash[_HUB]
    server.reset()
    return server


@pytest.fixture
def run_python(request: pytest.FixtureRequest) -> RunPython:
    """`run_python(code, **environment)`: a new interpreter whose Hub is the stand-in, for what needs other settings."""
    env = {**request.config.stash[_HUB].env, "PYTHONPATH": str(request.config.rootpath)}

    def run(code: str, **changes: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-W", "error", "-c", code]
        return subprocess.run(command, env={**env, **changes}, capture_output=True, text=True, check=False, timeout=60)

    return run


@pytest.fixture(scope="session")
def tiny_recording(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    """Twenty prompts of the reference target, recorded once for all tests that ask."""
    from tests.tiny_recording import record_tiny

    return record_tiny(tmp_path_factory.mktemp("recording") / "tiny")


@pytest.fixture
def one_thread() -> Iterator[None]:
    """What is timed on one thread sets that for its process."""
    import torch

    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.fixture(autouse=True)
def _no_leftover_faults(request: pytest.FixtureRequest) -> Iterator[None]:
    """A fault that one test sets is not met by the next."""
    yield
    if "hub" in request.fixturenames:
        request.config.stash[_HUB].reset()
