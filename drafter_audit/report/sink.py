"""The only place that writes results to stdout, or to the file that stands for it, and remarks on them to stderr."""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import Any

from drafter_audit import __version__
from drafter_audit.errors import AuditError, UsageError, escape
from drafter_audit.ranks import Rank
from drafter_audit.report.document import Document
from drafter_audit.report.render import render

SCHEMA_VERSION = 1


def to_json(result: Mapping[str, Any], command: Sequence[str]) -> str:
    """`result` in the envelope all JSON has. ASCII only, so no text from a file reaches the terminal raw."""
    envelope = {
        "schema_version": SCHEMA_VERSION,
        "tool": {"name": "drafter-audit", "version": __version__},
        "command": ["drafter-audit", *command],
    }
    text = StringIO()
    # Piece by piece: a large target has 100,000 tensors, and json.dumps first makes a list of all pieces.
    text.writelines(json.JSONEncoder(indent=2, allow_nan=False).iterencode({**envelope, **result}))
    text.write("\n")
    return text.getvalue()


def emit(
    document: Document, result: Mapping[str, Any], *, style: str, output: str | None, command: Sequence[str]
) -> None:
    """Write one result in `style` to `output`, stdout where that is None. Of several ranks the first does, alone.

    A reader of stdout that left, as `| head` does, has what it wanted: the command goes on to its own exit code.
    """
    if not Rank.here().first:
        return
    text = to_json(result, command) if style == "json" else render(document, style)
    try:
        if output is None:
            sys.stdout.write(text)
            sys.stdout.flush()
        else:
            Path(output).write_text(text, encoding="utf-8")
    except BrokenPipeError:
        _let_go_of_stdout()
    except OSError as error:
        raise _cannot_write(error, output) from None


def tell(remark: str) -> None:
    """One line on stderr about a result that was written: stdout is data, stderr is talk."""
    if Rank.here().first:
        sys.stderr.write(f"note: {escape(remark)}\n")


def _let_go_of_stdout() -> None:
    """What is still held for it, Python writes at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EIO)
"""The disk's failures, which another name would not mend."""


def _cannot_write(error: OSError, output: str | None) -> AuditError:
    what = f"cannot write: {error.strerror}"
    if output is not None and error.errno not in _FULL:
        return UsageError(what, output, "choose another file for -o")
    return AuditError(what, output or "stdout", "make room, or write elsewhere with -o")
