"""`wiring` on drafters of every kind that runs, and on sampled answers: a verdict, or one line that says why not.

The drafters have random weights, so all that can be said of them is that they draft at chance.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

import drafter_audit
from drafter_audit.cli.main import main
from drafter_audit.drafter.wiring import HiddenNorm
from drafter_audit.wiring.probe import open_probe
from tests.planted import TINY
from tests.random_drafters import EAGLE1, LLAMA, MLA, write_random

PACK = Path(drafter_audit.__file__).with_name("prompts") / "pack.jsonl"
SIZES = {"hidden_size": 128, "vocab_size": 1024}
FUSING = SIZES | {"target_hidden_size": 128, "draft_vocab_size": 1024}
NO_STATES = {"eagle_config": {"use_aux_hidden_state": False}}


def of_the_pair(folder: Path, config: dict[str, Any], kind: str) -> str:
    """A random drafter as wide as the reference target."""
    ref, _ = write_random(folder, config, kind)
    (folder / "drafter-audit.toml").write_text((TINY / "drafter-audit.toml").read_text())
    return ref


@pytest.mark.parametrize(
    ("config", "kind"),
    [
        pytest.param(LLAMA | FUSING, "eagle3", marks=pytest.mark.slow),
        (MLA | FUSING, "eagle3_mla"),
        pytest.param(LLAMA | FUSING | {"num_hidden_layers": 2}, "eagle3", marks=pytest.mark.slow),
        pytest.param(EAGLE1 | SIZES, "eagle1", marks=pytest.mark.slow),
    ],
    ids=["one layer", "latent attention", "two layers", "EAGLE-1"],
)
def test_an_untrained_drafter_is_called_damaged_whatever_its_layers(tmp_path, tiny_recording, config, kind):
    drafter, file = of_the_pair(tmp_path / "drafter", config, kind), tmp_path / "told.json"
    how = ("--recording", str(tiny_recording.folder), "--format", "json", "-o", str(file))
    assert main(["wiring", drafter, *how]) == 1
    told = json.loads(file.read_text())
    assert told["verdict"] == "damaged"
    assert any("drafts at chance" in reason for reason in told["reasons"])
    assert not any("not the one it was trained with" in reason for reason in told["reasons"])
    assert len(told["hypotheses"]) > 20


def test_a_knob_that_nothing_tells_is_taken_as_it_does_best_and_that_is_said(tmp_path, tiny_recording):
    """Without aux states and without hidden_norm: engines differ on whether one of ones stands there."""
    probe = open_probe(of_the_pair(tmp_path / "drafter", LLAMA | FUSING | NO_STATES, "eagle3_noaux"), tiny_recording)
    wirings = {value: replace(probe.declared, hidden_norm=value) for value in get_args(HiddenNorm)}
    kl = {value: probe.score(probe.under(wiring), (0, 1)).kl[0] for value, wiring in wirings.items()}
    mean = {value: kls[~np.isnan(kls)].mean() for value, kls in kl.items()}
    assert mean[probe.declared.hidden_norm] == min(mean.values())
    assert probe.assumed.startswith("nothing tells hidden_norm")
    assert probe.assumed.endswith(f"taken for declared: hidden_norm {probe.declared.hidden_norm}")


@pytest.mark.slow
def test_sampled_answers_tell_the_same_wiring(tmp_path):
    prompts, folder, file = tmp_path / "prompts.jsonl", tmp_path / "rec", tmp_path / "told.json"
    prompts.write_text("".join(PACK.read_text(encoding="utf-8").splitlines(keepends=True)[::4]))
    how = ("--prompts", str(prompts), "--boundaries", "all", "--max-new-tokens", "48", "--temperature", "0.8")
    assert main(["record", "--target", "tiny-target", *how, "-o", str(folder)]) == 0
    assert main(["wiring", "tiny", "--recording", str(folder), "--format", "json", "-o", str(file)]) == 0
    told = json.loads(file.read_text())
    assert (told["verdict"], told["faults"], told["recording"]["temperature"]) == ("healthy", [], 0.8)
    assert [slot["best"] for slot in told["slots"]] == [2, 6, 9]
