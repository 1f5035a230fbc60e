"""`drafter-audit lint` as a user and as pre-commit meet it."""

from __future__ import annotations

import csv
import io
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from drafter_audit.cli.main import main
from drafter_audit.sources.reference import parse_reference
from tests.checkpoints import KIMI_CONFIG, kimi_tensors, write_checkpoint, write_peer
from tests.findings.engines import NESTED, write_target

ROOT = Path(__file__).resolve().parents[1]
EMBEDDING_TAP = {**KIMI_CONFIG, "eagle_config": {NESTED: [-1, 30, 58]}}


@pytest.fixture
def ours(tmp_path: Path) -> str:
    return write_checkpoint(tmp_path / "ours", KIMI_CONFIG, kimi_tensors())


@pytest.fixture
def target(tmp_path: Path) -> str:
    return write_target(tmp_path / "target")


@pytest.fixture
def faulty(tmp_path: Path) -> str:
    """A drafter whose three ids leave the target, an error."""
    return write_checkpoint(tmp_path / "faulty", {**KIMI_CONFIG, "eagle_config": {NESTED: [2, 30, 99]}}, kimi_tensors())


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["lint", *arguments])
    out, err = capsys.readouterr()
    return code, out, err


def result(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, object]:
    return json.loads(run(capsys, *arguments, "--format", "json")[1])


# --- JSON


def test_one_drafter_is_the_object_itself(capsys, ours, target):
    found = result(capsys, ours, "--target", target)
    assert found["schema_version"] == 1
    assert found["ref"] == ours
    assert found["level"] == "target_config"
    assert all(isinstance(each, str) for each in found["not_checked"])
    keys = {"code", "severity", "what", "where", "evidence", "consequence", "fix"}
    assert all(finding.keys() == keys for finding in found["findings"])
    wanted = {"name", "version", "loads", "boundaries", "wiring", "differs", "evidence", "config"}
    assert found["engines"]
    for engine in found["engines"]:
        assert wanted <= engine.keys()
        assert engine["evidence"] in ("run", "read", "deduced")


def test_several_are_results(capsys, ours, faulty):
    found = result(capsys, ours, faulty)
    assert [each["ref"] for each in found["results"]] == [ours, faulty]
    assert "findings" not in found


# --- exit codes


@pytest.mark.parametrize(
    ("fail_on", "code"), [((), 1), (("error",), 1), (("warning",), 1), (("info",), 1), (("never",), 0)]
)
def test_an_error_fails(capsys, faulty, target, fail_on, code):
    options = [word for each in fail_on for word in ("--fail-on", each)]
    status, out, err = run(capsys, faulty, "--target", target, *options)
    assert (status, err) == (code, "")
    assert "IDS-RANGE" in out


@pytest.mark.parametrize(("fail_on", "code"), [("error", 0), ("warning", 1), ("info", 1)])
def test_a_warning_fails_where_it_is_asked_to(capsys, ours, target, fail_on, code):
    """[2, 30, 58] can be read in two ways, which is a warning."""
    assert run(capsys, ours, "--target", target, "--level", "target_config", "--fail-on", fail_on)[0] == code


def test_one_of_several_is_enough(capsys, ours, faulty, target):
    assert run(capsys, ours, faulty, "--target", target)[0] == 1


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["./nowhere"], 3, "no such file or folder"),
        (["OURS", "--engine", "sglan"], 2, "did you mean sglang"),
        (["OURS", "--engine", "vllm@latest"], 2, "is no version"),
        (["OURS", "--fail-on", "fatal"], 2, "fatal"),
        (["OURS", "--target", "./nowhere"], 3, "no such file or folder"),
        (["OURS", "OURS", "--engine", "vllm", "--write-config", "x"], 2, "for one drafter"),
        (["OURS", "--engine", ""], 2, "an empty name"),  # an unset variable of a script must not mean all of them
        (["OURS", "--engine", "vllm,"], 2, "an empty name"),
        (["OURS", "--engine", "vllm@"], 2, "no version stands after the @"),
        (["OURS", "--engine", "all@0.5.3"], 2, "each engine has its own"),
        (["OURS", "--engine", "sglang==0.5.3"], 2, "write sglang@0.5.3"),
        (["OURS", "--engine", "TRT-LLM 1.0.0"], 2, "write tensorrt-llm@1.0.0"),
        (["OURS", "--engine", "vllm@0.1"], 2, "too old"),
        (["LM", "--reading", "boundary"], 2, "lm, leave it out"),
        (["OURS", "--engine", "vllm", "--write-config", " "], 2, "no folder name"),
        (["OURS", "--engine", "vllm", "--write-config", ".", "-o", "model.safetensors"], 2, "in the new folder"),
        (["OURS", "--engine", "vllm", "--write-config", "new", "-o", "new/model.safetensors"], 2, "no folder there"),
        (["LM", "--engine", "vllm", "--write-config", "new"], 2, "not known to be a drafter"),
    ],
)
def test_errors_are_one_line(capsys, ours, tmp_path, arguments, code, words):
    places = {"OURS": ours, "LM": write_peer(tmp_path / "lm", "tiny_llama")}
    status, out, err = run(capsys, *(places.get(word, word) for word in arguments))
    assert (status, out) == (code, "")
    assert err.startswith("error: ")
    assert words in err
    assert err.count("\n") == 1


# --- which drafter


def test_without_a_name_it_is_the_one_in_the_folder(capsys, ours, monkeypatch):
    monkeypatch.chdir(ours)
    assert result(capsys)["ref"] == "."


def test_without_a_name_it_is_those_of_the_project_file(capsys, ours, monkeypatch, tmp_path):
    (tmp_path / "drafter-audit.toml").write_text(f'[[drafter]]\npath = "{ours}"\n')
    monkeypatch.chdir(tmp_path)
    assert result(capsys)["ref"] == ours


def test_without_a_name_and_a_drafter_it_is_a_usage_error(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    status, out, err = run(capsys)
    assert (status, out) == (2, "")
    assert "no DRAFTER is named" in err


def test_a_config_json_means_its_folder(capsys, ours, monkeypatch):
    assert result(capsys, f"{ours}/config.json")["level"] == "drafter"
    assert parse_reference(f"{ours}/config.json").name == ours
    monkeypatch.chdir(ours)
    assert result(capsys, "config.json")["kind"] == "eagle3"


# --- engines


def test_engines_by_comma_and_by_repetition(capsys, ours):
    names = ["--engine", "trtllm,llama.cpp", "--engine", "sglang@0.5.3"]
    engines = result(capsys, ours, *names)["engines"]
    assert [(each["name"], each["version"]) for each in engines][-1] == ("sglang", "0.5.3")
    assert [each["name"] for each in engines] == ["tensorrt-llm", "llama.cpp", "sglang"]


@pytest.mark.parametrize(
    ("written", "engines"),
    [
        ("SGLang@v0.5.23", [("sglang", "0.5.23")]),
        (" sglang @ 0.5.23 ", [("sglang", "0.5.23")]),
        ("llama.cpp@b10000", [("llama.cpp", "10000")]),
        ("trt-llm@1.0.0", [("tensorrt-llm", "1.0.0")]),
        ("sglang@0.5.24.dev3+gabc", [("sglang", "0.5.24.dev3+gabc")]),
        ("sglang@0.5.3,sglang@v0.5.3", [("sglang", "0.5.3")]),
        ("vllm@0.33,vllm@0.33.0", [("vllm", "0.33"), ("vllm", "0.33")]),  # its two runners, once
    ],
)
def test_ways_to_write_a_release(capsys, ours, written, engines):
    found = result(capsys, ours, "--engine", written)["engines"]
    assert [(each["name"], each["version"]) for each in found] == engines


def test_all_holds_each_once(capsys, ours):
    found = result(capsys, ours, "--engine", "ALL,sglang")["engines"]
    assert [each["name"] for each in found] == ["sglang", "vllm", "vllm", "tensorrt-llm", "llama.cpp"]


def test_a_release_newer_than_those_read_says_so(capsys, ours):
    found = result(capsys, ours, "--engine", "sglang@99.1.dev3+gabc")["findings"]
    assert [each["severity"] for each in found if each["code"] == "ENGINE-UNREAD"] == ["info"]


def test_engines_without_rules_for_a_kind_share_a_sentence(capsys, tmp_path):
    found = result(capsys, write_peer(tmp_path / "lm", "tiny_llama"), "--engine", "all")
    (sentence,) = found["not_checked"]
    assert all(name in sentence for name in ("sglang@", "vllm@", "tensorrt-llm@", "llama.cpp@", "kind lm"))
    assert sentence.count("vllm@") == 1


def test_unnamed_engines_are_said_to_yield_nothing(capsys, ours):
    assert "No engine was named" in run(capsys, ours)[1]
    assert "No engine was named" not in run(capsys, ours, "--engine", "all")[1]


# --- what is shown


def test_an_embedding_tap_is_named_in_every_command(capsys, tmp_path, target):
    """Boundary 0 is the embedding's output: a drafter that reads it is rare, and more often a slip."""
    ref = write_checkpoint(tmp_path / "tap", EMBEDDING_TAP, kimi_tensors())
    plain = write_checkpoint(tmp_path / "plain", KIMI_CONFIG, kimi_tensors())
    words = "[0 (embedding output), 31, 59]"
    flat = re.compile(r"\s+")
    assert words in flat.sub(" ", run(capsys, ref, "--target", target)[1])
    main(["compare", plain, ref, "--target", target])
    assert capsys.readouterr().out.count("(embedding output)") == 2  # side by side, and among the differences


def test_it_fits_a_terminal_of_80_columns(capsys, ours, target, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(Path(ours).parent)
    _, out, _ = run(capsys, "./ours", "--target", "./target", "--engine", "all")
    assert [line for line in out.splitlines() if len(line) > 80] == []


def test_the_fix_stands_with_its_finding(capsys, tmp_path):
    """A drafter under a plain model's class name; the edit is that of ARCH-NAME."""
    config = {**KIMI_CONFIG, "architectures": ["LlamaForCausalLM"]}
    ref = write_checkpoint(tmp_path / "d", config, kimi_tensors())
    _, out, _ = run(capsys, ref)
    assert 'set in config.json: {"architectures": ["LlamaForCausalLMEagle3"]}' in re.sub(r"\s+", " ", out)
    rows = list(csv.DictReader(io.StringIO(run(capsys, ref, "--format", "csv")[1])))
    (row,) = (row for row in rows if row["code"] == "ARCH-NAME")
    assert json.loads(row["fix"]) == {"architectures": ["LlamaForCausalLMEagle3"]}
    assert row["ref"] == ref


def test_markdown_has_a_heading_for_each_part(capsys, ours):
    out = run(capsys, ours, "--format", "markdown")[1]
    assert [line for line in out.splitlines() if line.startswith("### ")][1:] == [
        "### Engines",
        "### Findings",
        "### Not checked",
    ]


# --- pre-commit

HOOKS = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())


def hook(folder: Path, *names: str) -> subprocess.CompletedProcess[str]:
    """The hook's entry with its arguments and the files that match, as pre-commit runs it in the repository's root."""
    (one,) = HOOKS
    program, *command = shlex.split(one["entry"])
    assert program == "drafter-audit"
    arguments = [*command, *one.get("args", []), *(name for name in names if re.search(one["files"], name))]
    return subprocess.run([sys.executable, "-m", "drafter_audit", *arguments], cwd=folder, capture_output=True,
                          text=True, check=False, timeout=60, env={"PYTHONPATH": str(ROOT)})  # fmt: skip


def test_the_hook_is_declared_as_pre_commit_wants_it():
    (one,) = HOOKS
    assert (one["id"], one["language"], one["require_serial"]) == ("drafter-audit-lint", "python", True)
    assert one["name"]
    assert one["description"]


def test_the_hook_takes_every_config_json(tmp_path):
    write_checkpoint(tmp_path / "a", KIMI_CONFIG, kimi_tensors())
    write_peer(tmp_path / "lm", "tiny_llama")
    ended = hook(tmp_path, "a/config.json", "lm/config.json", "a/other_config.json", "README.md")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "a/config.json" in ended.stdout
    assert "other_config" not in ended.stdout


def test_the_hook_lets_a_config_of_something_else_pass(tmp_path):
    (tmp_path / "config.json").write_text('{"port": 8080}')
    assert hook(tmp_path, "config.json").returncode == 0


def test_the_hook_fails_on_an_error(tmp_path):
    config = {**KIMI_CONFIG, "hidden_size": 4096}
    write_checkpoint(tmp_path, config, kimi_tensors())
    ended = hook(tmp_path, "config.json")
    assert ended.returncode == 1
    assert "SHAPE-MISMATCH" in ended.stdout
