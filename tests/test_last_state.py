"""Drafters that read the last state behind the target's final norm: replayed as they run live."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from drafter_audit import load_drafter, open_drafter
from drafter_audit.decode.live import decode_live
from drafter_audit.decode.replay import replay
from drafter_audit.decode.settings import Settings
from drafter_audit.drafter.wiring import Wiring, declared_wiring
from drafter_audit.errors import CannotRunError
from drafter_audit.model.target.load import load_target
from drafter_audit.recording.make import Settings as Kept
from drafter_audit.recording.make import record
from drafter_audit.recording.open import open_recording
from drafter_audit.recording.recording import Recording
from drafter_audit.wiring.corpus import Corpus
from drafter_audit.wiring.hypotheses import Scope, hypotheses
from drafter_audit.wiring.score import Score, run
from drafter_audit.wiring.taps import Taps
from tests.live_pairs import NARROW, narrow_prompts
from tests.random_drafters import EAGLE1, write_random
from tests.tiny_targets import LAYERS, write_family

NEW, STEPS = 24, 3


def eagle1(folder: Path) -> tuple[str, Wiring]:
    ref, _ = write_random(folder, EAGLE1 | {"vocab_size": NARROW}, "eagle1")
    declared = declared_wiring(open_drafter(ref))
    assert declared is not None
    assert declared.last_state == "post_norm"
    return ref, replace(declared, boundaries=(LAYERS,), embedding="own", head="embedding")


def without_it(recording: Recording) -> Recording:
    """As it was recorded before that state was kept."""
    return replace(recording, manifest=replace(recording.manifest, last_normed=False))


@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_a_replay_counts_what_the_live_loop_counts(family: str, tmp_path: Path) -> None:
    """RMSNorm with a gain, and with a gain of one more than what is stored."""
    target = load_target(write_family(family, tmp_path / "target", vocab_size=NARROW, pad_token_id=None))
    ref, wiring = eagle1(tmp_path / "drafter")
    prompts, drafter = narrow_prompts(12), load_drafter(ref, wiring=wiring)
    record(target, prompts, tmp_path / "rec", Kept((0, LAYERS), max_new_tokens=NEW, lookahead=STEPS))
    recording = open_recording(tmp_path / "rec")
    found = replay(drafter, recording, STEPS)
    assert found.counts() == decode_live(drafter, target, prompts, Settings(STEPS, NEW, plain=False)).counts
    assert sum(counts.accepted for counts in found.counts()) > 0
    before = replay(load_drafter(ref, wiring=replace(wiring, last_state="pre_norm")), recording, STEPS)
    assert any(not torch.equal(a.drafts, b.drafts) for a, b in zip(found.prompts, before.prompts, strict=True))
    assert accepted(drafter, recording).tolist() == [n for one in found.prompts for n in one.matches.tolist()]
    with pytest.raises(CannotRunError, match="this recording holds it before that alone"):
        replay(drafter, without_it(recording), STEPS)


def accepted(drafter, recording):
    """Of each start, prompt after prompt, as the wiring check counts it."""
    corpus = Corpus.of(recording, torch.device("cpu"))
    score = Score.empty(STEPS, len(corpus.prompt_of))
    for pack in (pack for group in range(3) for pack in corpus.packs(group)):
        run(drafter, pack, Taps(pack, NARROW), score)
    return score.accepted[np.argsort(corpus.prompt_of, kind="stable")]


def test_the_side_of_the_norm_is_tried_where_both_are_recorded(tmp_path: Path) -> None:
    ref, wiring = eagle1(tmp_path)
    before, spec = replace(wiring, last_state="pre_norm"), open_drafter(ref)
    for base, both, other in ((wiring, True, "pre_norm"), (before, True, "post_norm"), (before, False, None)):
        tried, hidden = hypotheses(Scope(spec, LAYERS, (LAYERS,), both), base)
        assert {one.wiring.last_state for one in tried} - {base.last_state} == ({other} - {None})
        reasons = [one.reason for one in hidden if one.knob == "last_state"]
        assert reasons == ([] if both else ["this recording holds it before the final norm alone"])
