"""Cases of audit/rules/target_tables.py: the target's embedding and head, by their headers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from drafter_audit.audit.lint import Lint, lint
from tests.checkpoints import KIMI_CONFIG, kimi_tensors, write_checkpoint
from tests.findings.case import Build, Case
from tests.findings.engines import KIMI_TARGET


def kimi_on(rows: int, width: int) -> Build:
    """The drafter of Kimi-K2, which borrows the embedding, on a target whose tables have that shape."""

    def build(folder: Path) -> Lint:
        tables: Any = {f"{name}.weight": ("BF16", (rows, width)) for name in ("model.embed_tokens", "lm_head")}
        target = write_checkpoint(folder / "target", KIMI_TARGET, tables)
        return lint(write_checkpoint(folder / "drafter", KIMI_CONFIG, kimi_tensors()), target=target,
                    level="target_headers")  # fmt: skip

    return build


PADDED = kimi_on(163840 + 64, 7168)  # rows that no token has: harmless

CASES = (
    Case("TABLE-ROWS", fires=kimi_on(129280, 7168), silent=PADDED),
    Case("TABLE-WIDTH", fires=kimi_on(163840, 4096), silent=PADDED),
)
