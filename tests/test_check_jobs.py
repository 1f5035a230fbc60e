"""What `check` takes for granted, and what it must not: which drafter is meant, which bars hold, what is ignored."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from drafter_audit.check.baseline import compared_with, store
from drafter_audit.check.job import Given, Job, jobs_of
from drafter_audit.check.measurement import Made, Measurement
from drafter_audit.check.replay import of_another
from drafter_audit.check.row import Row
from drafter_audit.check.run import Run
from drafter_audit.check.static import compared
from drafter_audit.check.supervise import put_off
from drafter_audit.cli.main import main
from drafter_audit.errors import AuditError
from drafter_audit.facts import project
from drafter_audit.facts.project import CheckEntry
from drafter_audit.measure.acceptance import PromptCounts
from tests.planted import TINY
from tests.recordings import held

ROOT = Path(__file__).resolve().parents[1]


def rows_of(jobs: tuple[Job, ...]) -> list[Row]:
    def never(_: Job) -> None:
        raise AssertionError

    return [told for told in Run(jobs, never).all() if isinstance(told, Row)]  # type: ignore[arg-type]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_folder_that_is_missing_is_no_bundled_drafter_and_hides_no_other(here: Path) -> None:
    (here / "gate.toml").write_text('[[drafter]]\npath = "./tiny"\n[[drafter]]\npath = "tiny"\n')
    gone, found = rows_of(jobs_of(project.at(Path("gate.toml")), Given()))
    assert (gone.drafter, gone.outcome, found.outcome) == ("./tiny", "unmeasured", "pass")
    assert "no such file or folder, ./tiny" in gone.reason


def test_the_file_inside_a_drafter_sets_bars_where_no_other_does(here: Path) -> None:
    shutil.copytree(TINY, here / "ours")
    (here / "ours/drafter-audit.toml").write_text("[check]\nmin_accept_len = 3\nsteps = 4\n")
    (here / "drafter-audit.toml").write_text('[[drafter]]\npath = "./ours"\n[check]\nsteps = 2\n')
    (alone,) = jobs_of(None, Given(("./ours",)))
    (listed,) = jobs_of(project.in_folder(here), Given())
    assert (alone.bars.min_accept_len, alone.steps) == (3, 4)
    assert (listed.bars.min_accept_len, listed.steps) == (3, 2)
    assert [row.check for row in alone.rows] == ["lint", "accept_len"]


def test_its_own_entry_names_the_recording_too(here: Path) -> None:
    shutil.copytree(TINY, here / "ours")
    (here / "ours/drafter-audit.toml").write_text('[[drafter]]\nrecording = "rec"\n[drafter.check]\nmax_loss = 0\n')
    (job,) = jobs_of(None, Given(("ours",)))
    assert (job.recording, job.bars.max_loss) == (Path("ours/rec"), 0)


def test_a_pass_of_files_alone_says_so() -> None:
    (lint,) = rows_of(jobs_of(None, Given(("tiny",))))
    assert (lint.outcome, lint.reason.partition("; ")[2][:29]) == ("pass", "its files alone were checked:")


def test_a_baseline_that_cannot_be_measured_is_not_passed_over() -> None:
    _, *others = rows_of(jobs_of(None, Given(("tiny",), update=True)))
    assert {row.check: row.outcome for row in others} == {"accept_len": "unmeasured", "baseline": "unmeasured"}


def test_a_bundled_record_without_files_is_no_damaged_drafter() -> None:
    (lint,) = rows_of(jobs_of(None, Given(("aq-medai-ling-flash-2.0-eagle3",))))
    assert (lint.outcome, lint.reason.partition(":")[0]) == ("unmeasured", "its config.json was not seen")


def test_as_many_trained_is_not_said_where_the_trainer_is_unknown(here: Path) -> None:
    """Of a tensor that no rule knows, whether it was trained is open in both."""
    from tests.planted import planted

    folders = [here / name for name in ("one", "two")]
    for folder in folders:
        folder.mkdir()
        planted(folder, "copy", also={"copy": lambda _, weights: weights.update(strange=weights["fc.weight"].clone())})
    bars = CheckEntry(reference=str(folders[0]), same_parameters=True)
    (job,) = jobs_of(None, Given((str(folders[1]),), bars=bars))
    (row,) = compared(job, job.of("static")[1:])
    assert (row.outcome, row.observed) == ("unmeasured", row.bound)
    assert "How many of them are trainable is not known" in row.reason


def test_a_recording_of_another_target_is_told() -> None:
    manifest = held([], target="org/other").manifest
    (bundled,), (named,) = jobs_of(None, Given(("tiny",))), jobs_of(None, Given(("tiny",), target="mirror/Other@main"))
    assert of_another(bundled, manifest) == "recorded of org/other, and its target is tiny-target"
    assert of_another(named, manifest) == ""


# --- a baseline that was edited


def measured() -> Measurement:
    made = Made("replay", 3, 1, 0.0, "greedy", 256, False, None, "0" * 64, *[None] * 3, "tiny-target", *[None] * 4)
    prompts = tuple(PromptCounts.of(str(place), None, [3, 2, 3], steps=3) for place in range(8))
    return Measurement(made, prompts)


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        ("t['drafters'] = []", "no table of drafters"),
        ("t['drafters']['tiny'] = []", "no table of drafters"),
        ("t['drafters']['tiny']['replay'] = []", "damaged"),
        ("t['drafters']['tiny']['replay']['versions'] = 3", "damaged"),
        ("t['drafters']['tiny']['replay']['accept_len'] = 2.0", "not that of its counts"),
        ("del t['drafters']['tiny']['replay']['prompts'][0]", "answers to other prompts"),
        ("t['schema_version'] = 2", "no baseline of this release"),
        ("del t['drafters']['tiny']", "no replay baseline of tiny"),
        ("made['prompts_sha256'] = '1' * 64", "prompts_sha256 000000000000 against 111111111111"),
        ("made['target'] = 'org/other'", "target tiny-target against org/other"),
        ("made |= {'temperature': 0.7, 'rule': 'argmax_draft'}", "0.0 against 0.7; rule greedy against argmax_draft"),
        ("made['tokenizer_sha256'] = '1' * 64", "tokenizer_sha256 none against 111111111111"),
        ("made['target_dtype'] = 'bfloat16'", "target_dtype none against bfloat16"),
    ],
)
def test_a_baseline_that_was_edited_is_an_error_that_says_so(here: Path, edit: str, words: str) -> None:
    (job,) = jobs_of(None, Given(("tiny",), bars=CheckEntry(max_loss=0.1)))
    row = job.rows[-1]
    store(job.baseline, [("tiny", measured())])
    assert compared_with(job, row, measured()).outcome == "pass"
    told = json.loads(job.baseline.read_text())
    exec(edit, {"t": told, "made": told["drafters"]["tiny"]["replay"]["made"]})
    job.baseline.write_text(json.dumps(told))
    with pytest.raises(AuditError, match=words):
        compared_with(job, row, measured())


# --- signals


def test_a_signal_that_is_put_off_comes_after_all(request: pytest.FixtureRequest) -> None:
    def ended(_: int, __: object) -> None:
        raise InterruptedError

    before = signal.signal(signal.SIGUSR1, ended)
    request.addfinalizer(lambda: signal.signal(signal.SIGUSR1, before))
    reached: list[object] = []
    with pytest.raises(InterruptedError), put_off(signal.SIGUSR1):
        reached = [os.kill(os.getpid(), signal.SIGUSR1), "its end"]
    assert reached[1:] == ["its end"]


# --- exit codes


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--init", "tiny"), "DRAFTER goes with a check"),
        (("--init", "--min-accept-len", "3"), "--min-accept-len goes with a check"),
        (("tiny", "--prompts", "absent.jsonl"), "--prompts says how a target is run, and none is"),
        (("tiny", "--dtype", "bfloat16"), "--dtype says how a target is run"),
        (("tiny", "--update-baseline", "--baseline", "absent/b.json"), "there is no such folder, absent/b.json"),
        (("tiny", "--time-limit", "inf"), "inf is no finite number"),
        (("tiny", "--max-loss", "nan"), "nan is no finite number"),
    ],
)
def test_what_would_be_ignored_or_fail_at_the_end_is_refused(
    options: tuple[str, ...], words: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", *options]) == 2
    shown = capsys.readouterr()
    assert (shown.out, shown.err.count("\n"), list(here.iterdir())) == ("", 1, [])
    assert words in shown.err


def test_a_reader_that_leaves_makes_no_failure_a_pass(here: Path) -> None:
    (here / "config.json").write_text("{}")
    reading, writing = os.pipe()
    os.close(reading)
    with subprocess.Popen(
        [sys.executable, "-m", "drafter_audit", "check", "."], stdout=writing, stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as run:  # fmt: skip
        os.close(writing)
        _, err = run.communicate(timeout=60)
    assert (run.returncode, err) == (1, b"")


def test_a_fault_of_our_own_is_no_failed_check() -> None:
    program = "from drafter_audit.cli import main as m; m.cli.command('broken')(lambda: {}['absent']); m.run()"
    done = subprocess.run(
        [sys.executable, "-c", program, "broken"], capture_output=True, text=True, check=False, timeout=60,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert (done.returncode, done.stderr.splitlines()[-1]) == (3, "KeyError: 'absent'")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no full device here")
def test_a_full_disk_under_the_junit_file_is_no_usage_error() -> None:
    from drafter_audit.check.row import Result
    from drafter_audit.report.junit import write_junit

    with pytest.raises(AuditError, match="No space left") as raised:
        write_junit(Result((Row("tiny", "lint", "static", "fail_on", outcome="pass"),)), "/dev/full")
    assert raised.value.exit_code == 3
