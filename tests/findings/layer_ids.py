"""Cases of audit/rules/layer_ids.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from drafter_audit.audit.lint import Lint, lint
from tests.checkpoints import KIMI_CONFIG, kimi_tensors, write_checkpoint
from tests.findings.case import Case


def _kimi(folder: Path, ids: list[int] | None) -> Lint:
    eagle: dict[str, Any] = {"use_aux_hidden_state": True}
    eagle |= {} if ids is None else {"eagle_aux_hidden_state_layer_ids": ids}
    ref = write_checkpoint(folder, {**KIMI_CONFIG, "eagle_config": eagle}, kimi_tensors())
    return lint(ref)


CASES = (
    Case("IDS-MISSING", fires=lambda folder: _kimi(folder, None), silent=lambda folder: _kimi(folder, [1, 29, 57])),
)
