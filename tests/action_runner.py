"""A stand-in for the part of GitHub's runner that composite actions meet.

It follows https://docs.github.com/actions/reference/workflows-and-actions/metadata-syntax and, for commands,
ActionCommandManager.cs and ActionCommand.cs of actions/runner: a line is a command where it begins with `::`, or holds
`##[`; after `stop-commands` none is, until the token comes.
"""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

ACTION = Path(__file__).resolve().parents[1]
_EXPRESSION = re.compile(r"\$\{\{\s*([\w.-]+)\s*\}\}")
_V2 = re.compile(r"\s*::(?P<name>[\w-]+)(?: (?P<properties>.*?))?::(?P<data>.*)", re.DOTALL)
_V1 = re.compile(r"##\[(?P<name>[\w-]+)(?: (?P<properties>[^\]]*))?\](?P<data>.*)", re.DOTALL)
KNOWN = {"error", "warning", "notice", "debug", "set-output", "set-env", "add-mask", "add-path", "stop-commands",
         "save-state", "group", "endgroup", "echo", "add-matcher", "remove-matcher"}  # fmt: skip


@dataclass
class Ran:
    code: int
    log: str
    outputs: dict[str, str]
    summary: str

    @property
    def commands(self) -> list[tuple[str, dict[str, str], str]]:
        """Each command that the runner would obey: name, properties, message, decoded."""
        return list(commands_of(self.log))

    def annotations(self, level: str) -> list[tuple[dict[str, str], str]]:
        return [(told, data) for name, told, data in self.commands if name == level]


@dataclass
class Runner:
    """One job: its workspace and its files."""

    workspace: Path
    temp: Path
    environment: dict[str, str]
    steps: dict[str, dict[str, str]] = field(default_factory=dict)

    def run(self, **given: str) -> Ran:
        """The action's steps, with those inputs (underscores for dashes), until one fails."""
        action = yaml.safe_load((ACTION / "action.yml").read_text())
        inputs = {name: told.get("default", "") for name, told in action["inputs"].items()}
        assert given.keys() <= {name.replace("-", "_") for name in inputs}
        inputs |= {name.replace("_", "-"): value for name, value in given.items()}
        summary, log, code = self.temp / "summary.md", "", 0
        summary.write_text("")
        for step in action["runs"]["steps"]:
            if code == 0:
                code, said = self._step(step, inputs, summary)
                log += said
        outputs = {name: self._filled(told["value"], inputs) for name, told in action["outputs"].items()}
        return Ran(code, log, outputs, summary.read_text())

    def _step(self, step: dict[str, Any], inputs: dict[str, str], summary: Path) -> tuple[int, str]:
        assert step["shell"] == "bash"
        assert "${{" not in step["run"], "an expression in a script is text that the shell would run"
        files = {name: self.temp / name.lower() for name in ("GITHUB_OUTPUT", "GITHUB_ENV", "GITHUB_PATH")}
        for file in files.values():
            file.write_text("")
        script = self.temp / "script.sh"
        script.write_text(step["run"])
        environment = {
            **self.environment, **{name: str(file) for name, file in files.items()},
            "GITHUB_STEP_SUMMARY": str(summary), "GITHUB_WORKSPACE": str(self.workspace), "GITHUB_ACTIONS": "true",
            "GITHUB_ACTION_PATH": str(ACTION), "RUNNER_TEMP": str(self.temp), "CI": "true",
            **{name: self._filled(value, inputs) for name, value in step.get("env", {}).items()},
        }  # fmt: skip
        ran = subprocess.run(
            ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", str(script)],
            cwd=self.workspace, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            check=False, timeout=600,
        )  # fmt: skip
        assert files["GITHUB_ENV"].read_text() == files["GITHUB_PATH"].read_text() == ""
        self.steps[step["id"]] = dict(line.split("=", 1) for line in files["GITHUB_OUTPUT"].read_text().splitlines())
        return ran.returncode, ran.stdout

    def _filled(self, text: str, inputs: dict[str, str]) -> str:
        def value(found: re.Match[str]) -> str:
            head, *rest = found[1].split(".")
            if head == "inputs":
                return inputs[rest[0]]
            assert head == "steps"
            return self.steps.get(rest[0], {}).get(rest[2], "")

        return _EXPRESSION.sub(value, text)


def runner(workspace: Path, temp: Path, program: str) -> Runner:
    """With a `drafter-audit` on PATH that is `program`."""
    bin_folder = temp / "bin"
    bin_folder.mkdir(parents=True)
    (bin_folder / "drafter-audit").write_text(f'#!/bin/sh\nexec {program} "$@"\n')
    (bin_folder / "drafter-audit").chmod(0o755)
    path = os.pathsep.join([str(bin_folder), os.environ["PATH"]])
    return Runner(workspace, temp, {**os.environ, "PATH": path, "PYTHONPATH": str(ACTION)})


def commands_of(log: str):
    stopped: str | None = None
    for line in log.splitlines():
        found = _V2.fullmatch(line) or _V1.search(line)
        if found is None or found["name"].lower() not in KNOWN | {stopped}:
            continue
        if stopped is not None:
            stopped = None if found["name"] == stopped else stopped
        elif found["name"] == "stop-commands":
            stopped = found["data"]
        else:
            pairs = [each.split("=", 1) for each in (found["properties"] or "").split(",") if each]
            yield found["name"], {name: decoded(value) for name, value in pairs}, decoded(found["data"])


def decoded(text: str) -> str:
    for written, meant in (("%2C", ","), ("%3A", ":"), ("%0A", "\n"), ("%0D", "\r"), ("%25", "%")):
        text = text.replace(written, meant)
    return text
