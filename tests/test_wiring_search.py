"""The search on the reference pair: a healthy drafter is blamed for nothing, planted faults are found and named.

Faults are planted in checkpoints (tests/planted.py); what a drafter was trained with is known from its training.
"""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from drafter_audit.audit.damage import PROVEN
from drafter_audit.errors import CannotRunError
from drafter_audit.recording.open import open_recording
from drafter_audit.recording.prompt_file import read_prompt
from drafter_audit.recording.store import begin
from drafter_audit.wiring import controls
from drafter_audit.wiring.evidence import Damage, Evidence
from drafter_audit.wiring.hypotheses import hypotheses, moved
from drafter_audit.wiring.probe import open_probe
from drafter_audit.wiring.search import search
from drafter_audit.wiring.verdict import judged
from tests.planted import TINY, planted

TRAINED = [2, 6, 9]
ONE_BACK = [1, 5, 8]

# What is planted: the knob, what the config then declares, and what is true.
SINGLE = {
    "ids -1": ("boundaries", ONE_BACK, TRAINED),
    "fc columns 0 1 swapped": ("slot_order", TRAINED, [6, 2, 9]),
    "yarn": ("rope_scaling", {"factor": 32.0, "original_max_position_embeddings": 1024.0, "type": "yarn"}, None),
    "absolute d2t": ("vocab_map", "offset", "absolute"),
}
MORE = {
    "no last norm": ("final_norm", False, True),
    "fc_norm": ("pre_fc_norm", "per_state", "none"),
    "embedding in slot 0": ("boundaries", [0, 6, 9], TRAINED),
    "slot 0 +1": ("boundaries", [3, 6, 9], TRAINED),
    "ids +1": ("boundaries", [4, 8, 11], TRAINED),
    "slot 1 -2": ("boundaries", [2, 4, 9], TRAINED),
    "slot 2 -1": ("boundaries", [2, 6, 8], TRAINED),
    "last layers": ("boundaries", [10, 11, 12], TRAINED),
    "fc columns reversed": ("slot_order", TRAINED, [9, 6, 2]),
    "theta 1e6": ("rope_theta", 1e6, 1e4),
    "theta 500000": ("rope_theta", 5e5, 1e4),
    "attention halves swapped": ("concat", "embedding_first", "hidden_first"),
    "norm_before_fc": ("pre_fc_norm", "whole", "none"),
    "norm_before_residual": ("residual", "post_norm", "pre_norm"),
    "norm_output": ("feedback", "post_norm", "pre_norm"),
}
PAIRS = [("norm_output", "theta 1e6")]
MORE_PAIRS = [
    ("norm_before_residual", "ids -1"),
    ("norm_before_fc", "slot 2 -1"),
    ("theta 1e6", "ids +1"),
    ("absolute d2t", "ids -1"),
    ("attention halves swapped", "slot 0 +1"),
    ("norm_output", "ids +1"),
    ("no last norm", "theta 500000"),
    ("yarn", "slot 1 -2"),
    ("fc columns 0 1 swapped", "norm_before_residual"),
    ("fc_norm", "embedding in slot 0"),
    ("absolute d2t", "norm_before_residual"),
]
EVERY = SINGLE | MORE


@pytest.fixture(scope="module")
def healthy(tiny_recording):
    return search(open_probe(str(TINY), tiny_recording))


def blamed(found):
    return [(fault.knob, told["from"], told["to"]) for fault in found.faults if (told := fault.to_dict())]


def test_a_healthy_drafter_is_blamed_for_nothing(healthy):
    assert healthy.inconclusive is None
    assert (healthy.faults, healthy.path) == ((), ())
    assert healthy.best == healthy.declared
    assert not any(one.confirmed for one in healthy.hypotheses)


def test_each_slot_is_best_where_it_was_trained(healthy):
    assert [curve.best for curve in healthy.slots] == TRAINED == [curve.declared for curve in healthy.slots]
    for curve in healthy.slots:
        assert None not in curve.kl_curve + curve.accept_len_curve
        assert curve.kl_curve[curve.declared] == pytest.approx(healthy.declared.kl)


def test_its_figures_are_those_of_the_pairs_own_measures(healthy):
    """reference_models/tiny/log/measures.json was measured by the trainer's code on three times the prompts."""
    log = json.loads((TINY.parent / "log/measures.json").read_text())["faults"]
    (right,) = [fault for fault in log if fault["name"] == "as trained"]
    assert healthy.declared.kl == pytest.approx(right["kl"], abs=0.03)
    assert healthy.declared.accept_len == pytest.approx(right["accept_len"], abs=0.3)


def test_controls_score_as_chance_does_and_taps_are_worth_much(healthy):
    assert healthy.control.accept_len <= 1.1
    assert healthy.control.identity_map is not None
    assert healthy.taps_worth.kl > 1
    assert healthy.taps_worth.accept_len > 0.5


def test_what_computes_the_same_is_named_once_and_not_as_a_fault(healthy):
    same = {each.knob for each in healthy.not_observable if "computes the same" in each.reason}
    assert {"position_offset", "embedding_scale", "embedding"} <= same
    assert not same & {one.knob for one in healthy.hypotheses}


def test_what_the_file_cannot_be_run_with_is_listed_with_the_reason(healthy):
    reasons = {(each.knob, str(each.value)): each.reason for each in healthy.not_observable}
    assert "input_norm.weight" in reasons["pre_fc_norm", "whole"]
    assert "1024 rows under a vocabulary map of [400]" in reasons["head", "target"]
    assert "last state" in reasons["last_state", "post_norm"]


def test_every_knob_is_tried_or_listed(healthy):
    from drafter_audit.drafter.wiring import KNOBS

    assert {one.knob for one in (*healthy.hypotheses, *healthy.not_observable)} == set(KNOBS)


def test_its_json_has_the_fields_that_others_rely_on(healthy):
    told = json.loads(json.dumps(healthy.to_dict(), allow_nan=False))
    assert {"declared", "best", "faults", "slots", "hypotheses", "not_observable", "control", "taps_worth"} <= set(told)
    assert {"wiring", "kl", "accept_len", "interval"} <= set(told["declared"])
    names = {"name", "knob", "value", "kl", "delta_kl", "delta_kl_interval", "accept_len", "delta_accept_len"}
    assert names | {"delta_accept_len_interval", "positions", "rounds", "confirmed"} <= set(told["hypotheses"][0])
    assert {"slot", "declared", "best", "kl_curve", "accept_len_curve"} <= set(told["slots"][0])


@pytest.mark.parametrize("name", SINGLE)
def test_a_planted_fault_is_found_and_named(tmp_path, tiny_recording, healthy, name):
    found_as_planted(tmp_path, tiny_recording, healthy, [name])


@pytest.mark.slow
@pytest.mark.parametrize("name", MORE)
def test_more_planted_faults_are_found_and_named(tmp_path, tiny_recording, healthy, name):
    found_as_planted(tmp_path, tiny_recording, healthy, [name])


@pytest.mark.parametrize("names", PAIRS, ids=" and ".join)
def test_two_faults_are_found_as_two(tmp_path, tiny_recording, healthy, names):
    found_as_planted(tmp_path, tiny_recording, healthy, names)


@pytest.mark.slow
@pytest.mark.parametrize("names", MORE_PAIRS, ids=" and ".join)
def test_more_pairs_of_faults_are_found_as_two(tmp_path, tiny_recording, healthy, names):
    found_as_planted(tmp_path, tiny_recording, healthy, names)


def found_as_planted(folder, recording, healthy, names):
    """Blamed is what was planted, and under the best wiring the drafter is as good as the healthy one."""
    found = search(open_probe(planted(folder, *names), recording))
    assert sorted(map(str, blamed(found))) == sorted(str(EVERY[name]) for name in names)
    assert found.best.kl == pytest.approx(healthy.declared.kl, abs=1e-4)
    assert found.best.accept_len == pytest.approx(healthy.declared.accept_len, abs=0.01)
    for fault in found.faults:
        assert fault.kl_interval[0] > 0
        assert fault.kl_after < fault.kl_before
        assert fault.costs == (fault.knob != "final_norm")  # which changes how sure it is, not what it drafts
        assert fault.steps == ("later" if fault.knob == "feedback" else "first")
    told = found.to_dict()["faults"]
    assert all({"knob", "from", "to", "kl_before", "kl_after", "interval", "costs"} <= set(one) for one in told)


def test_what_a_fault_costs_is_that_of_the_prompts_that_have_the_states_of_both(tmp_path, tiny_recording):
    """The last two prompts of each half lack what slot 0 was trained on: of them the fault's cost is not known."""
    probe = open_probe(planted(tmp_path, "slot 0 +1"), tiny_recording)
    *_, rest, confirm = probe.corpus.groups
    lacking = {*rest[-2:], *confirm[-2:]}
    found = search(open_probe(str(tmp_path), without_a_boundary(tmp_path / "rec", tiny_recording, 2, lacking)))
    (fault,) = found.faults
    known = ~np.isin(probe.corpus.prompt_of, list(lacking))
    for wiring, kl, length in (
        (probe.declared, fault.kl_before, fault.accept_len_before),
        (moved(probe.declared, 0, 2), fault.kl_after, fault.accept_len_after),
    ):
        score = probe.whole(wiring)
        assert kl == pytest.approx(score.kl[0][known].mean(), rel=1e-6)
        assert length == pytest.approx(1 + score.accepted[known].mean(), rel=1e-6)
    json.dumps(found.to_dict(), allow_nan=False)


def without_a_boundary(folder, recording, boundary, lacking):
    """`recording`, in which the prompts numbered `lacking` have no states at `boundary`."""
    manifest = recording.manifest
    kept = tuple(each for each in manifest.boundaries if each != boundary)
    store = begin(folder, replace(manifest, boundaries=kept, answers=()))
    for place, prompt in enumerate(recording.prompts()):
        file = recording.folder / manifest.answers[place].file
        store.add(place, read_prompt(file, kept) if place in lacking else prompt)
    store.finish()
    return open_recording(folder)


def test_too_few_prompts_blame_nothing_and_say_how_many_it_takes(tmp_path, tiny_recording):
    manifest = tiny_recording.manifest
    few = replace(tiny_recording, manifest=replace(manifest, answers=manifest.answers[:12], count=12))
    found = search(open_probe(planted(tmp_path, "ids -1"), few))
    assert found.faults == ()
    assert found.inconclusive == "12 answers of two tokens or more: at least 16 are needed, half to confirm on"
    right = next(one for one in found.hypotheses if one.value == TRAINED)
    assert right.outcome == "indistinguishable"
    assert right.prompts_needed >= 16


def test_a_gain_below_the_least_asked_for_is_blamed_on_nothing(tmp_path, tiny_recording):
    """Slot 0 a layer late is worth a third of KL: sure, and less than nine tenths. More prompts change nothing."""
    found = search(open_probe(planted(tmp_path, "slot 0 +1"), tiny_recording), min_gain=0.9)
    right = next(one for one in found.hypotheses if one.value == TRAINED)
    assert found.faults == ()
    assert right.delta_kl_interval[1] < 0
    assert (right.outcome, right.prompts_needed) == ("indistinguishable", None)


def test_a_control_above_chance_breaks_off(tiny_recording, monkeypatch):
    """The bound is lowered under what chance gives: no drafter here accepts without its map or head."""
    monkeypatch.setattr(controls, "CHANCE", 0.9)
    with pytest.raises(CannotRunError, match=r"a control with permuted head rows has accept_len .*the check is broken"):
        controls.control(open_probe(str(TINY), tiny_recording))


@pytest.mark.parametrize(
    ("above", "name", "todo"),
    [
        (0.0, "inconclusive", "ask for another --min-accept-len"),
        (0.1, "inconclusive", "record about 80 prompts"),  # twice as far as that the interval ends: 4 * 20 prompts
        (0.21, "undertrained", "train"),
        (-0.2, "healthy", None),
    ],
)
def test_accept_len_is_held_to_what_is_asked_as_the_gate_holds_it(healthy, above, name, todo):
    best = replace(healthy.best, accept_len=3.0, interval=(2.8, 3.2))
    found = replace(healthy, declared=best, best=best)
    verdict = judged(Evidence(found, None, min_accept_len=3.0 + above, answers=20))
    assert verdict.name == name
    assert [todo] * bool(todo) == [todo for each in verdict.todo if each.startswith(todo)]


@pytest.mark.parametrize(("code", "name"), [("EMB-UNRELATED", "healthy"), ("EMB-ZERO", "damaged"), (None, "damaged")])
def test_an_embedding_that_it_was_trained_with_is_no_damage(healthy, code, name):
    """Whatever lint says of it, as long as the target's does worse. What else is broken stays so."""
    own = replace(healthy.best, wiring=replace(healthy.best.wiring, embedding="own"))
    tried = replace(healthy.hypotheses[0], knob="embedding", value="target", outcome="worse")
    found = replace(healthy, declared=own, best=own, hypotheses=(tried,))
    assert judged(Evidence(found, None, damage=(Damage("it is another", code),), answers=20)).name == name
    assert code is None or code in PROVEN


def test_no_hypothesis_stands_twice_and_each_engine_is_asked(tiny_recording):
    probe = open_probe(str(TINY), tiny_recording)
    made, _ = hypotheses(probe.scope, probe.declared)
    assert len({repr(one.wiring) for one in made}) == len(made)
    assert all(one.wiring != probe.declared for one in made)


def test_slots_over_boundaries_that_were_recorded_alone(tiny_recording):
    probe = open_probe(str(TINY), tiny_recording)
    scope = replace(probe.scope, recorded=(2, 5, 6, 9))
    made, hidden = hypotheses(scope, probe.declared)
    assert {b for one in made for b in one.wiring.boundaries} <= {2, 5, 6, 9}
    assert next(one for one in hidden if one.knob == "boundaries").value == [0, 1, 3, 4, 7, 8, 10, 11, 12]
