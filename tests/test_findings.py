"""Each code of the audit fires on a drafter that has the fault, and not on one that only looks like it."""

import importlib
import pkgutil

import pytest

import tests.findings
from tests.findings.case import Case

CASES: list[Case] = [
    case
    for module in pkgutil.iter_modules(tests.findings.__path__)
    for case in getattr(importlib.import_module(f"tests.findings.{module.name}"), "CASES", ())
]


def codes(lint):
    return [finding.code for finding in lint.findings]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.code)
def test_it_fires(case, tmp_path):
    assert case.code in codes(case.fires(tmp_path))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.code)
def test_it_does_not_fire(case, tmp_path):
    assert case.code not in codes(case.silent(tmp_path))
