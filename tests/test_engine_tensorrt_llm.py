"""What TensorRT-LLM makes of a drafter, by the vectors of public reports and by each rule."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from drafter_audit.drafter.open import open_drafter
from drafter_audit.drafter.wiring import KNOBS
from drafter_audit.engines.base import Release, Served
from drafter_audit.engines.serving import serve
from drafter_audit.engines.tensorrt_llm import TENSORRT_LLM
from drafter_audit.engines.tensorrt_llm.rules import RULES
from tests.checkpoints import Tensors, write_peer
from tests.engine_drafters import HIDDEN, SPECULATORS, VOCAB, drafter, knobs, nested, served_after, target, tensors, top

OLD, STABLE, NEW = (Release("tensorrt-llm", version) for version in ("1.0.0", "1.2.1", "1.4.0rc1"))
GGUF = Path(__file__).parent / "data" / "gguf" / "drafter.gguf"


def asked(
    folder: Path, config: Any = None, stored: Tensors | None = None, *, release: Release = NEW, **on: Any
) -> Served:
    return serve(TENSORRT_LLM, drafter(folder, config, stored, **on), release)


# Config, layers of the target, its model_type, boundaries captured, boundaries meant.
VECTORS = [
    pytest.param({}, 32, "llama", (2, 16, 29), (2, 16, 29), id="1"),
    pytest.param(nested(1, 15, 28), 32, "llama", (2, 16, 29), (2, 16, 29), id="2"),
    pytest.param(nested(2, 16, 29), 32, "llama", (2, 16, 29), (2, 16, 29), id="3"),
    pytest.param(nested(1, 29, 57), 61, "deepseek_v3", (2, 30, 58), (2, 30, 58), id="4"),
    pytest.param(nested(2, 30, 58), 61, "deepseek_v3", (2, 30, 58), (2, 30, 58), id="5"),
    pytest.param(nested(3, 30, 58), 61, "deepseek_v3", (2, 30, 58), (4, 31, 59), id="6"),
    pytest.param(nested(24, 30, 36), 36, "gpt_oss", (2, 18, 33), (24, 30, 36), id="7"),
    pytest.param(nested(1, 17, 32), 36, "gpt_oss", (2, 18, 33), (2, 18, 33), id="8"),
    pytest.param(nested(1, 11, 21), 24, "gpt_oss", (2, 12, 21), (2, 12, 22), id="9"),
    pytest.param(top(2, 18, 33, **SPECULATORS), 36, "qwen3", (2, 18, 33), (2, 18, 33), id="10"),
    pytest.param(top(1, 23, 44, **SPECULATORS), 48, "qwen3", (2, 24, 45), (1, 23, 44), id="11"),
    pytest.param({}, 60, "minimax_m3", (2, 30, 57), (2, 30, 57), id="13"),
    pytest.param(nested(28, 1, 15), 32, "llama", (2, 16, 29), (2, 16, 29), id="14"),
]


@pytest.mark.parametrize("release", [OLD, STABLE, NEW], ids=lambda release: release.version)
@pytest.mark.parametrize(("config", "layers", "model_type", "captured", "meant"), VECTORS)
def test_ids_of_the_config_are_not_read(tmp_path, config, layers, model_type, captured, meant, release):
    spec = drafter(tmp_path, config, layers=layers, model_type=model_type)
    served = serve(TENSORRT_LLM, spec, release)
    assert (spec.aux_layers.boundaries, served.boundaries, served.effect.loads) == (meant, captured, True)
    wanted = {} if captured == meant else {"eagle3_layers_to_capture": [boundary - 1 for boundary in meant]}
    assert served.effect.launch.get("speculative_config", {}) == wanted
    assert ("boundaries" in served.to_dict()["unmended"]) == (captured != meant)
    assert bool(served.effect.ignored) == (captured != meant)


def test_dflash_is_not_judged(tmp_path):
    """Vector 12."""
    config = {"architectures": ["DFlashDraftModel"], "target_layer_ids": [1, 9, 17, 25, 33], "block_size": 8,
              "num_target_layers": 36}  # fmt: skip
    served = asked(tmp_path, config, {"fc.weight": ("BF16", (64, 320))}, layers=36)
    assert (served.effect.loads, served.effect.wiring, served.edit) == (None, None, {})


def test_the_story(tmp_path):
    """[2, 30, 58] that a trainer meant as outputs of layers: no key of config.json helps, the launch setting does."""
    noted = {**nested(2, 30, 58), "drafter_audit": {"boundaries": [3, 31, 59]}}
    served = asked(tmp_path, noted, layers=61, model_type="deepseek_v3", release=STABLE)
    (difference,) = served.differs
    assert (difference.knob, difference.declared, difference.effective) == ("boundaries", (3, 31, 59), (2, 30, 58))
    assert (difference.mended, difference.rule and difference.rule.name) == (False, "TRT-IDS")
    assert served.to_dict()["launch"] == {"speculative_config": {"eagle3_layers_to_capture": [2, 30, 58]}}
    assert served.to_dict()["config"] == {}


@pytest.mark.parametrize(
    ("config", "layers", "launch", "noted"),
    [
        pytest.param(nested(-1, 30, 58), 61, None, True, id="-1 meant as the embedding is another state here"),
        pytest.param(nested(0, 30, 61), 61, None, True, id="0 where ids are boundaries is the embedding"),
        pytest.param(nested(0, 20, 50), 61, [0, 20, 50], False, id="0 where ids are outputs is the first layer's"),
        pytest.param(nested(24, 30, 36), 36, [23, 29, 35], False, id="the last layer's output can be named"),
    ],
)
def test_the_ends_of_the_target(tmp_path, config, layers, launch, noted):
    served = asked(tmp_path, config, layers=layers, model_type="deepseek_v3")
    assert served.effect.launch.get("speculative_config", {}).get("eagle3_layers_to_capture") == launch
    assert ("TRT-MINUS-ONE" in {rule.name for rule, _ in served.effect.notes}) == noted
    assert "boundaries" in knobs(served.differs)


NESTED = {"norm_before_fc": True}
INPUT_NORM = {"input_norm__weight": (3 * HIDDEN,)}
FC_NORMS = {f"fc_norm__{i}__weight": (HIDDEN,) for i in range(3)}
NORMS = [
    # config, further tensors, release, norm before fc that is used, what config.json mends
    pytest.param({"norm_before_fc": True}, INPUT_NORM, NEW, "none", {"eagle_config": NESTED}, id="top"),
    pytest.param({"eagle_config": NESTED}, INPUT_NORM, NEW, "whole", {}, id="nested"),
    pytest.param({"eagle_config": NESTED}, INPUT_NORM, STABLE, "none", {}, id="nested, 1.2.1"),
    pytest.param({"fc_norm": True}, FC_NORMS, NEW, "per_state", {}, id="each"),
    pytest.param({"fc_norm": True}, FC_NORMS, STABLE, "none", {}, id="each, 1.2.1"),
    pytest.param({"use_aux_norm": True}, FC_NORMS, NEW, "none", {"fc_norm": True}, id="other name"),
    pytest.param(
        {"fc_norm": True, "eagle_config": NESTED},
        FC_NORMS | INPUT_NORM,
        NEW,
        "per_state",
        {},
        id="both",
    ),
]


@pytest.mark.parametrize(("config", "more", "release", "used", "edit"), NORMS)
def test_norms_before_fc(tmp_path, config, more, release, used, edit):
    spec = drafter(tmp_path, config, tensors(**more))
    served = serve(TENSORRT_LLM, spec, release)
    assert served.effect.wiring is not None
    assert (served.effect.wiring.pre_fc_norm, served.edit) == (used, edit)
    assert not edit or not served_after(TENSORRT_LLM, spec, release, served).differs


@pytest.mark.parametrize(
    ("config", "release", "edit"),
    [
        ({"norm_output": True}, NEW, {}),
        ({"norm_output": True}, STABLE, {"eagle_config": {"return_hidden_post_norm": True}}),
        ({"eagle_config": {"return_hidden_post_norm": True}}, STABLE, {}),
    ],
)
def test_feedback(tmp_path, config, release, edit):
    spec = drafter(tmp_path, config)
    served = serve(TENSORRT_LLM, spec, release)
    assert served.edit == edit
    after = served_after(TENSORRT_LLM, spec, release, served)
    assert after.effect.wiring is not None
    assert (after.effect.wiring.feedback, after.differs) == ("post_norm", ())


def test_the_residual_switch_is_ignored(tmp_path):
    served = asked(tmp_path, {"norm_before_residual": True})
    assert (knobs(served.differs), served.edit) == ({"residual"}, {})
    assert [(key, rule.name) for key, rule in served.effect.ignored] == [("norm_before_residual", "TRT-RESIDUAL")]


def test_the_embedding_is_the_targets(tmp_path):
    """A trained embedding is lost, unless the target is of another width."""
    stored = tensors(embed_tokens__weight=(VOCAB, HIDDEN))
    config = {"embed_requires_grad": True}
    same = asked(tmp_path / "same", config, stored)
    assert same.effect.wiring is not None
    assert same.effect.wiring.embedding == "target"
    wide = tensors(width=2 * HIDDEN, embed_tokens__weight=(VOCAB, HIDDEN))
    other = asked(tmp_path / "other", {"target_hidden_size": 2 * HIDDEN}, wide, hidden=2 * HIDDEN)
    assert other.effect.wiring is not None
    assert other.effect.wiring.embedding == "own"


def test_a_head_that_is_not_stored_is_the_targets(tmp_path):
    served = asked(tmp_path, {"draft_vocab_size": VOCAB}, tensors(without=("lm_head.weight", "d2t", "t2d")))
    assert served.effect.wiring is not None
    assert (served.effect.wiring.head, served.effect.wiring.vocab_map) == ("target", "identity")


def test_rope_of_transformers_5(tmp_path):
    """1.2.1 reads the older layout, and is given it; later releases are not said to."""
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096, "rope_theta": 500000.0}
    spec = drafter(tmp_path, {"rope_theta": None, "rope_parameters": yarn})
    assert not serve(TENSORRT_LLM, spec, NEW).differs
    served = serve(TENSORRT_LLM, spec, STABLE)
    assert knobs(served.differs) == {"rope_theta", "rope_scaling"}
    assert served.edit["rope_theta"] == 500000.0
    assert not served_after(TENSORRT_LLM, spec, STABLE, served).differs


NO_NORM = {"eagle_config": {"use_last_layernorm": False}}
REFUSED = [
    pytest.param({}, tensors(), 5, "TRT-SHALLOW", id="shallow"),
    pytest.param(nested(1, 9, 15, 28), tensors(slots=4), 32, "TRT-SLOTS", id="four states"),
    pytest.param({}, tensors(without=("midlayer.post_attention_layernorm.weight",)), 32, "TRT-MISSING", id="no norm"),
    pytest.param(NO_NORM, tensors(without=("norm.weight",)), 32, "TRT-MISSING", id="no final norm"),
]


@pytest.mark.parametrize(("config", "stored", "layers", "rule"), REFUSED)
def test_refusals(tmp_path, config, stored, layers, rule):
    served = asked(tmp_path, config, stored, layers=layers)
    assert (served.effect.loads, served.edit) == (False, {})
    assert rule in {rule.name for rule, _ in served.effect.refusals}


def test_four_states_are_listed_at_launch(tmp_path):
    served = asked(tmp_path, nested(1, 9, 15, 28), tensors(slots=4))
    assert served.effect.launch == {"speculative_config": {"eagle3_layers_to_capture": [1, 9, 15, 28]}}


@pytest.mark.parametrize(
    ("null", "edit"), [("target_hidden_size", {"target_hidden_size": None}), ("eagle_config", {"eagle_config": None})]
)
def test_nulls_stop_it(tmp_path, null, edit):
    spec = drafter(tmp_path)
    folder = tmp_path / "drafter" / "config.json"
    folder.write_text(folder.read_text().replace("{", f'{{"{null}": null, ', 1))
    spec = open_drafter(str(tmp_path / "drafter"), target=str(tmp_path / "target"))
    served = serve(TENSORRT_LLM, spec, NEW)
    assert [rule.name for rule, _ in served.effect.refusals] == ["TRT-NULL"]
    assert served.edit == edit
    assert served_after(TENSORRT_LLM, spec, NEW, served).effect.loads


def test_another_width_is_to_be_announced(tmp_path):
    stored = tensors(width=2 * HIDDEN, embed_tokens__weight=(VOCAB, HIDDEN))
    spec = drafter(tmp_path, {}, stored, hidden=2 * HIDDEN)
    served = serve(TENSORRT_LLM, spec, NEW)
    assert [rule.name for rule, _ in served.effect.refusals] == ["TRT-WIDTH"]
    assert served.edit == {"target_hidden_size": 2 * HIDDEN}
    assert served_after(TENSORRT_LLM, spec, NEW, served).effect.loads


def test_a_drafter_without_aux_states_needs_the_launch_setting(tmp_path):
    config = {"eagle_config": {"use_aux_hidden_state": False}}
    served = asked(tmp_path, config, tensors(without=("fc.weight", "midlayer.hidden_norm.weight")))
    assert served.effect.loads is False
    assert served.effect.launch == {"speculative_config": {"eagle3_layers_to_capture": [-1]}}


def test_deeper_layers_keep_their_norm_under_hidden_norm(tmp_path):
    more = {f"layers__1__{name}__weight": (HIDDEN,) for name in ("input_layernorm", "post_attention_layernorm")}
    stored = {name.replace("midlayer.", "layers.0."): value for name, value in tensors(**more).items()}
    config = {"num_hidden_layers": 2, "mask_token_id": 5, "parallel_drafting": True}
    served = asked(tmp_path, config, stored | {"mask_hidden": ("BF16", (1, 1, 3 * HIDDEN))})
    assert served.effect.loads is False
    assert any("layers.1.hidden_norm.weight" in text for _, text in served.effect.refusals)


def test_peers(tmp_path):
    """ModelOpt's own export loads; speculators' format does not, nor do GGUF files."""
    on = target(tmp_path / "target", 8)
    exported = serve(TENSORRT_LLM, open_drafter(write_peer(tmp_path / "m", "modelopt_eagle3"), target=on), STABLE)
    assert exported.effect.loads
    foreign = open_drafter(write_peer(tmp_path / "s", "speculators_eagle3"), target=on)
    for spec in (foreign, open_drafter(str(GGUF))):
        assert [rule.name for rule, _ in serve(TENSORRT_LLM, spec, STABLE).effect.refusals] == ["TRT-FORMAT"]


def test_speculators_format_is_served_once_its_layer_lies_at_the_top(tmp_path):
    on = target(tmp_path / "target", 8)
    spec = open_drafter(write_peer(tmp_path / "s", "speculators_eagle3"), target=on)
    before = serve(TENSORRT_LLM, spec, STABLE)
    layer = spec.config.layer
    assert {key: before.edit[key] for key in ("hidden_size", "num_attention_heads", "model_type")} == {
        key: layer[key] for key in ("hidden_size", "num_attention_heads", "model_type")
    }
    after = served_after(TENSORRT_LLM, spec, STABLE, before)
    assert (after.effect.loads, after.edit) == (True, {})


def test_a_tied_head_stops_it_and_an_untied_one_does_not(tmp_path):
    """The class ties at once, when it has no embedding yet; AngelSlim's configs say true beside a head of their own."""
    spec = drafter(tmp_path, {"tie_word_embeddings": True})
    before = serve(TENSORRT_LLM, spec, NEW)
    assert [rule.name for rule, _ in before.effect.refusals] == ["TRT-TIED"]
    assert before.edit == {"tie_word_embeddings": False}
    assert served_after(TENSORRT_LLM, spec, NEW, before).effect.loads


def test_where_fc_is_skipped_no_norm_stands_before_it(tmp_path):
    """Three states of 16 are as wide as a drafter of 48."""
    narrow = tensors(width=16, hidden=48, embed_tokens__weight=(VOCAB, 48), input_norm__weight=(48,))
    config = {"target_hidden_size": 16, "hidden_size": 48, **nested(1, 15, 28, norm_before_fc=True)}
    served = asked(tmp_path, config, narrow, hidden=16)
    assert served.effect.wiring.pre_fc_norm == "none"
    assert served.effect.because["pre_fc_norm"].name == "TRT-FC-SKIP"


def _everything(folder: Path) -> list[Served]:
    """Drafters that show every rule."""
    on = target(folder / "target", 8)
    mla = open_drafter(write_peer(folder / "mla", "modelopt_eagle3_kimik2"), target=on)
    peagle = {"parallel_drafting": True, "mask_token_id": 5}
    biased = tensors(fc__bias=(HIDDEN,), mask_hidden=(1, 1, 3 * HIDDEN))
    narrow = tensors(width=16, hidden=48, embed_tokens__weight=(VOCAB, 48))
    eagle1 = {"fc.weight": ("BF16", (64, 128)), "layers.0.self_attn.o_proj.weight": ("BF16", (64, 64)),
              "layers.0.self_attn.q_proj.weight": ("BF16", (64, 64))}  # fmt: skip
    return [
        *(asked(folder / f"plain{i}", release=release) for i, release in enumerate((OLD, NEW))),
        asked(folder / "fc_norm", {"fc_norm": True}, tensors(**FC_NORMS)),
        asked(folder / "shallow", layers=5),
        asked(folder / "four", nested(1, 9, 15, 28), tensors(slots=4)),
        asked(folder / "zero", nested(0, 30, 61), layers=61),
        asked(folder / "eagle1", {"architectures": ["LlamaForCausalLM"], "draft_vocab_size": None}, eagle1),
        serve(TENSORRT_LLM, open_drafter(str(GGUF)), NEW),
        serve(TENSORRT_LLM, mla, OLD),
        asked(folder / "peagle", {**peagle, "architectures": ["PEagleDraftModel"]}, biased),
        asked(folder / "width", {}, tensors(width=2 * HIDDEN), hidden=2 * HIDDEN),
        asked(folder / "skip", {"target_hidden_size": 16, "hidden_size": 48}, narrow, hidden=16),
        asked(folder / "missing", NO_NORM, tensors(without=("norm.weight",))),
        asked(folder / "tied", {"tie_word_embeddings": True}),
        asked(folder / "vocab", {"draft_vocab_size": None}, tensors(without=("d2t", "t2d"))),
    ]


def test_every_rule_is_reached(tmp_path):
    seen = {name for served in _everything(tmp_path) for name in served.to_dict()["rules"]}
    folder = tmp_path / "plain0" / "drafter" / "config.json"
    folder.write_text(folder.read_text().replace("{", '{"eagle_config": null, ', 1))
    null = open_drafter(str(folder.parent), target=str(tmp_path / "plain0" / "target"))
    seen |= set(serve(TENSORRT_LLM, null, NEW).to_dict()["rules"])
    assert seen == {rule.name for rule in RULES}


def test_every_knob_names_its_rule(tmp_path):
    for release in (OLD, STABLE, NEW):
        effect = asked(tmp_path / release.version, release=release).effect
        assert set(effect.because) == set(KNOBS)
        assert all(rule.holds(release) for rule in effect.because.values())
