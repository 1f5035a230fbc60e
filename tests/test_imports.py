"""What starting the program may load.

Each case runs a real process under `-X importtime`, which lists every import that was tried, an absent module inside
`try: import torch` too.
"""

import os
import re
import subprocess
import sys

import pytest

from benchmarks.startup import write_tiny_drafter

HEAVY = {"accelerate", "huggingface_hub", "numpy", "torch", "transformers"}

# What `import drafter_audit` may load beyond what a bare interpreter does: the errors, and the cheap part of the
# standard library. Whatever else a user reaches through the package, it loads when it is first asked for.
CHEAP = {
    "__future__",
    "collections",
    "contextlib",
    "dataclasses",
    "enum",
    "functools",
    "importlib",
    "keyword",
    "operator",
    "reprlib",
    "types",
    "typing",
    "unicodedata",
    "warnings",
}

LINE = re.compile(r"^import time: +\d+ \| +\d+ \|( +)(\S+)$", re.MULTILINE)


def imports(*arguments):
    """Run `python arguments`; the imports it tried, name to the chain of modules that led there, nearest first."""
    run = subprocess.run(
        [sys.executable, "-X", "importtime", *arguments], capture_output=True, text=True, check=False, timeout=60
    )
    assert run.returncode == 0, f"python {' '.join(arguments)} ended with {run.returncode}:\n{last_words(run.stderr)}"
    lines = [(len(indent), name) for indent, name in LINE.findall(run.stderr)]
    chains = {}
    for index, (depth, name) in enumerate(lines):
        chain = []
        # A module is listed after all that it imports, so its importer is the next line that is less indented.
        for later_depth, later_name in lines[index + 1 :]:
            if later_depth < depth:
                depth = later_depth
                chain.append(later_name)
        chains.setdefault(name, chain)
    return chains


def last_words(stderr):
    return "\n".join(line for line in stderr.splitlines() if not line.startswith("import time:"))


def leaks(chains, *, is_allowed):
    """The imports that are not allowed, each with who brought it in; the first of a package stands for the rest."""
    found = {}
    for name, chain in chains.items():
        top = name.partition(".")[0]
        if not is_allowed(top) and not any(not is_allowed(by.partition(".")[0]) for by in chain):
            found.setdefault(top, " <- ".join([name, *chain]))
    return sorted(found.values())


@pytest.fixture(scope="module")
def drafters(tmp_path_factory):
    folder = tmp_path_factory.mktemp("drafters")
    return [str(write_tiny_drafter(folder / name)) for name in ("ours", "theirs")]


@pytest.fixture(scope="module")
def bare():
    """What the interpreter loads for itself, its environment's start-up files included."""
    return set(imports("-c", "pass"))


def test_the_probe_sees_a_failed_import_and_names_who_tried(tmp_path):
    (tmp_path / "leaky.py").write_text("try:\n    import no_such_module\nexcept ImportError:\n    pass\n")
    chains = imports("-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import leaky")
    assert leaks(chains, is_allowed=lambda top: top != "no_such_module") == ["no_such_module <- leaky"]


@pytest.mark.parametrize("command", [["--help"], ["compare"], ["params"]], ids=lambda command: command[0])
def test_a_command_on_local_files_loads_nothing_heavy(command, drafters):
    references = [] if command == ["--help"] else drafters
    chains = imports("-m", "drafter_audit", *command, *references)
    assert leaks(chains, is_allowed=lambda top: top not in HEAVY) == []


def test_lint_loads_neither_the_hubs_client_nor_torch(drafters, tmp_path):
    """numpy it may: values of the drafter are looked at."""
    (tmp_path / "config.json").write_text('{"model_type": "llama", "num_hidden_layers": 8, "hidden_size": 64}')
    chains = imports("-m", "drafter_audit", "lint", drafters[0], "--target", str(tmp_path), "--fail-on", "never")
    assert leaks(chains, is_allowed=lambda top: top not in HEAVY - {"numpy"}) == []


def test_check_without_a_recording_loads_what_lint_does(drafters):
    """Neither the process that waits nor the one that measures loads torch: -X is handed on by the environment."""
    command = [sys.executable, "-m", "drafter_audit", "check", drafters[0]]
    run = subprocess.run(
        command,
        env={**os.environ, "PYTHONPROFILEIMPORTTIME": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    loaded = {name.partition(".")[0] for _, name in LINE.findall(run.stderr)}
    assert run.returncode in (0, 1), last_words(run.stderr)
    assert "lint" in run.stdout
    assert loaded & HEAVY <= {"numpy"}


def test_help_loads_click_and_the_standard_library_only(bare):
    chains = {name: chain for name, chain in imports("-m", "drafter_audit", "--help").items() if name not in bare}
    # Tried by the standard library and not found: the C half of a module that is of another system (_wmi), and Jython's
    # org.python, by copy, which dataclasses imports. Both together take 1 ms, beside the 27 ms of click.
    allowed = sys.stdlib_module_names | {"drafter_audit", "click", "org"}
    assert leaks(chains, is_allowed=lambda top: top in allowed or top.startswith("_")) == []


def test_importing_the_package_loads_only_cheap_modules(bare):
    chains = {name: chain for name, chain in imports("-c", "import drafter_audit").items() if name not in bare}
    # A leading underscore is the C half of a standard module: judged by the module that asked for it.
    allowed = CHEAP | {"drafter_audit"} | {name for name in sys.stdlib_module_names if name.startswith("_")}
    assert leaks(chains, is_allowed=lambda top: top in allowed) == []
    assert sorted(name for name in chains if name.startswith("drafter_audit.") and name != "drafter_audit.errors") == []


def test_a_drafter_that_runs_loads_torch_and_no_client_of_the_hub(tmp_path):
    """Of transformers nothing either, where rope is plain."""
    from tests.random_drafters import write_random

    ref, _ = write_random(tmp_path)
    chains = imports("-c", f"import drafter_audit; drafter_audit.load_drafter({ref!r})")
    assert "torch" in chains
    assert leaks(chains, is_allowed=lambda top: top not in {"accelerate", "huggingface_hub", "transformers"}) == []
