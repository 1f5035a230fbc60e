"""A drafter that was trained beside the wrong token is found out, although its checkpoint declares nothing unusual."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

import drafter_audit
from drafter_audit import open_drafter
from drafter_audit.cli.main import main
from drafter_audit.drafter.wiring import declared_wiring
from drafter_audit.recording.open import open_recording
from drafter_audit.wiring.probe import open_probe
from drafter_audit.wiring.search import search
from tests.planted import TINY, planted
from tests.tuned import tuned

PACK = Path(drafter_audit.__file__).with_name("prompts") / "pack.jsonl"


@pytest.mark.slow
def test_training_beside_the_token_that_is_to_be_drafted_is_found(tmp_path, tiny_recording):
    """The loss falls fast where the answer is given away. Served, there is no such token: no edit gives it."""
    prompts, folder, drafter = tmp_path / "prompts.jsonl", tmp_path / "rec", tmp_path / "drafter"
    prompts.write_text("".join(PACK.read_text(encoding="utf-8").splitlines(keepends=True)[1::2]))
    how = ("--prompts", str(prompts), "--boundaries", "2,6,9", "--max-new-tokens", "64")
    assert main(["record", "--target", "tiny-target", *how, "-o", str(folder)]) == 0
    wiring = replace(declared_wiring(open_drafter(str(TINY))), token_shift=2)
    trained = tuned(tmp_path / "tuned", open_recording(folder), wiring, steps=60)
    drafter.mkdir()
    wrong = planted(drafter, of=trained)
    found = search(open_probe(wrong, tiny_recording))
    assert [(fault.knob, fault.declared, fault.trained) for fault in found.faults] == [("token_shift", 1, 2)]
    options = ("--target", "tiny-target", "--prompts", str(prompts), "--max-new-tokens", "48", "--confirm-live")
    file = tmp_path / "told.json"
    assert main(["wiring", wrong, *options, "--format", "json", "-o", str(file)]) == 1
    told = json.loads(file.read_text())
    declared, best = told["live"]
    assert (told["verdict"], best["accept_len"]) == ("miswired", None)
    assert best["not_run"] == "token_shift 2 cannot be run step by step"
    assert declared["accept_len"] >= 1
