"""`check` of a drafter on the Hub, from the outside: pinned revisions, the cache alone, a busy Hub."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.action_runner import ACTION
from tests.hub import Hub
from tests.planted import TINY

REPO = "org/tiny"
FILES = {name: TINY / name for name in ("config.json", "model.safetensors")}


def check(hub: Hub, folder: Path, *arguments: str) -> tuple[int, dict[str, dict[str, Any]]]:
    """The exit code, and the rows by name."""
    command = [sys.executable, "-m", "drafter_audit", "check", *arguments, "--format", "json"]
    environment = {**hub.env, "PYTHONPATH": str(ACTION)}
    ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return ran.returncode, {row["check"]: row for row in json.loads(ran.stdout)["checks"]}


def fetched(hub: Hub, revision: str) -> None:
    """The whole repository brought into the cache, as `hf download` does."""
    code = "import sys, huggingface_hub as h; h.snapshot_download(sys.argv[1], revision=sys.argv[2])"
    subprocess.run([sys.executable, "-c", code, REPO, revision], env=hub.env, capture_output=True, check=True)


def test_a_pinned_drafter_is_checked_from_the_cache_alone(hub: Hub, tmp_path: Path) -> None:
    commit = hub.add_repo(REPO, FILES)
    fetched(hub, commit)
    hub.repos[REPO].push("main", {"config.json": b"{}"})  # the branch moves on, the commit does not
    before = len(hub.requests)
    code, rows = check(hub, tmp_path, f"{REPO}@{commit}", "--offline")
    assert (code, rows["lint"]["outcome"]) == (0, "pass")
    assert len(hub.requests) == before


def test_what_was_read_in_part_is_not_measured_offline(hub: Hub, tmp_path: Path) -> None:
    """A check that runs nothing reads rows of the weights, which are not kept; it does not pass without them."""
    pinned = f"{REPO}@{hub.add_repo(REPO, FILES)}"
    code, rows = check(hub, tmp_path, pinned)
    assert (code, rows["lint"]["outcome"]) == (0, "pass")
    code, rows = check(hub, tmp_path, pinned, "--offline")
    assert (code, rows["lint"]["outcome"]) == (3, "unmeasured")
    assert "model.safetensors" in rows["lint"]["reason"]


def test_what_the_cache_does_not_hold_is_not_measured(hub: Hub, tmp_path: Path) -> None:
    commit = hub.add_repo(REPO, FILES)
    code, rows = check(hub, tmp_path, f"{REPO}@{commit}", "--offline")
    assert (code, rows["lint"]["outcome"], hub.requests) == (3, "unmeasured", [])


def test_a_busy_hub_is_asked_again_when_it_says(hub: Hub, tmp_path: Path) -> None:
    hub.add_repo(REPO, FILES)
    hub.fail(429, times=1, retry_after=2)
    began = time.monotonic()
    code, _ = check(hub, tmp_path, REPO)
    assert code == 0
    assert time.monotonic() - began > 2


def test_a_hub_that_is_busy_for_an_hour_fails_no_drafter(hub: Hub, tmp_path: Path) -> None:
    hub.add_repo(REPO, FILES)
    hub.fail(503, times=10, retry_after=3600)
    began = time.monotonic()
    code, rows = check(hub, tmp_path, REPO)
    assert (code, rows["lint"]["outcome"]) == (3, "unmeasured")
    assert "503" in rows["lint"]["reason"]
    assert time.monotonic() - began < 25


@pytest.mark.slow
def test_a_pinned_drafter_is_replayed_from_the_cache_alone(hub: Hub, tmp_path: Path, tiny_recording) -> None:
    commit = hub.add_repo(REPO, FILES)
    fetched(hub, commit)
    before = len(hub.requests)
    recording = ("--recording", str(tiny_recording.folder), "--min-accept-len", "2.0")
    code, rows = check(hub, tmp_path, f"{REPO}@{commit}", *recording, "--offline")
    assert (code, rows["accept_len"]["outcome"], len(hub.requests)) == (0, "pass", before)
