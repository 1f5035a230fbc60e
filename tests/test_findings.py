"""Each code of the audit fires on a drafter that has the fault, and not on one that only looks like it, and has its
entry in docs/findings.md."""

import ast
import importlib
import pkgutil
import re
import runpy
from pathlib import Path

import pytest

import drafter_audit.audit.rules
import tests.findings
from drafter_audit.audit.rules import MODULES, codes, find
from drafter_audit.drafter.open import open_drafter, with_config
from drafter_audit.engines.base import merged
from drafter_audit.facts import registry
from tests.findings.case import Case

ROOT = Path(__file__).resolve().parents[1]
CODES = {code.name: code for code in codes()}
CASES: list[Case] = [
    case
    for module in pkgutil.iter_modules(tests.findings.__path__)
    for case in getattr(importlib.import_module(f"tests.findings.{module.name}"), "CASES", ())
]


def found(lint):
    """The codes of its findings, each of which must come in a severity that its entry names."""
    for finding in lint.findings:
        assert finding.severity in CODES[finding.code].severities, finding
    return [finding.code for finding in lint.findings]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.code)
def test_it_fires(case, tmp_path):
    assert case.code in found(case.fires(tmp_path))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.code)
def test_it_does_not_fire(case, tmp_path):
    assert case.code not in found(case.silent(tmp_path))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.code)
def test_its_edit_mends_it(case, tmp_path):
    """What a finding says to set in config.json leaves nothing of it, nor an error that was not there."""
    lint = case.fires(tmp_path)
    for finding in lint.findings:
        if finding.code == case.code and finding.fix_set is not None:
            edited = with_config(lint.spec, merged(lint.spec.config.raw, finding.fix_set), told=False)
            left = [(one.code, one.key) for one in find(edited)]
            assert (finding.code, finding.key) not in left
            before = {one.code for one in lint.findings}
            assert [one.code for one in find(edited) if one.severity == "error" and one.code not in before] == []


def test_every_code_has_a_case_and_every_case_a_code():
    assert {case.code for case in CASES} == set(CODES)


KNOWN_FAULTS: dict[str, set[str]] = {}
"""By bundled name, the errors that a published config is known to have."""


@pytest.mark.parametrize(
    "name", [one.name for one in map(registry.load, registry.names()) if one.role == "drafter" and one.config_origin]
)
def test_no_published_config_without_a_known_fault_has_an_error(name):
    errors = {finding.code for finding in find(open_drafter(name)) if finding.severity == "error"}
    assert errors == KNOWN_FAULTS.get(name, set())


# --- the table of codes


def test_names_are_unique():
    assert len(CODES) == len(codes())


def test_every_module_with_rules_is_listed():
    names = {module.name for module in pkgutil.iter_modules(drafter_audit.audit.rules.__path__)}
    assert {module.__name__.rpartition(".")[2] for module in MODULES} == names


@pytest.mark.parametrize("code", codes(), ids=lambda code: code.name)
def test_an_entry_is_whole(code):
    sentences = (code.what, code.silent, code.evidence, code.fix)
    assert all(text.endswith(".") for text in sentences)
    assert not any("|" in text for text in (*sentences, code.source))
    assert re.search(r"https://|\.py(:\d+|\b)", code.source), "a thread, or a file and its line"
    assert re.fullmatch(r"[A-Z0-9]+(-[A-Z0-9]+)*", code.name)
    assert code.severities


def trees():
    for file in (ROOT / "drafter_audit" / "audit").rglob("*.py"):
        yield file, ast.parse(file.read_text(encoding="utf-8"))


def calls(tree, name):
    return [node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == name]


def test_every_code_that_is_written_has_an_entry_and_every_entry_is_used():
    """A code is any string that looks like one, or is one of those known: `Finding(...)` takes them from tables too."""
    written = set()
    for _, tree in trees():
        entries = {id(node) for call in calls(tree, "Code") for node in ast.walk(call)}
        texts = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in entries]
        looks = re.compile(r"[A-Z][A-Z0-9]+(-[A-Z0-9]+)+")
        written |= {text for text in texts if isinstance(text, str) and (looks.fullmatch(text) or text in CODES)}
    assert written == set(CODES)


def test_no_code_is_put_together():
    pieced = [
        f"{file.name}:{call.lineno}"
        for file, tree in trees()
        for call in calls(tree, "Finding")
        if any(isinstance(node, ast.JoinedStr | ast.BinOp) for node in ast.walk(call.args[0]))
    ]
    assert pieced == []


def test_the_page_of_findings_is_up_to_date():
    made = runpy.run_path(str(ROOT / "docs" / "generate_findings.py"))["page"]()
    assert (ROOT / "docs" / "findings.md").read_text(encoding="utf-8") == made, "run: python docs/generate_findings.py"
