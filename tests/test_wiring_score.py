"""A wiring's score against replay, and against the definition computed over whole vocabularies."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from drafter_audit import load_drafter
from drafter_audit.decode.replay import replay
from drafter_audit.drafter.wiring import declared_wiring
from drafter_audit.model.layers import Norm
from drafter_audit.recording.prompt_file import read_prompt
from drafter_audit.wiring.aims import Aims
from drafter_audit.wiring.corpus import Corpus, Pack
from drafter_audit.wiring.probe import open_probe
from drafter_audit.wiring.score import Score, run
from drafter_audit.wiring.taps import Taps
from tests.planted import TINY

STEPS, VOCABULARY = 3, 1024
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def wirings():
    from drafter_audit import open_drafter

    declared = declared_wiring(open_drafter(str(TINY)))
    return {
        "declared": declared,
        "two slots": replace(declared, boundaries=(2, 0, 12)),
        "shift": replace(declared, token_shift=0),
        "rope": replace(declared, rope_theta=1e6),
        "feedback": replace(declared, feedback="post_norm"),
        "map": replace(declared, vocab_map="absolute"),
    }


def packed(prompts):
    return Pack.of(prompts, slice(0, sum(p.answer_length - 1 for p in prompts)), CPU)


def scored(drafter, prompts):
    pack = packed(prompts)
    score = Score.empty(STEPS, pack.rows.stop)
    with torch.no_grad():
        run(drafter, pack, Taps(pack, VOCABULARY), score)
    return score


@pytest.fixture(scope="module")
def prompts(tiny_recording):
    answers = tiny_recording.manifest.answers[:4]
    return [read_prompt(tiny_recording.folder / answer.file) for answer in answers]


@pytest.mark.parametrize("name", ["declared", "two slots", "shift", "rope", "feedback"])
def test_accepted_drafts_are_those_of_replay_at_every_start(tiny_recording, wirings, name):
    probe = open_probe(str(TINY), tiny_recording, steps=STEPS)
    score = probe.whole(wirings[name])
    run_ = replay(load_drafter(str(TINY), wiring=wirings[name]), tiny_recording, STEPS)
    for place, prompt in enumerate(run_.prompts):
        ours = score.accepted[probe.corpus.prompt_of == place]
        assert ours.tolist() == prompt.matches.tolist()


@pytest.mark.parametrize("name", ["declared", "two slots", "feedback", "map"])
def test_kl_is_that_of_the_whole_distributions(prompts, wirings, name):
    """Every logit was recorded, so nothing is left out. Drafts of one target id share its probability."""
    drafter = load_drafter(str(TINY), wiring=wirings[name])
    score, at = scored(drafter, prompts), 0
    assert score.omitted.max() == 0
    for prompt in prompts:
        starts = prompt.answer_length - 1
        expected = plain_kl(drafter, prompt)
        found = score.kl[:, at : at + starts]
        assert np.array_equal(np.isnan(found), np.isnan(expected))
        assert np.nanmax(np.abs(found - expected)) < 2e-3 * max(1.0, np.nanmax(expected))
        at += starts


def plain_kl(drafter, prompt):
    """[steps, starts], NaN past the answer's end; from `unroll` and dense probabilities."""
    starts, first = prompt.answer_length - 1, prompt.prompt_length - 1
    slots = [prompt.boundaries.index(b) for b in drafter.wiring.boundaries]
    states = torch.nn.functional.pad(prompt.states[slots], (0, 0, 0, STEPS)).float()
    said = drafter.unroll(prompt.tokens[1 : 1 + states.shape[1]], states, STEPS)
    ids = drafter.target_ids(torch.arange(said.shape[-1]))
    kl = np.full((STEPS, starts), np.nan)
    for step in range(STEPS):
        for start in range(starts - step):
            row = start + 1 + step
            thought = torch.full((VOCABULARY,), float("-inf"), dtype=torch.float64)
            thought[prompt.top_ids[row].long()] = prompt.top_logits[row].double()
            q = torch.zeros(VOCABULARY, dtype=torch.float64)
            q.index_add_(0, ids, said[step, first + start].double().softmax(-1))
            p = torch.where(q > 0, thought.exp(), 0.0)
            p = p / p.sum()
            kl[step, start] = float(torch.where(p > 0, p * (p.log() - q.log()), 0.0).sum())
    return kl


def test_logits_that_were_not_recorded_move_kl_by_no_more_than_the_bound(prompts, wirings):
    """The bound of aims.py, with its largest ratio taken from the whole distributions."""
    drafter = load_drafter(str(TINY), wiring=wirings["declared"])
    cut = [replace(p, top_ids=p.top_ids[:, :256], top_logits=p.top_logits[:, :256]) for p in prompts]
    whole, part = scored(drafter, prompts), scored(drafter, cut)
    known = ~np.isnan(part.kl[0])
    off = np.abs(whole.kl[0] - part.kl[0])[known]
    assert off.max() > 1e-6  # something was left out
    widest = 40.0  # nats; no ratio of this pair's probabilities is as large
    # What is left out is one less a sum of float32: it is known to that type's last place, and may come out as 0.
    omitted = part.omitted[known] + np.finfo(np.float32).eps
    assert (off <= omitted * (part.kl[0][known] + 1 + widest) + 1e-6).all()
    assert off.mean() < 0.02 * whole.kl[0].mean()


def test_a_position_without_any_known_token_counts_for_no_kl(prompts, wirings):
    """The one token that is recorded has no draft id at some positions."""
    drafter = load_drafter(str(TINY), wiring=wirings["declared"])
    cut = [replace(p, top_ids=p.top_ids[:, :1], top_logits=p.top_logits[:, :1]) for p in prompts]
    ids = set(drafter.target_ids(torch.arange(400)).tolist())
    held = [int(p.top_ids[row, 0]) in ids for p in prompts for row in range(1, p.answer_length)]
    score = scored(drafter, cut)
    assert (~np.isnan(score.kl[0])).tolist() == held
    assert not np.isnan(score.accepted).any()


def test_fused_states_are_summed_by_slot_as_the_network_fuses_them(prompts, wirings):
    network = load_drafter(str(TINY), wiring=wirings["declared"]).network
    pack = packed(prompts)
    norms = tuple(Norm(torch.rand(128) + 0.5, 1e-6) for _ in range(3))
    whole = Norm(torch.rand(384) + 0.5, 1e-6)
    variants = [network, replace(network, fc_norms=norms), replace(network, fc_norms=norms, input_norm=whole)]
    for variant in variants:
        taps = Taps(pack, VOCABULARY)
        for boundaries in ((2, 6, 9), (6, 6, 0), (2, 6, 9)):
            states = torch.stack([pack.states[pack.boundaries.index(b)] for b in boundaries]).float()
            torch.testing.assert_close(taps.fused(variant, boundaries), variant.fuse(states), rtol=1e-4, atol=1e-4)


def test_prompts_side_by_side_score_as_each_alone(prompts, wirings):
    drafter = load_drafter(str(TINY), wiring=wirings["declared"])
    together, alone = scored(drafter, prompts), [scored(drafter, [prompt]) for prompt in prompts]
    np.testing.assert_allclose(together.kl, np.concatenate([each.kl for each in alone], axis=1), atol=1e-4)
    assert together.accepted.tolist() == np.concatenate([each.accepted for each in alone]).tolist()


def test_the_halves_share_no_prompt_and_hold_every_category_alike(tiny_recording):
    corpus = Corpus.of(tiny_recording, CPU)
    race, rest, confirm = corpus.groups
    assert sorted(corpus.order) == list(range(20))
    assert abs(len(race) + len(rest) - len(confirm)) <= 1
    kinds = [{tiny_recording.manifest.answers[p].category for p in half} for half in (race + rest, confirm)]
    assert kinds[0] == kinds[1]
    assert corpus.rows_of(2).stop == len(corpus.prompt_of)


def test_target_ids_outside_the_vocabulary_are_never_right(prompts):
    pack = packed(prompts)
    aims = Aims.of(pack, torch.arange(400) + 10_000, VOCABULARY)
    assert not aims.known.any()
