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

from drafter_audit.drafter.open import open_drafter
from drafter_audit.drafter.spec import DrafterSpec
from drafter_audit.engines.base import Effect, Release, merged
from drafter_audit.engines.vllm import VLLM
from drafter_audit.errors import ConfigError
from tests.checkpoints import Tensors, read_peer, write_checkpoint

Observation = dict[str, Any]

RECORD = json.loads((Path(__file__).parent / "data" / "engines" / "vllm-0.32.0-cpu.json").read_text(encoding="utf-8"))
OBSERVED: list[Observation] = RECORD["observations"]

V1, V2 = Release("vllm", "0.32.0", "v1"), Release("vllm", "0.32.0", "v2")

# Lists of ids that drafter-audit does not take for one, and vLLM does.
UNREADABLE = frozenset({"04b_top_empty", "42_ids_float"})

# Served by the method that drafter-audit speaks of; the others show what its absence does. Where a parameter is never
# filled, what vLLM computes is chance.
BY_METHOD = [
    seen
    for seen in OBSERVED
    if seen["method"] == "eagle3" and seen["runner"] == "v1"
    if "uninitialised" not in seen and seen["case"] not in UNREADABLE
]
SERVED = [seen for seen in BY_METHOD if seen["serves"]]


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


@pytest.mark.parametrize(
    "seen", [s for s in OBSERVED if s["method"] is None and "eagle-" in s.get("folder", "")], ids=lambda s: s["case"]
)
def test_a_path_with_eagle_dash_is_warned_of(seen, tmp_path):
    assert not seen["serves"]
    assert "eagle-" in written(seen, tmp_path).ref
    assert any("eagle-" in text for _, text in said(seen, tmp_path / "again").notes)


@pytest.mark.parametrize("seen", [s for s in OBSERVED if s["case"] in UNREADABLE], ids=lambda seen: seen["case"])
def test_a_list_that_is_none_is_refused_before_any_engine_is_asked(seen, tmp_path):
    with pytest.raises(ConfigError, match=r"must be a list of layer ids"):
        written(seen, tmp_path)


@pytest.mark.parametrize("numbers", ["pre_fc_norm_max_abs", "first_step_max_abs", "feedback_max_abs"])
def test_the_record_tells_candidates_apart(numbers):
    """Rounding lies below 1e-5, another wiring above 1e-4: nothing recorded is a matter of opinion."""
    for seen in SERVED:
        found = sorted(value for value in (seen.get(numbers) or {}).values() if isinstance(value, float))
        assert all(value < 1e-5 or value > 1e-4 for value in found), seen["case"]
