"""`wiring` where torchrun splits the target: rank 0 records and searches, all ranks decode what it found."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import drafter_audit
from tests.planted import planted
from tests.test_target_ranks import torchrun

PACK = Path(drafter_audit.__file__).with_name("prompts") / "pack.jsonl"


@pytest.mark.slow
def test_what_rank_0_finds_all_ranks_confirm_live(tmp_path: Path) -> None:
    """Without --keep: the recording lies in rank 0's temporary folder, which the others do not see."""
    prompts, drafter, output = tmp_path / "prompts.jsonl", tmp_path / "drafter", tmp_path / "told.json"
    prompts.write_text("".join(PACK.read_text(encoding="utf-8").splitlines(keepends=True)[::6]))
    drafter.mkdir()
    asked = ("wiring", planted(drafter, "slot 2 -1"), "--target", "tiny-target", "--prompts", str(prompts))
    how = ("--max-new-tokens", "40", "--confirm-live", "--format", "json", "-o", str(output))
    code, stdout, stderr, _ = torchrun(*asked, *how, module="drafter_audit")
    assert (code, stdout) == (1, ""), stderr
    assert "rank 1" not in stderr.replace("local_rank: 0", "")
    told = json.loads(output.read_text())
    live = {one["wiring"]: one["accept_len"] for one in told["live"]}
    assert told["verdict"] == "miswired"
    assert live["best"] == pytest.approx(told["profile"]["accept_len"], abs=0.02)
    assert live["declared"] < live["best"]
