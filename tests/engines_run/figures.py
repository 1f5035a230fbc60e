"""Figures of a run, for docs/engines.md: ENGINE_FIGURES names the file that keeps them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


def keep(name: str, result: dict[str, Any]) -> None:
    """One result of `bench` or `sweep`, without what is of this machine alone but for its speeds."""
    if "ENGINE_FIGURES" not in os.environ:
        return
    path = Path(os.environ["ENGINE_FIGURES"])
    kept = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    rows = [*result.get("plain", []), *result["rows"]] if "rows" in result else [result]
    kept[name] = [_row(row, result) for row in rows]
    path.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def _row(row: dict[str, Any], result: dict[str, Any]) -> dict[str, Any]:
    told = {key: row.get(key) for key in ("steps", "rounds", "accepted", "accept_len", "tokens_per_s")}
    reference = result.get("reference") or {}
    beside = {key: reference.get(key) for key in ("release", "differs", "accept_len", "difference", "claim_cost")}
    return {**told, "verdict": result.get("verdict"), "reference": beside if reference else None}
