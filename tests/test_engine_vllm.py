"""What vLLM's runners make of a drafter. Expected values: vLLM's own source, by release, and published drafters."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from drafter_audit.drafter.boundaries import NOTE, meant
from drafter_audit.drafter.open import open_drafter, with_config, with_reading
from drafter_audit.drafter.spec import DrafterSpec
from drafter_audit.drafter.wiring import declared_wiring
from drafter_audit.engines.base import Effect, Release, Served, merged
from drafter_audit.engines.serving import serve
from drafter_audit.engines.vllm import VLLM
from drafter_audit.engines.vllm.rules import RULES
from tests.checkpoints import Tensors, read_peer, write_checkpoint

IDS = "eagle_aux_hidden_state_layer_ids"
NEWEST = "0.33.0"
PEERS = (
    "modelopt_eagle3",
    "modelopt_eagle3_kimik2",
    "specforge_eagle3",
    "specforge_trained",
    "speculators_converted",
    "speculators_eagle3",
)


def nested(*ids: int, **more: Any) -> dict[str, Any]:
    return {"eagle_config": {IDS: list(ids), **more}}


def target(folder: Path, layers: int, **changes: Any) -> str:
    """A target of which only config.json is there, a Llama of the peers' width unless told otherwise."""
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "num_hidden_layers": layers,
        "hidden_size": 64,
        "num_attention_heads": 4,
        "vocab_size": 512,
        "max_position_embeddings": 512,
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({**config, **changes}))
    return str(folder)


DEEPSEEK = {"architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3"}
GPT_OSS = {"architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss"}
MINIMAX = {"architectures": ["MiniMaxM3SparseForConditionalGeneration"], "model_type": "minimax_m3_vl"}


def drafter(
    folder: Path,
    config: Mapping[str, Any],
    *,
    peer: str = "specforge_eagle3",
    layers: int = 32,
    on: Mapping[str, Any] | None = None,
    tensors: Callable[[Tensors], Tensors] = lambda tensors: tensors,
) -> DrafterSpec:
    """A peer's checkpoint with another config, on a target of that many layers; None takes a key away."""
    theirs, stored, metadata = read_peer(peer)
    ref = write_checkpoint(folder / "drafter", merged(theirs, config), tensors(dict(stored)), metadata)
    return open_drafter(ref, target=target(folder / "target", layers, **(on or {})))


def served(spec: DrafterSpec, runner: str | None = "v1", version: str = NEWEST) -> Served:
    return serve(VLLM, spec, Release("vllm", version, runner))


SPECULATORS = {"peer": "speculators_eagle3"}


@pytest.mark.parametrize(
    ("config", "layers", "options", "v1", "v2"),
    [
        pytest.param({}, 32, {}, (2, 16, 29), (2, 16, 29), id="1 no ids"),
        pytest.param(nested(1, 15, 28), 32, {}, (1, 15, 28), (2, 16, 29), id="2"),
        pytest.param(nested(2, 16, 29), 32, {}, (2, 16, 29), (2, 16, 29), id="3"),
        pytest.param(nested(1, 29, 57), 61, {"on": DEEPSEEK}, (1, 29, 57), (2, 30, 58), id="4 Kimi"),
        pytest.param(nested(2, 30, 58), 61, {"on": DEEPSEEK}, (2, 30, 58), (2, 30, 58), id="5 Kimi"),
        pytest.param(nested(3, 30, 58), 61, {"on": DEEPSEEK}, (3, 30, 58), (2, 30, 58), id="6"),
        pytest.param(nested(24, 30, 36), 36, {"on": GPT_OSS}, (24, 30, 36), (2, 18, 33), id="7 gpt-oss, last layer"),
        pytest.param(nested(1, 17, 32), 36, {"on": GPT_OSS}, (1, 17, 32), (2, 18, 33), id="8 gpt-oss-120b"),
        pytest.param(nested(1, 11, 21), 24, {"on": GPT_OSS}, (1, 11, 21), (2, 12, 21), id="9 SpecForge's template"),
        pytest.param({IDS: [2, 18, 33]}, 36, SPECULATORS, (2, 18, 33), (2, 18, 33), id="10 speculators"),
        pytest.param({IDS: [1, 23, 44]}, 48, SPECULATORS, (1, 23, 44), (1, 23, 44), id="11 speculators"),
        pytest.param({}, 60, {"on": MINIMAX}, (2, 30, 57), (2, 30, 57), id="13 MiniMax-M3-VL"),
        pytest.param({IDS: [28, 1, 15]}, 32, {}, (1, 15, 28), (1, 15, 28), id="14 unsorted"),
        pytest.param(nested(28, 1, 15), 32, {}, (1, 15, 28), (2, 16, 29), id="14 unsorted, nested"),
    ],
)
def test_each_runner_captures(tmp_path, config, layers, options, v1, v2):
    spec = drafter(tmp_path, config, layers=layers, **options)
    assert served(spec, "v1").boundaries == v1
    assert served(spec, "v2").boundaries == v2
    assert served(spec, "v1").effect.wiring.slot_order == "ascending"


def test_a_dflash_drafter_is_captured_after_its_layers(tmp_path):
    """Vector 12: no EAGLE layer, so no wiring, but the boundaries are told."""
    spec = dflash(tmp_path)
    for runner in ("v1", "v2"):
        assert served(spec, runner).effect.wiring is None
        assert "[2, 10, 18, 26, 34]" in served(spec, runner).effect.notes[0][1]


def dflash(folder: Path) -> DrafterSpec:
    config = {
        "architectures": ["DFlashDraftModel"],
        "model_type": "qwen3",
        "hidden_size": 64,
        "num_hidden_layers": 1,
        "num_target_layers": 36,
        "block_size": 8,
        "dflash_config": {"mask_token_id": 3, "target_layer_ids": [1, 9, 17, 25, 33]},
    }
    tensors: Tensors = {"fc.weight": ("F32", (64, 320)), "hidden_norm.weight": ("F32", (64,))}
    ref = write_checkpoint(folder / "drafter", config, tensors)
    return open_drafter(ref, target=target(folder / "target", 36))


class TestStory:
    """Ids [2, 30, 58] on a DeepSeek-type target of 61 layers, whose trainer meant the outputs of these layers."""

    @pytest.mark.parametrize(("runner", "rule"), [("v1", "ids_nested_v1"), ("v2", "ids_default")])
    def test_the_wrong_states_reach_the_drafter(self, tmp_path, runner, rule):
        spec = with_reading(drafter(tmp_path, nested(2, 30, 58), layers=61, on=DEEPSEEK), "output_of_layer")
        answer = served(spec, runner)
        (difference,) = answer.differs
        assert declared_wiring(spec).boundaries == (3, 31, 59)
        assert answer.effect.loads is True
        assert answer.boundaries == (2, 30, 58)
        assert (difference.knob, difference.rule.name, difference.mended) == ("boundaries", rule, True)
        assert answer.edit[IDS] == [3, 31, 59]
        assert served(edited(spec, answer), runner).boundaries == (3, 31, 59)

    @pytest.mark.parametrize("runner", ["v1", "v2"])
    def test_read_as_boundaries_nothing_differs(self, tmp_path, runner):
        answer = served(drafter(tmp_path, nested(2, 30, 58), layers=61, on=DEEPSEEK), runner)
        assert answer.differs == ()
        assert answer.edit == {}

    def test_before_0_22_no_runner_reads_the_nested_ids(self, tmp_path):
        answer = served(drafter(tmp_path, nested(3, 30, 58), layers=61, on=DEEPSEEK), "v1", "0.21.0")
        assert answer.boundaries == (2, 30, 58)
        assert [key for key, _ in answer.effect.ignored] == [f"eagle_config.{IDS}"]


def edited(spec: DrafterSpec, answer: Served) -> DrafterSpec:
    return with_config(spec, merged(spec.config.raw, answer.edit))


class TestEmbeddingOutput:
    def test_minus_one_is_captured_by_no_layer(self, tmp_path):
        spec = drafter(tmp_path, nested(-1, 29, 57), layers=61)
        v1, v2 = served(spec, "v1"), served(spec, "v2")
        assert declared_wiring(spec).boundaries == (0, 30, 58)
        assert v1.effect.loads is False
        assert rules(v1.effect) >= {"ids_outside"}
        assert (v1.boundaries, v2.boundaries) == ((29, 57), (2, 30, 58))
        assert v1.edit == v2.edit == {IDS: [0, 30, 58]}
        assert served(edited(spec, v1), "v1").differs == served(edited(spec, v2), "v2").differs == ()

    @pytest.mark.parametrize("runner", ["v1", "v2"])
    def test_zero_is_captured(self, tmp_path, runner):
        answer = served(drafter(tmp_path, {IDS: [0, 30, 58]}, layers=61), runner)
        assert answer.boundaries == (0, 30, 58)
        assert answer.effect.loads is True

    @pytest.mark.parametrize("version", ["0.18.0", "0.24.0", NEWEST])
    def test_zero_stops_a_deepseek_target(self, tmp_path, version):
        answer = served(drafter(tmp_path, {IDS: [0, 30, 58]}, layers=61, on=DEEPSEEK), "v1", version)
        assert answer.effect.loads is False
        assert "embedding_fails" in rules(answer.effect)
        assert answer.edit == {}


@pytest.mark.parametrize(("version", "loads"), [("0.24.0", False), ("0.25.0", True), (NEWEST, True)])
def test_the_last_layer_of_deepseek(tmp_path, version, loads):
    """PR 46973 of vLLM, in 0.25: until then id 61 of 61 layers gave no state."""
    answer = served(drafter(tmp_path, {IDS: [2, 30, 61]}, layers=61, on=DEEPSEEK), "v1", version)
    assert answer.effect.loads is loads
    assert answer.boundaries == ((2, 30, 61) if loads else (2, 30))


def test_runners():
    assert VLLM.runners("0.33.0") == VLLM.runners("0.29.0") == ("v2", "v1")
    assert VLLM.runners("0.28.0") == VLLM.runners("0.17.0") == ("v1", "v2")
    assert VLLM.runners("0.16.0") == (None,)


class TestEdit:
    @pytest.mark.parametrize("runner", ["v1", "v2"])
    @pytest.mark.parametrize("boundaries", [(2, 30, 58), (3, 31, 59), (1, 30, 58), (0, 30, 58)])
    @pytest.mark.parametrize("peer", PEERS)
    def test_no_difference_is_left(self, tmp_path, peer, boundaries, runner):
        spec = on_61_layers(tmp_path, peer)
        spec = replace(spec, aux_layers=meant(spec.aux_layers, boundaries, "the test says so"))
        answer = served(spec, runner)
        again = edited(spec, answer)
        left = {difference.knob for difference in served(again, runner).differs}
        unreachable = peer == "modelopt_eagle3_kimik2" and 0 in boundaries  # a DeepSeek target has no boundary 0
        assert left == ({"boundaries"} if unreachable else set())
        assert served(again, runner).effect.loads is True
        assert declared_wiring(again) == declared_wiring(spec)

    @pytest.mark.parametrize("peer", PEERS)
    def test_what_one_runner_needs_serves_the_other(self, tmp_path, peer):
        spec = on_61_layers(tmp_path, peer)
        spec = replace(spec, aux_layers=meant(spec.aux_layers, (1, 30, 58), "the test says so"))
        again = edited(spec, served(spec, "v1"))
        assert served(again, "v2").differs == ()

    def test_the_note_of_the_boundaries_survives(self, tmp_path):
        """A written config notes what its ids mean; read again, nothing differs."""
        spec = with_reading(drafter(tmp_path, nested(2, 30, 58), layers=61, on=DEEPSEEK), "output_of_layer")
        config = merged(spec.config.raw, {**served(spec).edit, NOTE: {"boundaries": [3, 31, 59]}})
        again = with_config(spec, config, told=False)
        assert served(again, "v1").differs == served(again, "v2").differs == ()

    @pytest.mark.parametrize(
        ("config", "edit"),
        [
            ({"target_hidden_size": None, IDS: [2, 16, 29]}, {}),
            ({"architectures": ["EAGLE3LlamaForCausalLM"]}, {"architectures": ["LlamaForCausalLMEagle3"]}),
            ({"draft_vocab_size": None}, {"draft_vocab_size": 128}),
            ({"eagle_config": {"return_hidden_post_norm": True}}, {"norm_output": True}),
            ({"eagle_config": {"return_hidden_post_norm": True}, "norm_output": True}, {}),
        ],
    )
    def test_only_what_must_change(self, tmp_path, config, edit):
        assert served(drafter(tmp_path, config)).edit == edit

    def test_a_null_width_is_taken_away(self, tmp_path):
        theirs, stored, _ = read_peer("specforge_eagle3")
        ref = write_checkpoint(tmp_path / "drafter", {**theirs, "target_hidden_size": None}, stored)
        answer = served(open_drafter(ref, target=target(tmp_path / "target", 32)))
        assert rules(answer.effect) >= {"target_hidden_size_null"}
        assert answer.edit == {"target_hidden_size": None}

    def test_four_states_in_a_speculators_config(self, tmp_path):
        """Its translation keeps the top-level ids, and the Llama class counts those of eagle_config alone."""
        spec = drafter(tmp_path, {IDS: [2, 8, 16, 29]}, **SPECULATORS, tensors=wider(4))
        answer = served(spec, "v2")
        assert "slots_counted" in rules(answer.effect)
        assert answer.edit == {"transformer_layer_config": {"num_aux_hidden_states": 4}}
        assert served(edited(spec, answer), "v2").effect.loads is True

    def test_the_mask_token_under_the_name_that_is_read(self, tmp_path):
        spec = drafter(tmp_path, {"parallel_drafting": True, "mask_token_id": 7}, tensors=MASK)
        assert served(spec, "v1", "0.26.0").edit == {"pard_token": 7}
        assert served(spec, "v1").effect.loads is True

    def test_switches_that_an_old_translation_loses(self, tmp_path):
        spec = drafter(tmp_path, {"norm_output": True, "fc_norm": True}, **SPECULATORS, tensors=with_fc_norms)
        answer = served(spec, "v1", "0.24.0")
        assert {difference.knob for difference in answer.differs} == {"feedback", "pre_fc_norm"}
        assert answer.edit == {"transformer_layer_config": {"norm_output": True, "fc_norm": True}}
        assert served(edited(spec, answer), "v1", "0.24.0").differs == ()


def on_61_layers(folder: Path, peer: str) -> DrafterSpec:
    theirs, _, _ = read_peer(peer)
    wide = theirs.get("hidden_size") or theirs["transformer_layer_config"]["hidden_size"]
    on = {**(DEEPSEEK if "kimik2" in peer else {}), "hidden_size": wide}
    return drafter(folder, {}, peer=peer, layers=61, on=on)


def wider(states: int) -> Callable[[Tensors], Tensors]:
    return lambda tensors: {**tensors, "fc.weight": ("F32", (64, 64 * states))}


def with_fc_norms(tensors: Tensors) -> Tensors:
    return {**tensors, **{f"fc_norm.{i}.weight": ("F32", (64,)) for i in range(3)}}


def without(*names: str) -> Callable[[Tensors], Tensors]:
    return lambda tensors: {name: value for name, value in tensors.items() if name not in names}


def more(**shapes: tuple[int, ...]) -> Callable[[Tensors], Tensors]:
    return lambda tensors: {**tensors, **{name.replace("__", "."): ("F32", shape) for name, shape in shapes.items()}}


def prefixed(tensors: Tensors) -> Tensors:
    return {name if name in ("d2t", "t2d") else f"model.{name}": value for name, value in tensors.items()}


def two_layers(tensors: Tensors) -> Tensors:
    """A second layer that reads the hidden state alone, its norm under the name that SGLang uses."""
    plain = {
        name.replace("midlayer.", "layers.1."): (
            kind,
            tuple(min(size, 64) if "self_attn" in name else size for size in s),
        )
        for name, (kind, s) in tensors.items()
        if name.startswith("midlayer.") and "input_layernorm" not in name
    }
    first = {name.replace("midlayer.", "layers.0."): value for name, value in tensors.items()}
    return {**first, **plain}


def two_wide_layers(tensors: Tensors) -> Tensors:
    """A second layer that reads embedding and hidden state, as the first does."""
    again = {name.replace("midlayer.", "layers.1."): value for name, value in tensors.items() if "midlayer" in name}
    return {**tensors, **again}


def whole_vocabulary(tensors: Tensors) -> Tensors:
    return {**tensors, "lm_head.weight": ("F32", (512, 64)), "d2t": ("I64", (512,))}


def no_fusion(tensors: Tensors) -> Tensors:
    return without("fc.weight", "midlayer.hidden_norm.weight")(tensors)


NOAUX = {"eagle_config": {"use_aux_hidden_state": False}}
PEAGLE = {"speculators_model_type": "peagle", "mask_token_id": 5, "architectures": ["PEagleSpeculator"]}
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 128}
MASK = more(mask_hidden=(1, 1, 192))


@dataclass(frozen=True)
class Row:
    """One drafter on one release, and the rules that must be among those that apply."""

    expected: set[str]
    config: Mapping[str, Any] = field(default_factory=dict)
    version: str = NEWEST
    runner: str | None = "v1"
    options: Mapping[str, Any] = field(default_factory=dict)


def row(expected: str, config: Mapping[str, Any] | None = None, at: str = NEWEST, **options: Any) -> Row:
    version, _, runner = at.partition(" ")
    return Row(set(expected.split()), config or {}, version, runner or None, options)


LATENT = {"peer": "modelopt_eagle3_kimik2", "on": DEEPSEEK}
V1, V2 = f"{NEWEST} v1", f"{NEWEST} v2"
ROWS = (
    row("ids_unread embedding_replaced residual_switch", {IDS: [2, 9, 20]}, "0.10.2"),
    row("ids_top_level ids_sorted map_offset head_from_file embedding_kept", {IDS: [20, 9, 2]}, V2),
    row("ids_nested_v1", nested(1, 15, 28), V1),
    row("ids_nested_unread runner_v1_default", nested(1, 15, 28), "0.21.0 v1"),
    row("ids_nested_unread_v2 ids_default runner_v2_default", nested(1, 15, 28), V2),
    row("ids_short_key_v2", {"eagle_config": {"layer_ids": [3, 9, 20]}}, V2),
    row("ids_repeated states_misfit", {IDS: [2, 2, 20, 29]}, V2),
    row("ids_outside", {IDS: [2, 16, 40]}, V2),
    row("last_unreached", {IDS: [2, 16, 32]}, "0.17.0 v1"),
    row("embedding_fails", {IDS: [0, 16, 29]}, V2, on=DEEPSEEK),
    row("embedding_unreached", {IDS: [0, 16, 29]}, V2, on={"architectures": ["DeepseekV4ForCausalLM"]}),
    row("target_unsupported", {}, V2, on={"architectures": ["MixtralForCausalLM"], "model_type": "mixtral"}),
    row("target_gated", {}, "0.21.0 v1", on={"architectures": ["GlmMoeDsaForCausalLM"], "model_type": "glm_moe_dsa"}),
    row("target_unlisted", {}, V2, on={"architectures": ["NewForCausalLM"], "model_type": "new"}),
    row("architecture_unknown", {"architectures": ["EAGLE3LlamaForCausalLM"]}, V2),
    row("architecture_unknown", {"architectures": ["PEagleDraftModel"]}, V1),
    row("speculators_type", {"transformer_layer_config": {"model_type": "gemma"}}, V2, **SPECULATORS),
    row("speculators_unmarked", {"speculators_config": None}, V2, **SPECULATORS),
    row("speculators_untranslated", {"norm_output": True}, "0.24.0 v1", **SPECULATORS),
    row("residual_default_true", {"norm_before_residual": None}, V2, **SPECULATORS),
    row("positions_raised", {}, V2, on={"max_position_embeddings": 4096}),
    row("positions_limit", {"rope_parameters": YARN}, V2, on={"max_position_embeddings": 4096}),
    row("positions_raised", {"rope_parameters": YARN}, "0.32.0 v1", on={"max_position_embeddings": 4096}),
    row("positions_short runner_by_target", {}, "0.26.0 v1", on={"max_position_embeddings": 4096}),
    row("norm_before_fc_unread", {"norm_before_fc": True}, "0.17.0 v1"),
    row("norm_before_fc_top_level", {"norm_before_fc": True}, "0.18.0 v1", tensors=more(input_norm__weight=(192,))),
    row("norm_before_fc_nested norm_output_read", {"eagle_config": {"norm_before_fc": True}}, V2),
    row("latent_norm_before_fc", {"norm_before_fc": True}, V2, **LATENT),
    row("fc_norm_unread", {"fc_norm": True}, "0.21.0 v1"),
    row("fc_norm_read", {"fc_norm": True}, V2, tensors=with_fc_norms),
    row("latent_fc_norm_unapplied", {"fc_norm": True}, "0.22.0 v1", **LATENT, tensors=with_fc_norms),
    row("norm_output_unread", {"norm_output": True}, "0.21.0 v1"),
    row("hidden_norm_always noaux_last_state", NOAUX, V2, tensors=no_fusion),
    row("final_norm_always", {"eagle_config": {"use_last_layernorm": False}}, V2),
    row("slots_counted", {"num_aux_hidden_states": 4}, V2),
    row("slots_three", {}, "0.21.0 v1", tensors=wider(4)),
    row("target_hidden_size_null", {"target_hidden_size": None}, V2),
    row("noaux_needs_switch", NOAUX, "0.11.1", tensors=no_fusion),
    row("noaux_needs_switch missing_weight ids_default", {}, V2, tensors=no_fusion),
    row("noaux_fails_v2", NOAUX, "0.32.0 v2", tensors=no_fusion),
    row("tensor_unknown", {}, V2, tensors=more(verifier_lm_head__weight=(128, 64))),
    row("prefix_doubled", {}, V2, tensors=prefixed),
    row("map_missing", {}, V2, tensors=without("d2t")),
    row("map_unneeded", {"draft_vocab_size": 512}, V2, tensors=whole_vocabulary),
    row("head_rows", {"draft_vocab_size": None}, V2),
    row("head_from_target head_cut", {}, V2, tensors=without("lm_head.weight")),
    row("missing_weight", {}, "0.10.2", tensors=without("lm_head.weight")),
    row(
        "missing_weight missing_norm",
        {},
        V2,
        tensors=without("midlayer.mlp.up_proj.weight", "midlayer.input_layernorm.weight"),
    ),
    row("bias_skipped", {}, V2, tensors=more(fc__bias=(64,))),
    row("tensor_unknown", {}, "0.24.0 v1", tensors=more(fc__bias=(64,))),
    row("embedding_rows", {"vocab_size": 500}, V2),
    row("deeper_width", {"num_hidden_layers": 2}, V2, tensors=two_wide_layers),
    row("tie_unread", {"tie_word_embeddings": True}, V2, tensors=without("lm_head.weight")),
    row("embedding_from_target", {}, V2, tensors=without("embed_tokens.weight")),
    row("embedding_width", {}, V2, tensors=without("embed_tokens.weight"), on={"hidden_size": 128}),
    row("one_layer", {"num_hidden_layers": 2}, "0.11.0", tensors=two_layers),
    row("deeper_norm", {"num_hidden_layers": 2}, V2, tensors=two_layers),
    row("parallel_since", PEAGLE, "0.15.0", **SPECULATORS, tensors=MASK),
    row("parallel_not_v2", PEAGLE, V2, **SPECULATORS, tensors=MASK),
    row("parallel_token", {"parallel_drafting": True}, V1, tensors=MASK),
)


def rules(effect: Effect) -> set[str]:
    """The names of all rules behind an answer."""
    said = (*effect.refusals, *effect.notes, *effect.faults)
    found = [*effect.because.values(), *(rule for rule, _ in said)]
    return {rule.name for rule in (*found, *(rule for _, rule in effect.ignored))}


def effect_of(folder: Path, one: Row) -> Effect:
    """As the engine says, before any edit; null is written, not taken away."""
    theirs, stored, metadata = read_peer(one.options.get("peer", "specforge_eagle3"))
    config = merged(theirs, one.config) | {key: None for key, value in one.config.items() if value is None}
    if "norm_before_residual" in one.config:
        del config["norm_before_residual"]
    tensors = one.options.get("tensors", lambda tensors: tensors)(dict(stored))
    ref = write_checkpoint(folder / "drafter", config, tensors, metadata)
    spec = open_drafter(ref, target=target(folder / "target", 32, **one.options.get("on", {})))
    return VLLM.effect(spec, Release("vllm", one.version, one.runner))


@pytest.mark.parametrize("one", ROWS, ids=lambda one: "+".join(sorted(one.expected)))
def test_rules(tmp_path, one):
    assert one.expected <= rules(effect_of(tmp_path, one))


def test_a_path_that_means_eagle_1(tmp_path):
    effect = effect_of(tmp_path / "eagle-new-eagle3", row(""))
    assert "method_by_name" in rules(effect)


def test_eagle_1(tmp_path):
    theirs, stored, _ = read_peer("specforge_eagle3")
    plain = {name.replace("midlayer.", "layers.0."): value for name, value in stored.items()}
    tensors = without("d2t", "t2d", "norm.weight", "lm_head.weight", "layers.0.hidden_norm.weight")(plain)
    tensors = without("layers.0.input_layernorm.weight")(tensors)
    narrow = {
        name: ("F32", (shape[0], 64))
        for name, (_, shape) in tensors.items()
        if name.endswith(("q_proj.weight", "k_proj.weight", "v_proj.weight"))
    }
    tensors = {**tensors, **narrow, "fc.weight": ("F32", (64, 128))}
    config = {**theirs, "architectures": ["LlamaForCausalLM"], "draft_vocab_size": None}
    spec = open_drafter(write_checkpoint(tmp_path / "drafter", config, tensors), target=target(tmp_path / "target", 32))
    answer = served(spec)
    assert spec.kind.name == "eagle1"
    assert answer.boundaries == (32,)
    assert answer.differs == ()
    assert "eagle1_last_state" in rules(answer.effect)


def test_every_rule_is_tried():
    tried = set().union(*(one.expected for one in ROWS))
    elsewhere = {"method_by_name", "eagle1_last_state", "other_kind_ids"}  # the tests above and the DFlash one
    assert tried | elsewhere == {rule.name for rule in RULES}


def test_rules_have_sources_and_distinct_names():
    assert len({rule.name for rule in RULES}) == len(RULES)
    assert all(rule.source.startswith("run on 0.32.0") or rule.source[0].isdigit() for rule in RULES)
    assert all((rule.proof == "run") == rule.source.startswith("run on") for rule in RULES)


def test_keys_that_are_read(tmp_path):
    spec = drafter(tmp_path, {}, **SPECULATORS)
    read = served(spec).effect.read
    assert {IDS, "norm_before_residual", "transformer_layer_config.hidden_size"} <= set(read)
    assert "embed_requires_grad" not in read


def test_an_unknown_target_leaves_the_boundaries_open(tmp_path):
    theirs, stored, _ = read_peer("specforge_eagle3")
    answer = served(open_drafter(write_checkpoint(tmp_path, theirs, stored)))
    assert answer.effect.loads is None
    assert answer.boundaries is None
