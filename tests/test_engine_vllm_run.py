"""What the rules for vLLM say of a drafter is what vLLM 0.32.0 did with it: `data/engines/vllm-0.32.0-cpu.json`.

Each observation names a checkpoint by what differs from one that a peer wrote; here it is written anew, as a header
over a hole, beside the config of the target that vLLM ran. What follows from the values of tensors is not asked, such
as whether a stored embedding is the target's.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from drafter_audit.audit.rules.engines import engines
from drafter_audit.drafter.open import open_drafter
from drafter_audit.drafter.spec import DrafterSpec
from drafter_audit.engines.base import Effect, Release, merged
from drafter_audit.engines.serving import serve
from drafter_audit.engines.vllm import VLLM
from drafter_audit.engines.vllm.rules import RULES
from drafter_audit.errors import ConfigError
from tests.checkpoints import Tensors, read_peer, write_checkpoint

Observation = dict[str, Any]

RECORD = json.loads((Path(__file__).parent / "data" / "engines" / "vllm-0.32.0-cpu.json").read_text(encoding="utf-8"))
OBSERVED: list[Observation] = RECORD["observations"]

V1, V2 = Release("vllm", "0.32.0", "v1"), Release("vllm", "0.32.0", "v2")

# Lists of ids that drafter-audit does not take for one, and vLLM does.
UNREADABLE = frozenset({"04b_top_empty", "42_ids_float"})

# Served by the method that drafter-audit speaks of; the others show what its absence does.
BY_METHOD = [
    seen
    for seen in OBSERVED
    if seen["method"] == "eagle3" and seen["runner"] == "v1" and seen["case"] not in UNREADABLE
]
SERVED = [seen for seen in BY_METHOD if seen["serves"]]
PATHS = [seen for seen in OBSERVED if seen["method"] is None and not seen["serves"]]


def having(key: str, among: list[Observation] = SERVED) -> Any:
    """One test for each observation that has a value under `key`."""
    return pytest.mark.parametrize(
        "seen", [seen for seen in among if seen.get(key) is not None], ids=lambda seen: seen["case"]
    )


def written(seen: Observation, folder: Path) -> DrafterSpec:
    """The drafter that vLLM was given, but for the values of its tensors, on the target that it ran on."""
    config, tensors, metadata = read_peer(seen["base"])
    target = folder / "target"
    target.mkdir(parents=True)
    (target / "config.json").write_text(json.dumps(RECORD["target_config"]), encoding="utf-8")
    kept = {name: entry for name, entry in tensors.items() if name not in seen.get("tensors_removed", ())}
    added: Tensors = {name: (dtype, tuple(shape)) for name, (dtype, shape) in seen.get("tensors", {}).items()}
    ref = write_checkpoint(folder / seen.get("folder", "drafter"), edited(config, seen), {**kept, **added}, metadata)
    (Path(ref) / "drafter-audit.toml").write_text(f'[[drafter]]\ntarget = "{target}"\n', encoding="utf-8")
    return open_drafter(ref)


def edited(config: dict[str, Any], seen: Observation) -> dict[str, Any]:
    result = with_keys(config, seen.get("config", {}))
    removed: dict[str, Any] = {}
    for path in seen.get("config_removed", ()):
        *sections, key = path.split(".")
        inner = removed
        for section in sections:
            inner = inner.setdefault(section, {})
        inner[key] = None
    return merged(result, removed)


def with_keys(config: dict[str, Any], keys: dict[str, Any]) -> dict[str, Any]:
    """`keys` set in `config`, nested as there; a null stays one."""
    both = {key: with_keys(config.get(key, {}), value) for key, value in keys.items() if isinstance(value, dict)}
    return {**config, **keys, **both}


def said(seen: Observation, folder: Path, release: Release = V1) -> Effect:
    return VLLM.effect(written(seen, folder), release)


def wiring_knob(effect: Effect, knob: str) -> Any:
    assert effect.wiring is not None
    return getattr(effect.wiring, knob)


@having("serves", BY_METHOD)
def test_what_it_serves_is_said_to_load(seen, tmp_path):
    assert said(seen, tmp_path).loads is seen["serves"]


@having("boundaries")
def test_boundaries_are_those_captured(seen, tmp_path):
    assert list(wiring_knob(said(seen, tmp_path), "boundaries")) == seen["boundaries"]


@having("last_state")
def test_the_last_state_is_taken_on_that_side_of_the_final_norm(seen, tmp_path):
    assert wiring_knob(said(seen, tmp_path), "last_state") == seen["last_state"]


@having("layers_v2_would_set", [seen for seen in SERVED if seen["layers_set"]])
def test_boundaries_of_v2_are_those_its_function_chooses(seen, tmp_path):
    assert list(wiring_knob(said(seen, tmp_path, V2), "boundaries")) == seen["layers_v2_would_set"]


@having("pre_fc_norm")
def test_the_norm_before_fc(seen, tmp_path):
    assert wiring_knob(said(seen, tmp_path), "pre_fc_norm") == seen["pre_fc_norm"]


@having("residual")
def test_the_side_that_the_residual_takes(seen, tmp_path):
    assert wiring_knob(said(seen, tmp_path), "residual") == seen["residual"]


@having("feedback")
def test_the_side_that_the_next_step_reads(seen, tmp_path):
    assert wiring_knob(said(seen, tmp_path), "feedback") == seen["feedback"]


@having("vocab_map")
def test_how_a_draft_id_becomes_a_target_id(seen, tmp_path):
    assert wiring_knob(said(seen, tmp_path), "vocab_map") == seen["vocab_map"]


@having("rope")
def test_the_base_of_rope(seen, tmp_path):
    assert wiring_knob(said(seen, tmp_path), "rope_theta") == seen["rope"]["base"]


@pytest.mark.parametrize(
    "seen", [s for s in SERVED if "embed_tokens.weight" in s.get("tensors_removed", ())], ids=lambda seen: seen["case"]
)
def test_a_missing_embedding_is_the_targets(seen, tmp_path):
    assert seen["shares_embedding"] is (wiring_knob(said(seen, tmp_path), "embedding") == "target")


@pytest.mark.parametrize(
    "seen", [s for s in SERVED if "lm_head.weight" in s.get("tensors_removed", ())], ids=lambda seen: seen["case"]
)
def test_a_missing_head_is_the_targets(seen, tmp_path):
    assert seen["shares_head"] is (wiring_knob(said(seen, tmp_path), "head") == "target")


def test_a_stored_head_of_other_rows_is_kept(tmp_path):
    plain = next(seen for seen in SERVED if seen["case"] == "04_none")
    assert not plain["shares_head"]
    assert wiring_knob(said(plain, tmp_path), "head") == "own"


def rules(effect: Effect) -> set[str]:
    """The names of all rules behind an answer."""
    said = (*effect.refusals, *effect.notes, *effect.faults)
    found = (*effect.because.values(), *(rule for rule, _ in said), *(rule for _, rule in effect.ignored))
    return {rule.name for rule in found}


@pytest.mark.parametrize("seen", BY_METHOD, ids=lambda seen: seen["case"])
def test_what_no_tensor_fills_is_told(seen, tmp_path):
    """Weights and biases hold what lay in memory, norms are of ones, and vLLM says nothing of either."""
    found = {rule.name: text for rule, text in said(seen, tmp_path).faults}
    assert ("missing_weight" in found) is ("uninitialised" in seen)
    assert bool(found.keys() & NORMS) is (seen["case"] in NORMS_OF_ONES)


NORMS = {"missing_norm", "hidden_norm_always", "final_norm_always", "deeper_norm"}
NORMS_OF_ONES = {
    "11d_before_fc_no_tensor",
    "12c_fc_norm_no_tensor",
    "23b_two_layers_hidden",
    "23e_two_declared_one_stored",
    "39_hidden_norm_absent",
    "40_norm_absent",
}


def test_a_head_over_a_reduced_vocabulary_is_cut(tmp_path):
    seen = next(seen for seen in SERVED if str(seen.get("head_is")).startswith("target's first rows"))
    assert sum(seen["accepted_per_position"]) == 0
    assert "head_cut" in rules(said(seen, tmp_path))


@pytest.mark.parametrize(
    "seen", [s for s in SERVED if any(name.endswith(".bias") for name in s.get("tensors", ()))], ids=lambda s: s["case"]
)
def test_a_bias_without_its_switch_is_skipped_and_no_edit_brings_chance(seen, tmp_path):
    skipped = not seen.get("config", {}).get("attention_bias")
    answer = serve(VLLM, written(seen, tmp_path), V1)
    assert ("bias_skipped" in rules(answer.effect)) is skipped
    assert "attention_bias" not in answer.edit


FOUR_BIASES = {f"midlayer.self_attn.{name}_proj.bias": ["F32", [64 if name in "kv" else 128]] for name in "qkvo"}


@pytest.mark.parametrize(
    ("case", "changes", "words", "edit"),
    [
        ("27a_verifier_lm_head", {}, "verifier_lm_head.weight has no place in the draft model; drop it", None),
        ("34_draft_vocab_map_offset", {}, "embed_tokens stores 512 rows, vocab_size is 500", {"vocab_size": 512}),
        ("16e_draft_vocab_key_missing_reduced", {}, "lm_head stores 128 rows", {"draft_vocab_size": 128}),
        ("20b_bias_tensors_no_flag", {}, "are stored and passed over", None),
        ("20b_bias_tensors_no_flag", {"tensors": FOUR_BIASES}, "are stored and passed over", {"attention_bias": True}),
        ("15b_head_absent_reduced", {}, "the target's rows 0 to 127 score draft ids", None),
    ],
)
def test_the_finding_tells_what_helps(case, changes, words, edit, tmp_path):
    """What vLLM needs is what the accepted observations have: all four biases with the switch are 20c."""
    spec = written({**next(seen for seen in OBSERVED if seen["case"] == case), **changes}, tmp_path)
    found = [finding for finding in engines(spec, [serve(VLLM, spec, V1)]) if words in finding.what]
    assert [finding.fix_set for finding in found] == [edit]


@pytest.mark.parametrize("seen", PATHS, ids=lambda s: s["case"])
def test_a_path_that_means_another_method_is_warned_of(seen, tmp_path):
    notes = {rule.name: text for rule, text in said(seen, tmp_path).notes}
    assert "eagle3" not in str(tmp_path)
    assert ("plain draft model" in notes["method_by_name"]) is (seen.get("method_taken") == "draft_model")


@pytest.mark.parametrize(
    "seen", [s for s in SERVED if "Overriding draft" in str(s.get("log"))], ids=lambda seen: seen["case"]
)
def test_a_raised_length_is_told(seen, tmp_path):
    assert "positions_raised" in rules(said(seen, tmp_path))


def test_every_rule_that_was_run_is_behind_an_answer_that_agrees(tmp_path):
    """That the answers agree, the tests above say of each observation."""
    tried = (*BY_METHOD, *PATHS)
    behind = set().union(*(rules(said(seen, tmp_path / str(number))) for number, seen in enumerate(tried)))
    assert {rule.name for rule in RULES if rule.proof == "run"} - behind == set()


@pytest.mark.parametrize("seen", [s for s in OBSERVED if s["case"] in UNREADABLE], ids=lambda seen: seen["case"])
def test_a_list_that_is_none_is_refused_before_any_engine_is_asked(seen, tmp_path):
    with pytest.raises(ConfigError, match=r"whole numbers such as|left out or name a layer"):
        written(seen, tmp_path)


@pytest.mark.parametrize("numbers", ["pre_fc_norm_max_abs", "first_step_max_abs", "feedback_max_abs"])
def test_the_record_tells_candidates_apart(numbers):
    """Rounding lies below 1e-5, another wiring above 1e-4: nothing recorded is a matter of opinion."""
    for seen in SERVED:
        found = sorted(value for value in (seen.get(numbers) or {}).values() if isinstance(value, float))
        assert all(value < 1e-5 or value > 1e-4 for value in found), seen["case"]
