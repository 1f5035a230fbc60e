"""Writes docs/findings.md: every code that a finding may bear, from the tables beside the rules.

Run it after a change to a code: `python docs/generate_findings.py`. tests/test_findings.py tells when it was forgotten.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from textwrap import fill
from types import ModuleType

from drafter_audit.audit.code import Code
from drafter_audit.audit.rules import MODULES

PAGE = Path(__file__).with_name("findings.md")
WIDTH = 120

HEAD = """\
# Findings

This page is generated from the rules by `python docs/generate_findings.py`. Do not edit it.

A finding says one thing that is wrong with a drafter, or that a reader of it should know: what was found, in which file
and under which key, on what evidence, what follows from it, and the edit that mends it where a config can. Its code is
stable: scripts may rely on it. Under the code this page tells why nobody notices without being told.

| severity | meaning |
|---|---|
| error | some engine will not load it, or will compute something else than was trained |
| warning | it depends on the engine, or on something that the files do not tell |
| info | nothing is wrong by itself; it explains a number, or a thing that was not checked |

A code that comes in more than one severity lists them, the usual one first.
"""
_LABELS = (("silent", "Why it is silent"), ("evidence", "Evidence"), ("fix", "Fix"), ("source", "Source"))
_URL = re.compile(r"https://[^\s;,]+")


def page() -> str:
    """The text of docs/findings.md."""
    parts = [HEAD, "## Index\n", "\n".join(_index())]
    for module in MODULES:
        parts.append(f"## {theme(module)}\n")
        parts += [_section(code) for code in module.CODES]
    return "\n".join(parts)


def theme(module: ModuleType) -> str:
    """The first sentence of a module's docstring, up to its colon: what its codes have in common."""
    return re.split(r"[:.](?:\s|$)", module.__doc__ or "", maxsplit=1)[0]


def _index() -> Iterator[str]:
    for module in MODULES:
        yield f"{theme(module)}:\n"
        yield "| code | severity | what |\n|---|---|---|"
        for code in module.CODES:
            yield f"| [{code.name}](#{code.name.lower()}) | {', '.join(code.severities)} | {code.what} |"
        yield ""


def _section(code: Code) -> str:
    lines = [f"### {code.name}\n", fill(f"{code.what} ({', '.join(code.severities)})", WIDTH), ""]
    lines += [_bullet(label, getattr(code, field)) for field, label in _LABELS]
    return "\n".join(lines) + "\n"


def _bullet(label: str, text: str) -> str:
    linked = _URL.sub(r"<\g<0>>", text).replace("*", r"\*").replace("__", r"\_\_")
    return fill(f"- {label}: {linked}", WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
