"""The Action's steps, as a runner runs them: environment files, working folder, annotations, summary."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import yaml
from markdown_it import MarkdownIt

from drafter_audit.check.row import Result, Row
from drafter_audit.facts import project
from drafter_audit.report.github import MOST_SHOWN, Annotation, annotated, outputs, shown, summary
from drafter_audit.report.junit import junit_of
from drafter_audit.report.lines import bar_line, error_line, key_line
from tests.action_runner import ACTION, Runner, commands_of, runner
from tests.planted import TINY, planted

HOSTILE = "::error::x|<b>y`##[error]z%0A::add-mask::a"
EXAMPLES = sorted((ACTION / "examples").glob("*.yml"))


@pytest.fixture
def job(tmp_path: Path) -> Runner:
    """A job in an empty workspace, on a runner where the tool is installed."""
    (tmp_path / "workspace").mkdir()
    return runner(tmp_path / "workspace", tmp_path / "temp", f"{shlex.quote(sys.executable)} -m drafter_audit")


def cells(markdown: str) -> list[list[str]]:
    """The rows of its tables, as a reader sees them; nothing else but text may be in them."""
    tokens = MarkdownIt("commonmark").enable("table").parse(markdown)
    inline = [token for token in tokens if token.type == "inline"]
    kinds = {child.type for token in inline for child in token.children or ()}
    assert kinds <= {"text", "text_special", "softbreak"}, kinds
    rows: list[list[str]] = []
    for token, after in pairwise(tokens):
        if token.type == "tr_open":
            rows.append([])
        elif token.type in ("th_open", "td_open"):
            rows[-1].append("".join(child.content for child in after.children or ()))
    return rows


def test_a_healthy_export_passes(job: Runner, tiny_recording) -> None:
    shutil.copytree(TINY, job.workspace / "ours")
    recording = str(tiny_recording.folder)
    ran = job.run(drafter="./ours", recording=recording, min_accept_len="2.0", install="none", junit="found/check.xml")
    assert ran.code == 2  # there is no folder for the JUnit file
    (job.workspace / "found").mkdir()
    ran = job.run(drafter="./ours", recording=recording, min_accept_len="2.0", install="none", junit="found/check.xml")
    assert ran.code == 0, ran.log
    assert (ran.outputs["verdict"], ran.outputs["passed"]) == ("pass", "true")
    assert 2.0 < float(ran.outputs["accept-len"]) <= 4.0
    assert ran.summary.startswith("## PASS: 2 passed\n")
    assert [row[1:3] for row in cells(ran.summary)[1:]] == [["lint", "pass"], ["accept_len", "pass"]]
    assert ran.commands == []
    assert '<testcase name="accept_len" classname="./ours"/>' in (job.workspace / "found/check.xml").read_text()


def test_a_damaged_config_is_told_on_its_line(job: Runner) -> None:
    (job.workspace / "ours").mkdir()
    planted(job.workspace / "ours", also={"heads": lambda config, _: config.update(num_attention_heads=3)})
    planted(job.workspace / "ours", "heads", also={"heads": lambda config, _: config.update(num_attention_heads=3)})
    config = job.workspace / "ours" / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()), indent=2))
    ran = job.run(drafter="./ours", install="none")
    assert ran.code == 1, ran.log
    assert ran.outputs == {"accept-len": "", "verdict": "fail", "passed": "false"}
    assert ran.summary.startswith("## FAIL: 1 failed\n")
    told = ran.annotations("error")
    lines = {int(where["line"]) for where, _ in told if where["file"] == "ours/config.json"}
    (line,) = [at for at, text in enumerate(config.read_text().splitlines(), 1) if '"num_attention_heads"' in text]
    assert line in lines
    assert all(where["title"] == "drafter-audit: lint" for where, _ in told)


def test_what_is_not_measured_is_told_on_the_bars_line(job: Runner) -> None:
    shutil.copytree(TINY, job.workspace / "ours")
    text = '[[drafter]]\npath = "./ours"\n\n[check]\nreference = "./gone"\nsame_architecture = true\n'
    (job.workspace / "bars.toml").write_text(text)
    ran = job.run(config="bars.toml", install="none")
    assert (ran.code, ran.outputs["verdict"], ran.outputs["passed"]) == (3, "unmeasured", "false")
    ((where, message),) = ran.annotations("warning")
    assert (where["file"], where["line"]) == ("bars.toml", "6")
    assert "gone" in message
    assert ran.annotations("error") == []


@pytest.mark.parametrize(
    ("file", "table"),
    [("drafter-audit.toml", ""), ("pyproject.toml", "tool.drafter-audit."), ("ours/drafter-audit.toml", "")],
)
def test_an_error_in_the_project_file_is_told_on_its_line(job: Runner, file: str, table: str) -> None:
    shutil.copytree(TINY, job.workspace / "ours")
    wrong = f'[[{table}drafter]]\npath = "."\n[{table}check]\nmin_acept_len = 2.5\n'
    (job.workspace / file).write_text(wrong)
    ran = job.run(install="none", drafter="./ours")
    assert (ran.code, ran.outputs["verdict"], ran.outputs["passed"]) == (2, "error", "false")
    ((where, message),) = ran.annotations("error")
    assert (where["file"], where["line"]) == (file, "4")
    assert "did you mean 'min_accept_len'?" in message
    assert ran.summary.startswith("## ERROR\n")


@pytest.mark.parametrize("shown", ["findings", "unreadable"])
def test_no_text_of_a_checkpoint_is_a_command_or_a_cell(job: Runner, shown: str) -> None:
    """The name of its folder, and a value of its config.json that is quoted, with lines of its own."""
    folder = job.workspace / HOSTILE
    shutil.copytree(TINY, folder)
    config = json.loads((folder / "config.json").read_text())
    if shown == "findings":
        config["eagle_config"]["eagle_aux_hidden_state_layer_ids"] = [1, 5, 400]
    else:
        config["hidden_size"] = f"A\n::add-mask::b\n##[warning]c | d | <img src=x> https://x.org {HOSTILE}"
    (folder / "config.json").write_text(json.dumps(config))
    ran = job.run(drafter=f"./{HOSTILE}", install="none")
    assert ran.code == 1, ran.log
    assert "##[error]z" in ran.log, "it is shown, and was no command"
    assert {name for name, _, _ in ran.commands} == {"error"}
    for where, message in ran.annotations("error"):
        assert where.keys() <= {"file", "line", "title"}
        assert message.startswith(f"./{HOSTILE}: ")
        assert (shown == "unreadable") == ("::add-mask::b" in message)
    (row,) = cells(ran.summary)[1:]
    assert (row[0], row[1], len(row)) == (f"./{HOSTILE}", "lint", 6)
    assert (shown == "unreadable") == ("<img src=x> https:" in row[5])


@pytest.mark.parametrize("given", [{"drafter": "$(touch x)`touch x`"}, {"target": "';touch x;'"}, {"config": "--help"},
                                   {"min_accept_len": "1; touch x"}, {"install": "$(touch x)"}])  # fmt: skip
def test_inputs_are_no_shell(job: Runner, given: dict[str, str]) -> None:
    ran = job.run(**{"install": "none", "drafter": "./none", **given})
    assert ran.code in (1, 2, 3)
    assert ran.outputs["passed"] in ("", "false")
    assert list(job.workspace.iterdir()) == []


def test_python_imports_nothing_from_the_workspace(job: Runner) -> None:
    for name in ("json.py", "numpy.py", "drafter_audit.py", "click.py"):
        (job.workspace / name).write_text("raise SystemExit('executed')")
    shutil.copytree(TINY, job.workspace / "ours")
    assert job.run(drafter="./ours", install="none").code == 0


@pytest.mark.slow
def test_a_miswired_drafter_is_told_on_the_line_of_its_layer_ids(job: Runner, tiny_recording) -> None:
    (job.workspace / "ours").mkdir()
    planted(job.workspace / "ours", "slot 0 +1")
    config = job.workspace / "ours" / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()), indent=2))
    ran = job.run(drafter="./ours", recording=str(tiny_recording.folder), min_accept_len="3.9", install="none")
    assert (ran.code, ran.outputs["verdict"]) == (1, "fail")
    (where, message) = ran.annotations("error")[0]
    assert "layer_ids" in config.read_text().splitlines()[int(where["line"]) - 1]
    assert "miswired" in message


@pytest.mark.slow
def test_the_action_installs_itself(job: Runner, tmp_path: Path) -> None:
    """Without an index: what it depends on is served from wheels made of what is installed here, or is not tried."""
    pytest.importorskip("hatchling")
    packages = tmp_path / "here.pth"
    packages.write_text("\n".join(path for path in sys.path if path.endswith("site-packages")))
    base = job.environment["PATH"]
    bin_folder = tmp_path / "temp" / "bin"
    (bin_folder / "python3").write_text(f"""#!/bin/sh
{shlex.quote(sys.executable)} "$@" || exit $?
case "$*" in *venv*) cp {packages} "$RUNNER_TEMP"/drafter-audit/lib/python3*/site-packages/ ;; esac
""")
    (bin_folder / "python3").chmod(0o755)
    job.environment |= {"PATH": base, "PIP_NO_INDEX": "1", "PIP_NO_BUILD_ISOLATION": "0", "PIP_NO_DEPS": "1"}
    del job.environment["PYTHONPATH"]
    shutil.copytree(TINY, job.workspace / "ours")
    ran = job.run(drafter="./ours", install="base")
    assert (ran.code, ran.outputs["verdict"]) == (0, "pass"), ran.log
    program = job.steps["install"]["program"]
    assert Path(program).is_relative_to(job.temp)


# --- the parts


def test_the_stand_in_obeys_what_a_runner_obeys() -> None:
    log = "::error file=a%2Cb,line=3::x%0Ay\n ::notice::n\ntext ##[warning]w\n::unknown::u\n::stop-commands::t0\n"
    log += "::error::not\n##[error]not\n::t0::\n::debug::d\n"
    assert list(commands_of(log)) == [
        ("error", {"file": "a,b", "line": "3"}, "x\ny"), ("notice", {}, "n"), ("warning", {}, "w"), ("debug", {}, "d"),
    ]  # fmt: skip


def row(**changes: object) -> Row:
    return replace(Row("./ours", "lint", "static", "fail_on", "error", "fail", "1 error", "why"), **changes)


def test_annotations_are_escaped_as_the_runner_decodes_them() -> None:
    told = Annotation("error", "a:b,c%\n", "m%0A\r\n::error::x", "f,g:h", 3)
    ((name, where, message),) = commands_of(told.command)
    assert (name, where["file"], where["line"]) == ("error", "f,g:h", "3")
    assert (where["title"], message) == ("a:b,c%\\n", "m%0A\\r\\n::error::x")


def test_no_more_annotations_than_are_shown(tmp_path: Path) -> None:
    rows = tuple(row(drafter=f"d{number}") for number in range(25))
    told = shown(annotated(Result(rows), {}, tmp_path))
    assert len(told) == MOST_SHOWN
    assert told[-1].message == "and 16 more, which the job summary has"


def test_the_least_accept_len_is_the_output() -> None:
    rows = (row(key="min_accept_len", observed=2.5, outcome="pass"), row(key="min_accept_len", observed=2.25))
    assert outputs(Result(rows)) == {"accept-len": "2.2500", "verdict": "fail", "passed": "false"}
    assert outputs(Result(()))["passed"] == "false"


def test_a_summary_is_no_larger_than_a_runner_takes() -> None:
    assert len(summary(Result((row(reason="x" * 2 * 10**6),))).encode()) < 1024**2
    assert len(summary(Result(tuple(row(drafter=f"{n}", reason="x" * 900) for n in range(1500)))).encode()) < 1024**2


def test_lines_of_bars() -> None:
    text = """[check]
fail_on = "error"
min_accept_len = 2.0  # tokens
[[drafter]]
path = "./a"  # one
  [drafter.accept_len]
  value = 2
[[drafter]]
path = './b'
  [drafter.check]
  min_accept_len = 2.5
"""
    found = {name: bar_line(text, name, "min_accept_len") for name in ("./a", "./b", "./c")}
    assert found == {"./a": 3, "./b": 11, "./c": 3}
    assert [bar_line(text, name, "wiring") for name in ("./a", "./b", "./c")] == [5, 9, None]
    assert bar_line("[tool.drafter-audit.check]\nwiring = true", "x", "wiring") == 2


def test_lines_of_keys_and_errors(tmp_path: Path) -> None:
    text = json.dumps({"a": 1, "b": {"a": 2, "c": 3}}, indent=1)
    assert [key_line(text, keys) for keys in (["a"], ["b"], ["b", "a"], ["b", "z"], [])] == [2, 3, 4, 3, 1]
    file = tmp_path / project.FILE_NAME
    check, ours = "[check]\nsteps = 3\n", "[[drafter]]\npath = './a'\n"
    for written, line in (
        ("[check]\nx = = 1\n", 2),
        ("[check]\n\nwirings = true\n", 3),
        ("[check]\nsteps = 'a'", 2),
        (f"{check}{ours}[drafter.check]\nsteps = 'a'", 6),
        (f"{check}{ours}{ours}[[drafter.accept_len]]\nvalue = 2\n[[drafter.accept_len]]\nsteps = 0", 10),
        (f"{ours}[drafter.throughput]\nplain_tokens_per_s = 2\n[[drafter]]", 3),
    ):
        file.write_text(written)
        with pytest.raises(project.ProjectFileError) as caught:
            project.in_folder(tmp_path)
        assert error_line(written, caught.value.what, caught.value.place) == line


def test_junit_is_xml_whatever_a_name_holds() -> None:
    import xml.etree.ElementTree as ElementTree

    rows = (row(drafter="<a>\x00\ufffe]]>&\"'", reason="\x1b[31m<b>\ud800"), row(outcome="unmeasured", check="x"),
            row(check="y", outcome="pass"))  # fmt: skip
    root = ElementTree.fromstring(junit_of(Result(rows, None, 2.5)).tostring())
    assert [suite.get("name") for suite in root] == ["<a>\\x00\ufffd]]>&\"'", "./ours"]
    assert [(suite.get("failures"), suite.get("errors")) for suite in root] == [("1", "0"), ("0", "1")]
    assert [child.tag for case in root[1] for child in case] == ["error"]
    assert root.get("time") == "2.5"


# --- examples


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.name)
def test_the_examples_are_workflows_with_pinned_actions(file: Path) -> None:
    workflow = yaml.safe_load(file.read_text())
    inputs = yaml.safe_load((ACTION / "action.yml").read_text())["inputs"]
    assert {"name", "permissions", "jobs"} <= workflow.keys()
    assert True in workflow  # YAML 1.1 reads `on` as true, and so does PyYAML
    assert workflow["permissions"] == {"contents": "read"}
    for told in workflow["jobs"].values():
        assert {"runs-on", "timeout-minutes", "steps"} <= told.keys()
        for step in told["steps"]:
            assert ("uses" in step) != ("run" in step)
            assert "${{" not in step.get("run", "")
            if "drafter-audit@" in step.get("uses", ""):
                assert step["with"].keys() <= inputs.keys()
            elif "uses" in step:
                assert re.fullmatch(r"actions/[\w-]+@[0-9a-f]{40}", step["uses"])


def test_there_is_an_example_for_a_gpu_and_one_for_recordings() -> None:
    assert [file.name for file in EXAMPLES] == ["gate-gpu.yml", "gate-recording.yml"]


def test_off_a_runner_github_is_refused(tmp_path: Path) -> None:
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ACTION)}
    command = [sys.executable, "-m", "drafter_audit", "check", str(TINY), "--github"]
    ran = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.startswith("error: GITHUB_OUTPUT and GITHUB_STEP_SUMMARY are not set")
