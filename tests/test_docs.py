"""The documentation says what the code does."""

import ast
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import get_args, get_type_hints

import click
import pytest

from drafter_audit.audit.differences import FIELDS
from drafter_audit.cli.commands import every_command
from drafter_audit.drafter.boundaries import read_aux_layers
from drafter_audit.drafter.config_view import ConfigView
from drafter_audit.drafter.dialects import DIALECTS
from drafter_audit.drafter.kinds import KINDS, kind_table
from drafter_audit.drafter.wiring import KNOBS, Wiring

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), ROOT / "reference_models" / "README.md"])
COMMANDS = sorted(every_command().items())


def doc(name):
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def blocks(text, language):
    """The code blocks of one language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def table(text, heading):
    """The rows of the first table under a heading, cells stripped, its header left out."""
    _, _, rest = text.partition(f"\n{heading}\n")
    lines = re.search(r"(?:^\|.*\n)+", rest, re.MULTILINE)[0].splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


# --- the command line


def test_the_page_of_the_command_line_is_up_to_date():
    made = runpy.run_path(str(ROOT / "docs" / "generate_cli.py"))["page"]()
    assert doc("cli.md") == made, "run: python docs/generate_cli.py"


def test_the_page_of_the_engines_is_up_to_date():
    made = runpy.run_path(str(ROOT / "docs" / "generate_engines.py"))["page"]()
    assert doc("engines.md") == made, "run: python docs/generate_engines.py"


def test_the_page_of_the_command_line_does_not_depend_on_the_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    assert runpy.run_path(str(ROOT / "docs" / "generate_cli.py"))["page"]() == doc("cli.md")


@pytest.mark.parametrize(("name", "command"), COMMANDS)
def test_every_command_and_option_has_help(name, command):
    assert command.help
    options = [param for param in command.params if isinstance(param, click.Option)]
    assert [option.name for option in options if not option.help] == []
    assert f"drafter-audit {name}" in command.help, "an example"


@pytest.mark.parametrize(("name", "command"), COMMANDS)
def test_every_command_is_in_the_readme(name, command):
    assert f"\n### {name}\n" in README
    examples = [line for line in examples_of(README) if line[1] == name]
    assert len(examples) >= 2
    used = {word for words in examples for word in words}
    own = {
        opt for param in command.params if isinstance(param, click.Option) for opt in param.opts if opt.startswith("--")
    }
    assert (own & used) or not own


def examples_of(text):
    """Every line `drafter-audit ...` of the shell blocks and of indented help, as words."""
    lines = [line for block in blocks(text, "sh") + blocks(text, "text") for line in block.splitlines()]
    return [shlex.split(line) for line in lines if re.match(r"\s*drafter-audit [a-z]", line)]


@pytest.mark.parametrize("words", examples_of(README) + examples_of(doc("cli.md")), ids=" ".join)
def test_every_example_is_accepted(words):
    program, name, *arguments = words
    assert program == "drafter-audit"
    every_command()[name].make_context(name, list(arguments))


def test_every_format_is_in_the_readme():
    (style,) = (param for param in every_command()["compare"].params if param.name == "style")
    assert [name for name in style.type.choices if name.lower() not in README.lower()] == []


def test_the_bash_line_of_the_readme_completes_commands(tmp_path):
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("bash is not installed")
    (line,) = re.findall(r"^eval .*bash_source.*?\)\"", README, re.MULTILINE)
    program = tmp_path / "drafter-audit"
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m drafter_audit "$@"\n')
    program.chmod(0o755)
    script = f"""
        set -eu
        {line}
        ask=$(complete -p drafter-audit | sed 's/.* -F \\([^ ]*\\) .*/\\1/')
        COMP_WORDS=(drafter-audit com) COMP_CWORD=1 COMPREPLY=()
        $ask drafter-audit com drafter-audit
        echo "${{COMPREPLY[@]}}"
    """
    path = os.pathsep.join([str(tmp_path), os.environ["PATH"]])
    run = subprocess.run([bash, "--norc", "-c", script], env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)},
                         capture_output=True, text=True, check=False, timeout=60)  # fmt: skip
    assert (run.returncode, run.stdout.split(), run.stderr) == (0, ["compare"], "")


# --- the README


def test_the_conclusions_in_the_readme_are_those_of_the_demo():
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8"}
    run = subprocess.run([sys.executable, "-W", "error", "examples/demo.py"], cwd=ROOT, env=environment,
                         capture_output=True, encoding="utf-8", check=False, timeout=300)  # fmt: skip
    assert run.returncode == 0
    assert [line for line in run.stderr.splitlines() if not line.startswith("note: ")] == []
    (quoted,) = (block for block in blocks(README, "text") if block.startswith("Conclusions\n"))
    printed = run.stdout[run.stdout.index("\nConclusions\n") + 1 :]
    assert quoted == printed[: printed.index("\n\n$ ") + 1]
    (verdict,) = (block for block in blocks(README, "text") if block.startswith("./slipped: "))
    assert verdict in run.stdout


def test_the_python_in_the_readme_runs(capsys):
    code, _ = blocks(README, "python")
    exec(compile(code, "README.md", "exec"), {})
    first, *sentences = capsys.readouterr().out.splitlines()
    assert first == "1190948864 (2, 30, 58)"
    assert sentences


def test_the_drafter_in_the_readme_runs():
    """On a peer's checkpoint in place of its own: no weights are bundled."""
    from safetensors.torch import load_file

    import drafter_audit

    _, code = blocks(README, "python")
    folder = ROOT / "tests" / "oracles" / "speculators_plain"
    theirs = load_file(folder / "oracle.safetensors")
    code = code.replace('"./ours", target="moonshotai/Kimi-K2.5"', repr(str(folder)))
    told = {"next_token_ids": theirs["input_ids"], "states": theirs["states"], "drafter_audit": drafter_audit}
    exec(compile(code, "README.md", "exec"), told)
    assert float((told["logits"] - theirs["logits"][:3]).abs().max()) < 1e-4


def test_the_toml_in_the_readme_follows_its_schema(tmp_path):
    from drafter_audit.facts import project

    (text,) = blocks(README, "toml")
    (tmp_path / project.FILE_NAME).write_text(text)
    read = project.in_folder(tmp_path)
    assert read is not None
    (entry,) = read.drafters
    assert (entry.path, entry.training.samples, read.check.min_accept_len) == ("./ours", 37000, 2.0)


@pytest.mark.parametrize("code", [0, 1, 2, 3, 130])
def test_the_readme_tells_every_exit_code(code):
    assert re.search(rf"^\| {code} \|", README, re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_local_links_resolve(page):
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    targets = re.findall(r"\]\((?!https?:|mailto:)([^)#\s]+)", text)
    assert [target for target in targets if not (page.parent / target).exists()] == []


# --- the other pages


def test_every_compared_field_is_documented():
    text = doc("compare.md")
    assert [field.path for field in FIELDS if f"`{field.path}`" not in text] == []


def test_every_dialect_has_its_training_rule():
    rows = table(doc("parameters.md"), "## What each trainer trains")
    told = {name.strip("` ") for row in rows for name in row[0].split(",")}
    assert told == set(DIALECTS)


def test_every_kind_has_its_signature():
    rows = [(name.strip("`"), reason) for name, reason in table(doc("kinds.md"), "## Signatures")]
    assert rows[:-1] == list(kind_table())
    assert rows[-1][0] == "unknown"


def test_every_kind_tells_what_is_audited():
    rows = table(doc("kinds.md"), "## What is counted and audited")
    assert {name.strip("` ") for row in rows for name in row[0].split(",")} == set(KINDS)


LIST_KEYS = {
    "eagle_config": lambda ids: ({"eagle_config": {"eagle_aux_hidden_state_layer_ids": ids}}, "eagle3", "unknown"),
    "speculators": lambda ids: ({"eagle_aux_hidden_state_layer_ids": ids}, "eagle3", "speculators"),
    "dflash_config": lambda ids: ({"dflash_config": {"target_layer_ids": ids}}, "dflash", "unknown"),
}


def test_every_knob_is_described():
    assert [row[0].strip("`") for row in table(doc("wiring.md"), "## Knobs")] == list(KNOBS)


@pytest.mark.parametrize("row", table(doc("wiring.md"), "## Knobs"), ids=lambda row: row[0])
def test_the_words_of_a_knob_are_those_of_its_type(row):
    parts = get_args(get_type_hints(Wiring)[row[0].strip("`")])  # of a Literal, or of one that may be None
    words = [word for part in parts for word in (get_args(part) or [part]) if isinstance(word, str)]
    assert re.findall(r"`(\w+)`", row[1]) == words


@pytest.mark.parametrize("row", table(doc("layer-ids.md"), "## Examples"), ids=lambda row: f"{row[0]} of {row[1]}")
def test_the_examples_of_layer_ids_are_right(row):
    written, layers, boundaries, verdict, alternative = row
    key, *ids = written.replace("`", "").replace(",", "").split()
    raw, kind, dialect = ({}, "eagle3", "unknown") if key == "no" else LIST_KEYS[key]([int(i) for i in ids])
    aux = read_aux_layers(
        ConfigView(raw, "config.json"), kind=kind, dialect=dialect, num_layers=int(layers), slots=None
    )
    assert numbers(boundaries) == aux.boundaries
    assert verdict == f"{aux.reading}, {aux.confidence}"
    assert [numbers(alternative)] * bool(alternative) == [other.boundaries for other in aux.alternatives]


def numbers(text):
    return tuple(int(number) for number in text.split(",") if number)


def test_packages_import_only_what_the_architecture_allows():
    (listing,) = (block for block in blocks(doc("architecture.md"), "text") if block.startswith("cli "))
    allowed = {line.split()[0]: set(line.split()[1:]) for line in listing.splitlines()}
    found = {}
    for file in (ROOT / "drafter_audit").rglob("*.py"):
        package = file.relative_to(ROOT / "drafter_audit").parts[0].removesuffix(".py")
        if package not in ("__init__", "__main__"):
            found.setdefault(package, set()).update(imported(file) - {package})
    assert found == allowed


def imported(file):
    """The subpackages of drafter_audit that a file imports from."""
    nodes = [node for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))) if isinstance(node, ast.ImportFrom)]
    paths = [node.module.split(".") for node in nodes if node.module and node.level == 0]
    return {path[1] for path in paths if path[0] == "drafter_audit" and len(path) > 1}


def test_the_packages_are_listed_in_import_order():
    """Each line of the listing names only packages that come after it: downwards only."""
    (listing,) = (block for block in blocks(doc("architecture.md"), "text") if block.startswith("cli "))
    order = [line.split()[0] for line in listing.splitlines()]
    assert all(order.index(name) < order.index(other) for name, *others in map(str.split, listing.splitlines())
               for other in others)  # fmt: skip


def test_every_package_is_described():
    rows = table(doc("architecture.md"), "## Packages")
    folders = {path.parent.name for path in (ROOT / "drafter_audit").glob("*/__init__.py")}
    assert {row[0].strip("`") for row in rows} == folders | {"errors", "process", "ranks", "secrets"}
