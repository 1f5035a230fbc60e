"""The benchmark of the network measures what it says: a warm worker gives the drafter's logits, and peers are named."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from benchmarks.network import BOUND, Row, Worker, as_json, as_table, farthest, main, write_checkpoint, write_inputs
from benchmarks.network_worker import INPUTS
from drafter_audit import load_drafter, open_drafter

SMALL = {
    "hidden_size": 32,
    "intermediate_size": 40,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "vocab_size": 60,
    "draft_vocab_size": 24,
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_inputs(write_checkpoint(tmp_path, **SMALL), 12)
    return tmp_path


def test_a_warm_worker_gives_the_drafters_logits(folder: Path) -> None:
    inputs, saved = load_file(folder / INPUTS), folder / "logits.safetensors"
    worker = Worker(sys.executable, folder, "ours")
    try:
        assert worker.forward(12, 1).wall > 0
        assert worker.forward(9, 3, saved).cpu > 0
    finally:
        worker.close()
    expected = load_drafter(str(folder)).unroll(inputs["ids"][:9], inputs["states"][:, :9], 3)
    assert farthest(load_file(saved)["logits"], expected) < 1e-6


def test_what_is_timed_is_an_eagle_3_drafter(folder: Path) -> None:
    assert open_drafter(str(folder)).kind.name == "eagle3"


def test_a_worker_that_fails_ends_the_run_with_its_last_words(folder: Path) -> None:
    with pytest.raises(SystemExit, match="nobody ended with 1: KeyError: 'nobody'"):
        Worker(sys.executable, folder, "nobody")


def test_logits_are_compared_where_there_are_tokens() -> None:
    """Past the end of the text, peers differ among themselves; before it, what is above one counts as a share."""
    ours = torch.zeros(2, 3, 4)
    theirs = ours.clone()
    theirs[1, 2] = 5.0
    assert farthest(ours, theirs) == 0.0
    theirs[1, 1, 0] = 0.5
    assert farthest(ours, theirs) == pytest.approx(0.1)


@pytest.mark.parametrize("word", ["specforge", "specforge=", "nobody=/usr/bin/python3"])
def test_a_peer_is_named_with_its_python(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["--peer", word])
    assert "NAME=PYTHON" in capsys.readouterr().err


def test_without_a_peer_the_bound_is_not_said_to_hold() -> None:
    about = {"runs": 5, "machine": "here", "load": 0.0, "modules": ["ours"]}
    rows = [Row(256, 1, 70.0, 40.0)]
    assert f"no peer was named (--peer or DRAFTER_AUDIT_PEERS): our own times only, the bound of {BOUND} is not" in (
        as_table(rows, about)
    )
    assert json.loads(as_json(rows, about))["rows"][0]["ok"] is None


@pytest.mark.parametrize(("ratio", "apart", "ok"), [(1.2, 1e-6, True), (1.3, 1e-6, False), (0.5, 1e-3, False)])
def test_a_row_holds_where_the_time_and_the_logits_do(ratio: float, apart: float, ok: bool) -> None:
    assert Row(256, 1, 70.0, 40.0, "peer", 70.0, ratio, 9.0, apart).ok is ok
