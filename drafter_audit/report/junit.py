"""`check` as JUnit XML, which CI servers show: a suite for each drafter, a case for each row."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from drafter_audit.check.row import Result, Row
from drafter_audit.errors import AuditError, UsageError, escape

if TYPE_CHECKING:
    from junitparser import JUnitXml, TestCase


def check_writable(file: str) -> None:
    """Before anything is measured. Raises UsageError for a `file` in no folder, AuditError where the extra lacks."""
    if not Path(file).absolute().parent.is_dir():
        raise UsageError("there is no such folder", file, "make it, or choose another file for --junit")
    if find_spec("junitparser") is None:
        raise AuditError("junitparser is not installed", "--junit", "pip install 'drafter-audit[ci]'")


def write_junit(result: Result, file: str) -> None:
    """Raises AuditError where `file` cannot be written, as on a full disk."""
    try:
        junit_of(result).write(file, pretty=True)
    except OSError as error:
        mend = "make room, or choose another file for --junit"
        raise AuditError(f"cannot write: {error.strerror}", file, mend) from error


def junit_of(result: Result) -> JUnitXml:
    """A row that failed is a failure, one that was not measured an error."""
    from junitparser import JUnitXml, TestSuite

    xml = JUnitXml("drafter-audit check")
    for drafter in dict.fromkeys(row.drafter for row in result.rows):
        suite = TestSuite(_legal(drafter))
        suite.add_testcases([_case(row) for row in result.rows if row.drafter == drafter])
        xml.add_testsuite(suite)
    xml.time = result.seconds
    return xml


def _case(row: Row) -> TestCase:
    from junitparser import Error, Failure, TestCase

    case = TestCase(row.check, classname=_legal(row.drafter))
    if row.outcome != "pass":
        kind = Failure if row.outcome == "fail" else Error
        case.result = [kind(_legal(row.reason), row.outcome)]
    return case


def _legal(text: str) -> str:
    """Without what XML 1.0 cannot hold: control characters are shown, the two that are no characters replaced."""
    return escape(text).replace("\ufffe", "\ufffd").replace("\uffff", "\ufffd")
