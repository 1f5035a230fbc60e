"""What is shipped, and what a fresh clone can count on."""

import importlib.util
import os
import pkgutil
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import requires
from pathlib import Path

import pytest

import drafter_audit

ROOT = Path(__file__).resolve().parents[1]
TARGETS = ["setup", "demo", "test", "test-slow", "test-engines", "gpu-check", "lint", "bench", "clean", "help"]


@pytest.fixture(scope="module")
def pyproject():
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def makefile():
    return (ROOT / "Makefile").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def tracked():
    """The files in git that are there, as paths from the root."""
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        pytest.skip("not a git checkout")
    run = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    return [name for name in run.stdout.split("\0") if name and (ROOT / name).is_file()]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel, open for reading. Built by hatchling itself: pip would take longer to the same end."""
    if importlib.util.find_spec("hatchling") is None:
        pytest.skip("hatchling is not installed")
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    run = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    (file,) = folder.glob("*.whl")
    with zipfile.ZipFile(file) as archive:
        yield archive


def test_the_version_has_one_source(pyproject):
    assert "version" not in pyproject["project"]
    assert pyproject["project"]["dynamic"] == ["version"]
    assert pyproject["tool"]["hatch"]["version"]["path"] == "drafter_audit/__init__.py"
    assigned = re.compile(r"^__version__\b.*=", re.MULTILINE)
    sources = [file for file in (ROOT / "drafter_audit").rglob("*.py") if assigned.search(file.read_text("utf-8"))]
    assert sources == [ROOT / "drafter_audit" / "__init__.py"]


def test_the_changelog_knows_this_version_or_what_is_unreleased():
    headings = re.findall(r"^## \[([^]]+)\]", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert {"Unreleased", drafter_audit.__version__} & set(headings)


def test_the_license_is_apache_2(pyproject):
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert re.search(r"Apache License\s+Version 2\.0, January 2004", text)
    assert "END OF TERMS AND CONDITIONS" in text
    assert pyproject["project"]["license"] == "Apache-2.0"


def test_every_dependency_is_pinned(pyproject):
    project = pyproject["project"]
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *extras["ci"], *extras["dev"], *extras["run"]]
    pins = re.findall(r"^([A-Za-z0-9_.-]+)==\S+$", (ROOT / "constraints.txt").read_text("utf-8"), re.MULTILINE)
    pinned = {normal(name) for name in pins}
    assert [name for name in wanted if normal(re.split(r"[<>=!~\[; ]", name)[0]) not in pinned] == []


def normal(name):
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.mark.parametrize("target", TARGETS)
def test_the_makefile_has_the_target_and_says_what_it_does(makefile, target):
    assert re.search(rf"^{target}:.*## \S", makefile, re.MULTILINE)


def test_make_alone_lists_every_target():
    if shutil.which("make") is None:
        pytest.skip("make is not installed")
    # Without the outer make's flags, should the tests run under one.
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("MAKE") and name != "MFLAGS"
    }
    run = subprocess.run(["make"], cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    assert sorted(line.split()[0] for line in run.stdout.splitlines()) == sorted(TARGETS)


@pytest.mark.parametrize("command", ["make demo", "make test"])
def test_the_readme_names_the_commands_to_start_with(command):
    assert command in (ROOT / "README.md").read_text(encoding="utf-8")


def test_ci_lints_and_tests():
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    lines = script.read_text(encoding="utf-8").splitlines()
    assert "set -euo pipefail" in lines
    assert [line for line in lines if line.startswith("make ")] == ["make lint", "make test"]


def test_no_file_in_git_names_a_path_of_somebodys_machine(tracked):
    # In pieces, so that this file does not match itself.
    private = re.compile(r"(?<![\w.])(/wor" + r"k/|/tm" + r"p/|/home/\w|/Users/\w)")
    found = []
    for name in tracked:
        try:
            lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
        except UnicodeDecodeError:
            continue  # weights and pictures
        found += [f"{name}:{number}: {line.strip()}" for number, line in enumerate(lines, 1) if private.search(line)]
    assert found == []


def test_the_wheel_ships_the_types_marker_the_license_and_every_record(wheel):
    names = set(wheel.namelist())
    records = {f"drafter_audit/reference_models/{file.name}" for file in (ROOT / "reference_models").glob("*.toml")}
    assert records
    wanted = records | {"drafter_audit/py.typed", f"{metadata_folder()}/licenses/LICENSE"}
    assert sorted(wanted - names) == []


def test_the_wheel_ships_no_script_and_no_second_copy_of_a_record(wheel):
    shipped = {name for name in wheel.namelist() if name.startswith("drafter_audit/reference_models/")}
    assert [name for name in shipped if name.endswith(".py") or "by_hand" in name] == []


def test_the_wheel_ships_the_reference_pair_and_not_what_made_it(wheel):
    shipped = {name for name in wheel.namelist() if name.startswith("drafter_audit/reference_models/tiny/")}
    folder = ROOT / "reference_models"
    pair = [path for part in ("target", "drafter") for path in (folder / "tiny" / part).iterdir()]
    linked = re.findall(r"\]\((?!http)([^)]+)\)", (folder / "tiny" / "README.md").read_text(encoding="utf-8"))
    assert linked
    files = [*pair, folder / "tiny" / "README.md", *(folder / "tiny" / link for link in linked)]
    assert shipped == {f"drafter_audit/reference_models/{path.relative_to(folder).as_posix()}" for path in files}


def test_the_wheel_ships_the_package_and_nothing_else(wheel):
    assert {name.partition("/")[0] for name in wheel.namelist()} == {"drafter_audit", metadata_folder()}


def test_the_wheel_carries_the_version_and_the_command(wheel, pyproject):
    metadata = wheel.read(f"{metadata_folder()}/METADATA").decode()
    assert f"\nVersion: {drafter_audit.__version__}\n" in metadata
    scripts = wheel.read(f"{metadata_folder()}/entry_points.txt").decode()
    entry = pyproject["project"]["scripts"]["drafter-audit"]
    assert f"\ndrafter-audit = {entry}\n" in scripts
    assert callable(pkgutil.resolve_name(entry))


def metadata_folder():
    return f"drafter_audit-{drafter_audit.__version__}.dist-info"


@pytest.mark.parametrize("name", ["httpx2", "PyYAML"])
def test_what_is_imported_but_not_declared_comes_with_the_hub_client(name):
    """Its exceptions are caught, and its YAML parser reads cards: both are among its own requirements."""
    required = {
        re.split(r"[^A-Za-z0-9_-]", line)[0].lower() for line in requires("huggingface_hub") if "extra ==" not in line
    }
    assert name.lower() in required
