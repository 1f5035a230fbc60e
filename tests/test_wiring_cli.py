"""`wiring` on the reference pair: whole, and with faults planted in checkpoints that the test writes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

import drafter_audit
from drafter_audit.cli.main import main
from drafter_audit.engines.base import merged
from tests.planted import attention_at_random, planted

PACK = Path(drafter_audit.__file__).with_name("prompts") / "pack.jsonl"
EVERY = 4
TOKENS = "48"
TURNS = '{"turns": ["Write the word yes.", "And now?"]}\n'


def slow(*values):
    return pytest.param(*values, marks=pytest.mark.slow)


def named(value):
    return getattr(value, "__name__", None)


@pytest.fixture(scope="module")
def prompts(tmp_path_factory):
    """24 prompts of the pack, three of each category."""
    lines = PACK.read_text(encoding="utf-8").splitlines()
    file = tmp_path_factory.mktemp("prompts") / "prompts.jsonl"
    file.write_text("\n".join(lines[::EVERY]) + "\n")
    return str(file)


@pytest.fixture(scope="module")
def recording(tmp_path_factory, prompts):
    folder = tmp_path_factory.mktemp("recorded") / "rec"
    how = ("--prompts", prompts, "--boundaries", "all", "--max-new-tokens", TOKENS)
    assert main(["record", "--target", "tiny-target", *how, "-o", str(folder)]) == 0
    return str(folder)


@pytest.fixture(scope="module")
def wiring(recording, tmp_path_factory):
    """Exit code and JSON of `wiring` on the recording."""
    file = tmp_path_factory.mktemp("told") / "told.json"

    def run(drafter: str, *options: str) -> tuple[int, dict[str, Any]]:
        code = main(["wiring", drafter, "--recording", recording, "--format", "json", "-o", str(file), *options])
        return code, json.loads(file.read_text())

    return run


@pytest.fixture(scope="module")
def healthy(wiring):
    return wiring("tiny")


def edited(folder: Path, edit: Mapping[str, Any]) -> str:
    """The drafter in `folder` with the printed edit made."""
    file = folder / "config.json"
    file.write_text(json.dumps(merged(json.loads(file.read_text()), edit)))
    return str(folder)


def faults(told):
    return [fault["knob"] for fault in told["faults"]]


def test_a_whole_drafter_is_healthy(healthy):
    code, told = healthy
    assert (code, told["verdict"], told["faults"]) == (0, "healthy", [])
    assert [slot["best"] for slot in told["slots"]] == [slot["declared"] for slot in told["slots"]] == [2, 6, 9]
    assert told["control"]["accept_len"] <= 1.1 < told["taps_worth"]["accept_len"]


@pytest.mark.parametrize(
    ("plants", "knobs", "to"),
    [
        (("slot 0 +1",), ["boundaries"], [2, 6, 9]),
        slow(("theta 500000",), ["rope_theta"], 10000.0),
        slow(("norm_before_residual",), ["residual"], "pre_norm"),
        (("yarn", "slot 2 -1"), ["boundaries", "rope_scaling"], [2, 6, 9]),
    ],
)
def test_a_planted_fault_is_named_and_the_printed_edit_mends_it(wiring, healthy, tmp_path, plants, knobs, to):
    drafter = planted(tmp_path, *plants)
    code, told = wiring(drafter, "--engine", "vllm")
    assert (code, told["verdict"], sorted(faults(told))) == (1, "miswired", sorted(knobs))
    assert told["faults"][faults(told).index(knobs[0])]["to"] == to
    v1 = next(fix for fix in told["fix"] if fix["engine"].endswith("(v1)"))  # V2 reads no ids here, and needs none
    assert v1["left"] == []
    code, mended = wiring(edited(tmp_path, v1["set"]))
    assert (code, mended["verdict"]) == (0, "healthy")
    low, high = healthy[1]["declared"]["interval"]
    assert low <= mended["declared"]["accept_len"] <= high


def test_a_fault_of_the_tensors_has_no_edit_and_says_what_mends_it(wiring, tmp_path):
    code, told = wiring(planted(tmp_path, "attention halves swapped"))
    assert (code, told["verdict"], faults(told)) == (1, "miswired", ["concat"])
    assert told["faults"][0]["fix"] == []
    assert any("column halves" in line for line in told["todo"])


def permuted(config, weights):
    order = torch.randperm(len(weights["lm_head.weight"]), generator=torch.Generator().manual_seed(1))
    weights["lm_head.weight"] = weights["lm_head.weight"][order]


def some_exchanged(config, weights):
    """A quarter of the head's rows, each in the place of the next."""
    rows = torch.arange(len(weights["lm_head.weight"]))
    rows[: len(rows) // 4] = rows[: len(rows) // 4].roll(1)
    weights["lm_head.weight"] = weights["lm_head.weight"][rows]


def at_random(config, weights):
    head = weights["lm_head.weight"]
    made = torch.randn(head.shape, generator=torch.Generator().manual_seed(2)) * 0.02
    weights["lm_head.weight"] = made.to(head.dtype)


def no_map(config, weights):
    weights["d2t"] = torch.zeros_like(weights["d2t"])


def no_fc(config, weights):
    weights["fc.weight"] = torch.zeros_like(weights["fc.weight"])


def not_a_number(config, weights):
    weights["fc.weight"][0, 0] = float("nan")


def overflown(config, weights):
    """Cast to float16, which ends at 65504."""
    name = "midlayer.mlp.up_proj.weight"
    weights[name] = (weights[name].float() * 1e6).half()


def blind_in_slot_1(config, weights):
    weights["fc.weight"].chunk(3, dim=1)[1].zero_()


def fc_at_random(config, weights):
    fc = weights["fc.weight"].float()
    made = torch.randn(fc.shape, generator=torch.Generator().manual_seed(5)) * fc.std()
    weights["fc.weight"] = made.bfloat16()


def for_another_target(config, weights):
    """Whose states have the same content along other axes."""
    made = torch.Generator().manual_seed(6)
    turns = (torch.linalg.qr(torch.randn(128, 128, generator=made))[0] for _ in range(3))
    blocks = weights["fc.weight"].float().chunk(3, dim=1)
    weights["fc.weight"] = torch.cat([b @ turn for b, turn in zip(blocks, turns, strict=True)], dim=1).bfloat16()


def layer_norm_of_ones(config, weights):
    weights["midlayer.input_layernorm.weight"].fill_(1)


def weak_fc(config, weights):
    weights["fc.weight"] *= 0.1


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        slow(permuted, "the stored lm_head"),
        (some_exchanged, "lm_head"),
        slow(at_random, "the stored lm_head"),
        (no_map, "D2T-ZERO"),
        slow(no_fc, "fc.weight is nothing but zeros"),
        slow(not_a_number, "fc.weight: values that are NaN or infinite, 1 of them"),
        slow(overflown, "midlayer.mlp.up_proj.weight: values that are NaN or infinite"),
        slow(blind_in_slot_1, "zeros in the columns of slot 1, the state at boundary 6"),
        slow(for_another_target, "the target's states draft nothing"),
    ],
    ids=named,
)
def test_a_damaged_file_is_called_damaged(wiring, tmp_path, damage, words):
    code, told = wiring(planted(tmp_path, "damage", also={"damage": damage}))
    assert (code, told["verdict"]) == (1, "damaged")
    assert any(words in reason for reason in told["reasons"])
    assert not any("vocab_map" in warning for warning in told["warnings"])


def test_a_lost_fc_is_not_laid_to_the_head(wiring, tmp_path):
    code, told = wiring(planted(tmp_path, "damage", also={"damage": fc_at_random}))
    assert (code, told["verdict"]) == (1, "damaged")
    assert any("the target's states draft nothing" in reason for reason in told["reasons"])
    low, high = told["taps_worth"]["accept_len_interval"]
    assert low <= told["taps_worth"]["accept_len"] <= high
    assert low <= 0
    assert not any("head" in reason for reason in told["reasons"])


def test_what_a_weak_drafter_published_is_set_beside_it(wiring, healthy, tmp_path):
    """The project file beside it states 3.51 at 3 steps, of which no random attention is capable."""
    _, told = wiring(planted(tmp_path, "damage", also={"damage": attention_at_random}))
    assert any("states accept_len 3.51 at 3 steps on held-out tasks; here it is 1." in one for one in told["warnings"])
    assert not any("states accept_len" in warning for warning in healthy[1]["warnings"])


@pytest.mark.slow
def test_a_wiring_that_accepts_less_is_left_as_declared(wiring, tmp_path):
    """A tenth of fc: less of the states in the residual is nearer in KL, and no better."""
    _, told = wiring(planted(tmp_path, "damage", also={"damage": weak_fc}))
    lost = [each for each in told["faults"] if each["accept_len_after"] < each["accept_len_before"]]
    told_of = [warning for warning in told["warnings"] if "leave it" in warning]
    assert len(lost) == len(told_of) > 0
    assert all("accept_len falls from" in warning for warning in told_of)
    assert not any("set in config.json" in warning for warning in told["warnings"])


@pytest.mark.slow
def test_a_norm_that_looks_unloaded_is_named_beside_the_wiring_that_makes_up_for_it(wiring, tmp_path):
    _, told = wiring(planted(tmp_path, "damage", also={"damage": layer_norm_of_ones}))
    assert not told["faults"] or any("NORM-ONES" in warning for warning in told["warnings"])


@pytest.mark.slow
def test_what_one_reason_hides_is_one_line(recording, capsys, tmp_path):
    """With an fc of zeros every boundary computes the same."""
    assert main(["wiring", planted(tmp_path, "damage", also={"damage": no_fc}), "--recording", recording]) == 1
    table = capsys.readouterr().out.partition("Not observable")[2]
    lines = [line for line in table.splitlines() if line.startswith("boundaries ")]
    assert len(lines) == 1
    assert " more" in lines[0]


def test_a_drafter_below_what_was_asked_is_undertrained_where_nothing_helps(wiring):
    code, told = wiring("tiny", "--min-accept-len", "3.9", "--train-acc", "0.5,0.5,0.5")
    assert (code, told["verdict"]) == (1, "undertrained")
    assert told["train_acc"]["accept_len"] == 1 + 0.5 + 0.25 + 0.125
    assert any("teacher-forced" in reason for reason in told["reasons"])


def test_what_the_recording_cannot_decide_is_inconclusive(wiring, healthy):
    code, told = wiring("tiny", "--min-accept-len", f"{healthy[1]['declared']['accept_len']:.4f}")
    assert (code, told["verdict"]) == (3, "inconclusive")
    assert any("record about" in line for line in told["todo"])


@pytest.mark.parametrize(
    ("engine", "reached", "verdict"),
    [
        ("sglang@0.5.23", "1.9", "engine"),
        ("sglang@0.5.23", "3.6", "healthy"),
        slow("tensorrt-llm", "1.9", "engine"),
        slow("tensorrt-llm", "3.6", "healthy"),
    ],
)
def test_an_engine_below_the_reference_loop_is_at_fault(wiring, engine, reached, verdict):
    code, told = wiring("tiny", "--engine", engine, "--engine-accept-len", reached)
    assert (code, told["verdict"]) == (int(verdict == "engine"), verdict)
    assert told["engines"][0]["below"] is (verdict == "engine")


def test_an_engine_that_wires_a_whole_drafter_otherwise_is_at_fault(wiring, tmp_path):
    """Ids that name boundaries, as the usual defaults do: SGLang takes them for outputs of layers."""
    drafter = planted(tmp_path, "boundary ids", also={"boundary ids": boundary_ids})
    assert wiring(drafter)[1]["verdict"] == "healthy"
    code, told = wiring(drafter, "--engine", "sglang")
    assert (code, told["verdict"]) == (1, "engine")
    assert "sglang@0.5.23 wires boundaries otherwise than trained" in told["reasons"][0]
    (edit,) = told["fix"]
    assert wiring(edited(tmp_path, edit["set"]), "--engine", "sglang")[1]["verdict"] == "healthy"


def boundary_ids(config, weights):
    config["eagle_config"]["eagle_aux_hidden_state_layer_ids"] = [2, 6, 9]


def test_live_says_the_same_as_the_recording(prompts, capsys, tmp_path):
    few = tmp_path / "few.jsonl"
    few.write_text("".join([TURNS, *Path(prompts).read_text().splitlines(keepends=True)[:16]]))
    drafter = tmp_path / "drafter"
    drafter.mkdir()
    options = ("--target", "tiny-target", "--prompts", str(few), "--max-new-tokens", "24", "--confirm-live")
    code = main(["wiring", planted(drafter, "slot 2 -1"), *options, "--format", "json"])
    told = json.loads(capsys.readouterr().out)
    assert (code, told["verdict"]) == (1, "miswired")
    live = {one["wiring"]: one["accept_len"] for one in told["live"]}
    assert live["best"] == pytest.approx(told["profile"]["accept_len"], abs=0.02)
    assert live["declared"] < live["best"]
    assert told["notes"] == ["1 of 17 prompts have several turns: the first alone is asked"]


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (("--engine-accept-len", "1.9"), 2, "name the one release"),
        (("--engine", "vllm,sglang", "--engine-accept-len", "1.9"), 2, "2 named"),
        (("--train-acc", "78,70"), 2, "no accuracies"),
        (("--train-acc", "0.78,0.70"), 2, "give --steps 2, or 3 accuracies"),
        (("--confirm-live",), 2, "--confirm-live"),
        (("--steps", "99"), 2, "99 steps"),
        (("--min-gain", "nan"), 2, "no finite number"),
        (("--min-accept-len", "nan"), 2, "no finite number"),
        (("--min-accept-len", "inf"), 2, "no finite number"),
        (("--engine", "sglnag"), 2, "did you mean sglang"),
    ],
)
def test_bad_input_is_one_line(recording, capsys, options, code, words):
    assert main(["wiring", "tiny", "--recording", recording, *options]) == code
    shown = capsys.readouterr()
    assert shown.out == ""
    assert words in shown.err.splitlines()[-1]


@pytest.mark.parametrize(
    ("ids", "words"),
    [
        ([1, 5], "2 boundaries, [2, 6], for a drafter that reads 3 states"),
        ([1, 5, 99], "layer ids [1, 5, 99] of a target of 12"),
    ],
)
def test_layer_ids_that_cannot_be_are_one_line(recording, capsys, tmp_path, ids, words):
    def planting(config, weights):
        config["eagle_config"]["eagle_aux_hidden_state_layer_ids"] = ids

    drafter = planted(tmp_path, "ids", also={"ids": planting})
    assert main(["wiring", drafter, "--recording", recording]) == 3
    shown = capsys.readouterr()
    assert (shown.out, len(shown.err.splitlines())) == ("", 1)
    assert words in shown.err


def test_too_few_prompts_decide_nothing(prompts, capsys, tmp_path):
    few = tmp_path / "few.jsonl"
    few.write_text("".join([TURNS, *Path(prompts).read_text().splitlines(keepends=True)[:4]]))
    options = ("--target", "tiny-target", "--prompts", str(few), "--max-new-tokens", "32")
    assert main(["wiring", "tiny", *options]) == 3
    shown = capsys.readouterr().out
    assert "inconclusive" in shown
    assert shown.count("1 of 5 prompts have several turns: the first alone is asked") == 1
