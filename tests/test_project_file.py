"""drafter-audit.toml: what it gives, and that every slip in it is an error that helps."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from drafter_audit.errors import EXIT_USAGE, ProjectFileError
from drafter_audit.facts.project import CheckEntry, beside, in_folder

WHOLE = """
[[drafter]]
path = "./ours"
target = "moonshotai/Kimi-K2.5"
recording = "rec/"
  [drafter.training]
  dataset = "synthetic, 9 categories"
  samples = 37000
  [[drafter.accept_len]]
  value = 2.1
  steps = 2
  topk = 1
  num_draft_tokens = 3
  engine = "sglang"
  [drafter.throughput]
  tokens_per_s = 94.0
  plain_tokens_per_s = 88.8
[check]
fail_on = "error"
min_accept_len = 2.0
"""
ROW = "[[drafter]]\n[[drafter.accept_len]]\n"
TRAINING = "[[drafter]]\n[drafter.training]\n"


def write(folder, text, name="drafter-audit.toml"):
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(text, encoding="utf-8")
    return folder


def test_a_whole_file_in_the_working_folder(tmp_path):
    project = in_folder(write(tmp_path, WHOLE))
    assert project is not None
    file = str(tmp_path / "drafter-audit.toml")
    (entry,) = project.drafters
    assert (entry.path, entry.reference) == ("./ours", str(tmp_path / "ours"))
    assert entry.recording == tmp_path / "rec"
    assert project.check == CheckEntry(fail_on="error", min_accept_len=2.0)
    facts = entry.facts()
    assert (facts.target, facts.target_source) == ("moonshotai/Kimi-K2.5", file)
    assert facts.training is not None
    assert (facts.training.dataset, facts.training.samples) == ("synthetic, 9 categories", 37000)
    assert facts.training.source == file
    (row,) = facts.accept_len
    assert (row.value, row.steps, row.topk, row.num_draft_tokens, row.engine) == (2.1, 2, 1, 3, "sglang")
    assert (row.publisher, row.source, row.benchmark, row.temperature) == ("author", file, None, None)
    assert facts.throughput is not None
    assert (facts.throughput.tokens_per_s, facts.throughput.plain_tokens_per_s) == (94.0, 88.8)


def test_the_same_in_pyproject(tmp_path):
    text = WHOLE.replace("[[drafter", "[[tool.drafter-audit.drafter").replace(
        "  [drafter", "  [tool.drafter-audit.drafter"
    )
    write(tmp_path, "[project]\nname = 'x'\n" + text.replace("[check]", "[tool.drafter-audit.check]"), "pyproject.toml")
    project = in_folder(tmp_path)
    assert project is not None
    assert project.path == tmp_path / "pyproject.toml"
    assert project.drafters[0].accept_len[0].value == 2.1
    assert project.check.min_accept_len == 2.0


@pytest.mark.parametrize(
    "text", ["[project]\nname = 'x'\n", "broken [", "[tool.other]\nx = 'drafter-audit'\n", "tool = 1 # drafter-audit"]
)
def test_a_pyproject_without_the_table_is_no_project_file(tmp_path, text):
    assert in_folder(write(tmp_path, text, "pyproject.toml")) is None


def test_the_files_own_name_comes_before_pyproject(tmp_path):
    write(tmp_path, "[tool.drafter-audit.check]\nmin_accept_len = 3.0\n", "pyproject.toml")
    write(tmp_path, "[check]\nmin_accept_len = 2.0\n")
    project = in_folder(tmp_path)
    assert project is not None
    assert project.check.min_accept_len == 2.0
    assert project.drafters == ()


def test_no_file(tmp_path):
    assert in_folder(tmp_path) is None
    assert beside(tmp_path) is None


def test_beside_a_checkpoint_path_may_be_left_out(tmp_path):
    entry = beside(write(tmp_path, "[[drafter]]\n[drafter.training]\nsamples = 37000\n"))
    assert entry is not None
    assert (entry.path, entry.reference) == (None, None)
    facts = entry.facts()
    assert facts.training is not None
    assert (facts.training.dataset, facts.training.samples) == (None, 37000)
    assert (facts.target, facts.target_source, facts.accept_len, facts.throughput) == (None, None, (), None)


def test_beside_a_checkpoint_only_its_own_path_applies(tmp_path):
    ours = write(tmp_path / "ours", '[[drafter]]\npath = "../theirs"\n[[drafter]]\npath = "."\ntarget = "a/b"\n')
    entry = beside(ours)
    assert entry is not None
    assert entry.target == "a/b"
    assert beside(write(tmp_path / "x", '[[drafter]]\npath = "../theirs"\n')) is None
    assert beside(write(tmp_path / "y", "[check]\nmin_accept_len = 2\n")) is None
    with pytest.raises(ProjectFileError, match="same path"):
        beside(write(tmp_path / "z", '[[drafter]]\npath = "."\n[[drafter]]\npath = "../z"\n'))


def test_paths_are_needed_where_they_cannot_be_inferred(tmp_path):
    with pytest.raises(ProjectFileError, match="no path"):
        in_folder(write(tmp_path / "work", "[[drafter]]\n"))
    with pytest.raises(ProjectFileError, match="2 has no path"):
        beside(write(tmp_path / "two", '[[drafter]]\npath = "."\n[[drafter]]\n'))
    write(tmp_path / "checkpoint", "{}", "config.json")
    assert in_folder(write(tmp_path / "checkpoint", "[[drafter]]\n")) is not None


def test_a_path_is_any_reference(tmp_path):
    (tmp_path / "ours").mkdir()
    project = in_folder(write(tmp_path, '[[drafter]]\npath = "ours"\n[[drafter]]\npath = "org/name@main"\n'))
    assert project is not None
    assert [entry.reference for entry in project.drafters] == [str(tmp_path / "ours"), "org/name@main"]
    assert project.entry("org/name@main") is project.drafters[1]
    assert project.entry(str(tmp_path / "x" / ".." / "ours")) is project.drafters[0]
    assert project.entry("org/other") is None


@pytest.mark.parametrize(
    ("said", "samples"),
    [
        ("37000", 37000),
        ('"1.4M"', 1_400_000),
        ('"37k"', 37_000),
        ('"2 M"', 2_000_000),
        ('"500000"', 500_000),
        ('"1.1K"', 1100),
    ],
)
def test_samples(tmp_path, said, samples):
    entry = beside(write(tmp_path, f"[[drafter]]\n[drafter.training]\nsamples = {said}\n"))
    assert entry is not None
    assert entry.training is not None
    assert entry.training.samples == samples


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[drafters]]\n", "unknown key 'drafters', FILE, the file, did you mean 'drafter'?"),
        ("[[drafter]]\ntargt = 'a/b'\n", "unknown key 'targt', FILE, [[drafter]] 1, did you mean 'target'?"),
        (TRAINING + "sample = 1\n", "'sample', FILE, [[drafter]] 1 training, did you mean 'samples'?"),
        (ROW + "value = 2.0\nstep = 3\n", "'step', FILE, [[drafter]] 1 accept_len 1, did you mean 'steps'?"),
        ("[[drafter]]\n[drafter.throughput]\ntok_per_s = 3\n", "did you mean 'tokens_per_s'?"),
        ("[check]\nmin_acceptlen = 2\n", "unknown key 'min_acceptlen', FILE, [check], did you mean 'min_accept_len'?"),
        ("[check]\nfail_on = 'warn'\n", "fail_on is 'warn', FILE, [check], did you mean 'warning'?"),
        ("[check]\nmin_accept_len = 0.5\n", "min_accept_len is 0.5"),
        ("[check]\nmin_accept_len = true\n", "min_accept_len is True, FILE, [check], give a number"),
        ("check = 1\n", "[check] is not a table"),
        ("drafter = 1\n", "[[drafter]] is not an array of tables"),
        ("[drafter]\npath = '.'\n", "[[drafter]] is not an array of tables"),
        ("drafter = [1]\n", "[[drafter]] 1 is not a table"),
        ("[[drafter]]\npath = 3\n", "path is 3, FILE, [[drafter]] 1, give a string"),
        ('[[drafter]]\npath = "a\\u0000b"\n', "path holds a NUL"),
        ("[[drafter]]\ntraining = 'much'\n", "training is not a table"),
        (TRAINING + "samples = 1.5\n", 'samples is 1.5, FILE, [[drafter]] 1 training, give an integer from 1, or '),
        (TRAINING + "samples = true\n", "samples is True"),
        (TRAINING + "samples = 0\n", "samples is 0"),
        (TRAINING + "samples = 'many'\n", "samples is 'many'"),
        (TRAINING + "samples = '1.5'\n", "samples is '1.5'"),
        ("[[drafter]]\naccept_len = 2.1\n", "accept_len is not an array of tables"),
        (ROW + "steps = 3\n", "'value' is missing"),
        (ROW + "value = 0.9\n", "value is 0.9, FILE, [[drafter]] 1 accept_len 1, give a number from 1"),
        (ROW + "value = 4.1\nsteps = 3\n", "value is 4.1, and with these steps and"),
        (ROW + "value = nan\n", "value is nan"),
        (ROW + "value = inf\n", "value is inf"),
        (ROW + "value = true\n", "value is True"),
        (ROW + "value = 2.0\nsteps = 2.0\n", "steps is 2.0, FILE, [[drafter]] 1 accept_len 1, give an integer"),
        (ROW + "value = 2.0\nsteps = true\n", "steps is True"),
        (ROW + "value = 2.0\ntopk = 0\n", "topk is 0"),
        (ROW + "value = 2.0\ntemperature = -1\n", "temperature is -1"),
        ("[[drafter]]\n[drafter.throughput]\ntokens_per_s = 0\n", "tokens_per_s is 0"),
        ("[[drafter]]\n[drafter.throughput]\nplain_tokens_per_s = 80\n", "'tokens_per_s' is missing"),
        ("[[drafter]\n", "not TOML"),
        ("x = " + "1" * 5000 + "\n", "not TOML"),
        ("x = " + "[" * 5000, "not TOML"),
    ],
)  # fmt: skip
def test_a_slip_is_an_error_that_helps(tmp_path, text, message):
    write(tmp_path, text)
    with pytest.raises(
        ProjectFileError, match=re.escape(message.replace("FILE", str(tmp_path / "drafter-audit.toml")))
    ) as caught:
        beside(tmp_path)
    assert caught.value.exit_code == EXIT_USAGE
    assert "\n" not in str(caught.value)


def test_a_file_that_is_no_text(tmp_path):
    (tmp_path / "drafter-audit.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ProjectFileError, match="cannot be read"):
        in_folder(tmp_path)


def test_accept_len_may_be_all_that_the_steps_allow(tmp_path):
    entry = beside(write(tmp_path, ROW + "value = 4\nsteps = 3\nbatch_size = 8\ntokens_per_s = 90\ntemperature = 0\n"))
    assert entry is not None
    assert (entry.accept_len[0].value, entry.accept_len[0].batch_size, entry.accept_len[0].tokens_per_s) == (4, 8, 90)


def test_reading_a_project_file_loads_nothing_heavy(tmp_path):
    write(tmp_path, WHOLE)
    code = """
import sys
from pathlib import Path
from drafter_audit.facts.project import in_folder
assert in_folder(Path(sys.argv[1]))
heavy = {"huggingface_hub", "numpy", "yaml", "difflib", "torch"} & set(sys.modules)
assert not heavy, heavy
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
