"""Cases of audit/rules/index.py: Kimi's drafter in two shards."""

from __future__ import annotations

from pathlib import Path

from drafter_audit.audit.lint import Lint, lint
from tests.checkpoints import Tensors
from tests.findings.case import Build, Case
from tests.shards import BYTES, FIRST, SECOND, STORED, halves, index_of, write_shards

Shards = dict[str, Tensors]


def _shards(*, listed: dict[str, str | None] | None = None, total: object = BYTES, more: Shards | None = None) -> Build:
    """The two shards and `more`, with an index of the two that gives other files for some names (None: none)."""

    def build(folder: Path) -> Lint:
        index = index_of(halves(), total)
        index["weight_map"] |= listed or {}
        index["weight_map"] = {name: file for name, file in index["weight_map"].items() if file is not None}
        return lint(str(write_shards(folder, {**halves(), **(more or {})}, index)))

    return build


def _twice() -> Shards:
    return {SECOND: {**halves()[SECOND], "fc.weight": STORED["fc.weight"]}}


CASES = (
    Case("INDEX-ABSENT", fires=_shards(listed={"layers.7.weight": SECOND}), silent=_shards()),
    Case("INDEX-MISPLACED", fires=_shards(listed={"fc.weight": SECOND}), silent=_shards(listed={"fc.weight": FIRST})),
    # A file outside the series is another thing: an adapter, say.
    Case(
        "INDEX-UNLISTED",
        fires=_shards(more={"model-00003-of-00003.safetensors": {"x": ("BF16", (2,))}}),
        silent=_shards(more={"adapter.safetensors": {"x": ("BF16", (2,))}}),
    ),
    Case("INDEX-UNLISTED", fires=_shards(listed={"norm.weight": None}), silent=_shards()),
    Case("INDEX-DUPLICATE", fires=_shards(more=_twice()), silent=_shards()),
    # Some writers give a float, some nothing.
    Case("INDEX-TOTAL", fires=_shards(total=BYTES + 1), silent=_shards(total=float(BYTES))),
    Case("INDEX-TOTAL", fires=_shards(total="2.2 GB"), silent=_shards(total=None)),
)
