"""`check` from the outside: the command is run, on exports that are whole, damaged, or out of reach."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

import drafter_audit
from drafter_audit.cli.main import main
from tests.check_damages import DAMAGES, Damage
from tests.hub import Hub
from tests.planted import TINY, Config, Weights, attention_at_random, planted
from tests.test_target_ranks import torchrun

ROOT = Path(__file__).resolve().parents[1]
PACK = Path(drafter_audit.__file__).with_name("prompts") / "pack.jsonl"
SHORT = {
    *(f"lists-{number:02}" for number in (2, 6, 9, 11)),
    *(f"rewriting-{number:02}" for number in (4, 6, 10, 12)),
    *(f"arithmetic-{number:02}" for number in (4, 8, 10, 12)),
}
MORE = {
    *(f"lists-{number:02}" for number in (1, 3, 4, 5, 7, 8, 10, 12)),
    *(f"tables-{number:02}" for number in (2, 6, 7)),
    "rewriting-07",
}
GATE = """
[[drafter]]
path = "./ours"
target = "tiny-target"
recording = "REC"
[check]
fail_on = "error"
min_accept_len = 2.0
min_per_position = [0.6, 0.4]
max_loss = 0.1
reference = "tiny"
same_architecture = true
same_parameters = true
"""


def start(*options: str, cwd: Path | None = None, **env: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-W", "error", "-m", "drafter_audit", "check", *options]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error", **env}
    return subprocess.Popen(
        command, cwd=cwd, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def check(*options: str, cwd: Path | None = None, **env: str) -> tuple[int, dict[str, Any], str]:
    """Exit code, JSON ({} where there is none) and stderr."""
    with start(*options, "--format", "json", cwd=cwd, **env) as run:
        out, err = run.communicate(timeout=120)
    return run.returncode, json.loads(out) if out else {}, err


def row(told: dict[str, Any], name: str) -> dict[str, Any]:
    (found,) = (each for each in told["checks"] if each["check"] == name)
    return dict(found)


def outcomes(told: dict[str, Any]) -> dict[str, str]:
    return {each["check"]: each["outcome"] for each in told["checks"]}


def recorded(folder: Path, prompts: str) -> str:
    how = ("--prompts", prompts, "--boundaries", "all", "--max-new-tokens", "100")
    assert main(["record", "--target", "tiny-target", *how, "-o", str(folder / "rec")]) == 0
    return str(folder / "rec")


def chosen(folder: Path, ids: set[str]) -> str:
    lines = [line for line in PACK.read_text(encoding="utf-8").splitlines() if json.loads(line)["id"] in ids]
    (folder / "prompts.jsonl").write_text("\n".join(lines) + "\n")
    return str(folder / "prompts.jsonl")


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Prompts of the pack whose answers are short, and end by themselves."""
    return chosen(tmp_path_factory.mktemp("prompts"), SHORT)


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory, short: str) -> str:
    return recorded(tmp_path_factory.mktemp("recorded"), short)


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Twice as many prompts, which the wiring check takes to be sure."""
    return recorded(tmp_path_factory.mktemp("wide"), chosen(tmp_path_factory.mktemp("prompts"), SHORT | MORE))


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory, recording: str) -> Path:
    """A folder with a project file, the whole drafter beside it, and its baseline."""
    folder = tmp_path_factory.mktemp("gate")
    shutil.copytree(TINY, folder / "ours")
    (folder / "drafter-audit.toml").write_text(GATE.replace("REC", recording))
    code, told, err = check("--update-baseline", cwd=folder)
    assert (code, row(told, "baseline")["reason"], err) == (0, "stored as the new baseline", "")
    return folder


# --- the story


def test_a_healthy_export_passes_every_bar(gate: Path) -> None:
    code, told, err = check(cwd=gate)
    expected = ("lint", "same_architecture", "same_parameters", "accept_len", "position 1", "position 2", "baseline")
    assert (code, told["outcome"], err) == (0, "pass", "")
    assert outcomes(told) == dict.fromkeys(expected, "pass")
    figure = row(told, "accept_len")
    assert figure["bound"] == 2.0 <= figure["interval"][0] <= figure["observed"] <= figure["interval"][1]
    assert row(told, "baseline")["observed"] == 0.0
    assert told["config"] == str(gate / "drafter-audit.toml")


STATIC = ("stale vocabulary map", "lost embedding", "truncated shard", "renamed layer")


@pytest.mark.parametrize("damage", [each for each in DAMAGES if each.name in STATIC], ids=lambda each: each.name)
def test_a_damage_that_files_show_fails_without_running_anything(damage: Damage, tmp_path: Path) -> None:
    code, told, _ = check(damage.write(tmp_path / "export"))
    found = row(told, damage.row)
    assert (code, told["outcome"], found["outcome"]) == (1, "fail", "fail")
    assert damage.words in found["reason"]


def test_the_wiring_row_knows_damage_by_the_recorded_target(recording: str, tmp_path: Path) -> None:
    """That an embedding is another one's shows beside the target's rows alone, as in the command `wiring`."""

    def shuffled(_: Config, weights: Weights) -> None:
        rows = weights["embed_tokens.weight"]
        weights["embed_tokens.weight"] = rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))]

    (tmp_path / "ours").mkdir()
    planted(tmp_path / "ours", "shuffled", also={"shuffled": shuffled})
    _, told, _ = check(str(tmp_path / "ours"), "--recording", recording, "--wiring")
    assert row(told, "wiring")["observed"] == "damaged"
    assert "EMB-UNRELATED" in row(told, "wiring")["reason"]


def test_the_wiring_row_warns_where_far_less_is_accepted_than_published(recording: str, tmp_path: Path) -> None:
    """No lint and no wiring sees an attention at random; the project file beside the pair states 3.51 at 3 steps."""
    (tmp_path / "ours").mkdir()
    planted(tmp_path / "ours", "at random", also={"at random": attention_at_random})
    _, told, _ = check(str(tmp_path / "ours"), "--recording", recording, "--wiring")
    found = row(told, "wiring")
    assert "states accept_len 3.51 at 3 steps" in found["reason"]
    assert any("states accept_len 3.51" in warning for warning in found["details"]["warnings"])


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGES, ids=lambda each: each.name)
def test_every_damage_fails_by_its_name_and_hides_no_other_row(damage: Damage, wide: str, tmp_path: Path) -> None:
    export = damage.write(tmp_path / "export")
    code, told, _ = check(export, "--recording", wide, "--min-accept-len", "2", "--wiring")
    found = row(told, damage.row)
    assert (code, told["outcome"], found["outcome"]) == (1, "fail", "fail")
    assert damage.words in found["reason"]
    assert [each["check"] for each in told["checks"]] == ["lint", "accept_len", "wiring"]


@pytest.mark.slow
def test_what_fell_against_the_baseline_fails_by_its_own_prompts(wide: str, tmp_path: Path) -> None:
    """The wrong layer id costs 0.35 tokens a round, less than a bar of 2.0 sees."""
    shutil.copytree(TINY, tmp_path / "ours")
    (tmp_path / "drafter-audit.toml").write_text(GATE.replace("REC", wide))
    assert check("--update-baseline", cwd=tmp_path)[0] == 0
    planted(tmp_path / "ours", "slot 2 -1")
    code, told, _ = check(cwd=tmp_path)
    found = row(told, "baseline")
    assert (code, found["outcome"], row(told, "accept_len")["outcome"]) == (1, "fail", "pass")
    assert found["observed"] < found["interval"][1] < found["bound"] == -0.1
    assert "boundaries: declared [2, 6, 8], trained with [2, 6, 9]" in found["reason"]


# --- what cannot be measured


def test_a_dead_hub_leaves_it_unmeasured(hub: Hub) -> None:
    hub.add_repo("org/drafter", files={"config.json": b"{}"})
    hub.fail(503, times=100)
    code, told, _ = check("org/drafter", "--fail-on", "warning")
    assert (code, outcomes(told)) == (3, {"lint": "unmeasured"})
    assert "503" in row(told, "lint")["reason"]


def test_an_empty_recording_hides_no_lint(tmp_path: Path) -> None:
    code, told, _ = check("tiny", "--recording", str(tmp_path), "--min-accept-len", "2")
    assert (code, outcomes(told)) == (3, {"lint": "pass", "accept_len": "unmeasured"})
    assert "manifest.json" in row(told, "accept_len")["reason"]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no full device here")
@pytest.mark.parametrize("options", [(), ("-o", "/dev/full")])
def test_a_full_disk_is_one_line_and_no_verdict(options: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "drafter_audit", "check", "tiny", *options]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=60,
                              env={**os.environ, "PYTHONPATH": str(ROOT)})  # fmt: skip
    assert done.returncode == 3
    assert done.stderr.startswith("error: cannot write: No space left")
    assert done.stderr.count("\n") == 1


def workers(of: int) -> list[int]:
    """The processes whose session is not this one's and whose parent is `of`."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == of and fields[0] != "Z":
            found.append(int(stat.parent.name))
    return found


def worker_of(run: subprocess.Popen[str]) -> int:
    until = time.monotonic() + 30
    while not workers(run.pid):
        assert time.monotonic() < until
        time.sleep(0.02)
    return workers(run.pid)[0]


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="needs /proc")
@pytest.mark.parametrize(
    ("signalled", "words"), [("worker", "killed by signal 9"), ("itself", "ended from outside (SIGTERM)")]
)
def test_a_killed_process_leaves_rows_and_no_process(recording: str, signalled: str, words: str) -> None:
    with start("tiny", "--recording", recording, "--wiring", "--format", "json") as run:
        worker = worker_of(run)
        os.kill(*((worker, signal.SIGKILL) if signalled == "worker" else (run.pid, signal.SIGTERM)))
        out, _ = run.communicate(timeout=60)
    told = json.loads(out)
    assert (run.returncode, told["outcome"]) == (3, "unmeasured")
    assert words in row(told, "wiring")["reason"]
    assert not Path(f"/proc/{worker}").exists()


def test_a_time_limit_ends_all_and_keeps_what_was_told(recording: str) -> None:
    begun = time.monotonic()
    code, told, _ = check("tiny", "--recording", recording, "--wiring", "--time-limit", "3")
    assert (code, told["outcome"]) == (3, "unmeasured")
    assert "time limit of 3 s" in row(told, "wiring")["reason"]
    assert told["seconds"] < 5
    assert time.monotonic() - begun < 30


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="needs /proc")
def test_the_worker_ends_with_a_command_that_is_killed(recording: str) -> None:
    with start("tiny", "--recording", recording, "--wiring") as run:
        worker = worker_of(run)
        time.sleep(1)
        run.kill()
        run.communicate(timeout=30)
    until = time.monotonic() + 10
    while Path(f"/proc/{worker}").exists() and time.monotonic() < until:
        time.sleep(0.05)
    assert not Path(f"/proc/{worker}").exists()


@pytest.mark.slow
def test_two_ranks_decode_live_and_rank_0_alone_tells(short: str, recording: str, tmp_path: Path) -> None:
    file = tmp_path / "told.json"
    live = ("--target", "tiny-target", "--live", "--prompts", short, "--max-new-tokens", "100")
    how = ("--recording", recording, "--format", "json", "-o", str(file))
    code, stdout, stderr, _ = torchrun("check", "tiny", *live, *how, module="drafter_audit")
    assert (code, stdout) == (0, ""), stderr
    told = json.loads(file.read_text())
    assert outcomes(told) == dict.fromkeys(("lint", "accept_len", "live accept_len"), "pass")
    assert row(told, "live accept_len")["observed"] == pytest.approx(row(told, "accept_len")["observed"], abs=0.02)


# --- baselines


def test_what_is_not_comparable_is_named(gate: Path) -> None:
    code, told, _ = check("--steps", "2", cwd=gate)
    assert (code, row(told, "baseline")["outcome"]) == (3, "unmeasured")
    assert "not comparable with the baseline: steps 2 against 3" in row(told, "baseline")["reason"]


@pytest.mark.slow
def test_a_baseline_near_chance_is_refused_unless_forced(recording: str, tmp_path: Path) -> None:
    random = next(each for each in DAMAGES if each.name == "random head").write(tmp_path / "export")
    options = (random, "--recording", recording, "--max-loss", "0.1", "--no-wiring")
    code, told, _ = check(*options, "--update-baseline", cwd=tmp_path)
    assert (code, row(told, "baseline")["outcome"]) == (1, "fail")
    assert "is below 1.2" in row(told, "baseline")["reason"]
    assert not (tmp_path / "drafter-audit-baseline.json").exists()
    _, told, _ = check(*options, "--update-baseline", "--force", cwd=tmp_path)
    assert row(told, "baseline")["outcome"] == "pass"
    assert row(check(*options, cwd=tmp_path)[1], "baseline")["outcome"] == "pass"


# --- the command line


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), "no drafter is named"),
        (("tiny", "--same-architecture"), "the same as which drafter"),
        (("tiny", "--reference", "tiny"), "nothing to compare"),
        (("tiny", "--baseline", "b.json"), "no largest loss"),
        (("tiny", "--min-accept-len", "5"), "emit 4 at most"),
        (("tiny", "--min-per-position", "0.9,0.8,0.7,0.6"), "floors of 4 positions"),
        (("tiny", "tiny"), "named twice"),
        (("tiny", "--engine", "sglnag"), "did you mean sglang"),
        (("tiny", "-c", "absent.toml"), "absent.toml"),
        (("tiny", "--force"), "--update-baseline"),
    ],
)
def test_bad_input_is_one_line(
    options: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["check", *options]) == 2
    shown = capsys.readouterr()
    assert (shown.out, shown.err.count("\n")) == ("", 1)
    assert words in shown.err


def test_init_says_which_checkpoint_it_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    shutil.copytree(TINY, tmp_path / "ours")
    shutil.copytree(TINY, tmp_path / "cut")
    (tmp_path / "cut/config.json").write_text("{")
    monkeypatch.chdir(tmp_path)
    assert main(["check", "--init"]) == 0
    shown = capsys.readouterr()
    assert "1 drafter found" in shown.out + shown.err
    assert "left out ./cut: " in shown.out + shown.err


def test_init_writes_what_it_finds_and_overwrites_nothing(
    recording: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    shutil.copytree(TINY, tmp_path / "exports/ours")
    shutil.copytree(recording, tmp_path / "rec")
    monkeypatch.chdir(tmp_path)
    assert main(["check", "--init"]) == 0
    text = (tmp_path / "drafter-audit.toml").read_text()
    assert 'path = "./exports/ours"\ntarget = "tiny-target"\nrecording = "./rec"\n' in text
    commented = [line.removeprefix("# ") for line in text.splitlines() if " = " in line]
    (tmp_path / "all.toml").write_text("[check]\n" + "\n".join(line for line in commented[3:]))
    capsys.readouterr()
    assert main(["check", "--init"]) == 2
    assert "not overwritten" in capsys.readouterr().err
    from drafter_audit.facts import project

    assert project.in_folder(tmp_path).drafters[0].recording == tmp_path / "rec"
    every = project.at(tmp_path / "all.toml").check
    assert (every.wiring, every.max_loss, every.min_per_position) == (True, 0.1, (0.6, 0.4, 0.2))
