"""The house has storeys: a package imports only from those below it, and torch never at import time."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "drafter_audit"

# From the ground up. `errors` and the package's version are everybody's.
STOREYS = (
    *("measure", "facts", "sources", "checkpoint", "drafter", "prompts", "model", "recording", "decode"),
    "bench",
    *("engines", "wiring", "audit", "check", "report", "cli"),
)
LIBRARIES = {"torch", "transformers", "accelerate"}
RUNS_MODELS = {"model", "recording", "decode", "wiring"}


def modules() -> list[Path]:
    return sorted(ROOT.rglob("*.py"))


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def storey(module: str) -> int | None:
    parts = module.split(".")
    return STOREYS.index(parts[1]) if parts[0] == "drafter_audit" and len(parts) > 1 and parts[1] in STOREYS else None


def name_of(path: Path) -> str:
    return ".".join(("drafter_audit", *path.relative_to(ROOT).with_suffix("").parts))


@pytest.mark.parametrize("path", modules(), ids=name_of)
def test_imports_run_downwards(path: Path) -> None:
    own = storey(name_of(path))
    upwards = (
        []
        if own is None
        else [module for module in imported(path) if (other := storey(module)) is not None and other > own]
    )
    assert upwards == []


def test_every_package_has_its_storey() -> None:
    assert {path.name for path in ROOT.iterdir() if path.is_dir() and path.name != "__pycache__"} == set(STOREYS)


@pytest.mark.parametrize("path", modules(), ids=name_of)
def test_what_runs_models_is_named_where_they_run(path: Path) -> None:
    if path.relative_to(ROOT).parts[0] not in RUNS_MODELS:
        assert not LIBRARIES & {module.split(".")[0] for module in imported(path)}


@pytest.mark.parametrize("path", modules(), ids=name_of)
def test_static_answers_do_not_run_models(path: Path) -> None:
    """Audit, engines and reports are what the base installation can do."""
    if path.relative_to(ROOT).parts[0] in {"engines", "audit", "report"}:
        assert not [module for module in imported(path) if module.startswith("drafter_audit.model")]


def test_only_the_sink_and_the_command_line_write_out() -> None:
    ways = ("sys.stdout", "click.echo", "click.progressbar")
    writers = {name_of(path) for path in modules() if any(way in path.read_text() for way in ways)}
    flushes = {"drafter_audit.model.target.ranks"}  # before a failed rank ends at once; it writes nothing there
    assert writers - flushes == {"drafter_audit.report.sink", "drafter_audit.cli.main", "drafter_audit.cli.progress"}
