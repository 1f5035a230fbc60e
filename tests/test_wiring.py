"""What each dialect's checkpoints declare of their wiring."""

import dataclasses
import json
import math

import pytest

from drafter_audit import open_drafter
from drafter_audit.drafter.open import with_config, with_reading
from drafter_audit.drafter.wiring import KNOBS, Wiring, declared_wiring
from drafter_audit.errors import UsageError
from tests.checkpoints import EMBEDDING, KIMI_CONFIG, kimi_tensors, write_checkpoint, write_peer

# The closed list of the JSON contract.
CONTRACT = [
    "boundaries", "slot_order", "pre_fc_norm", "residual", "feedback", "hidden_norm", "concat", "token_shift",
    "position_offset", "rope_theta", "rope_scaling", "vocab_map", "embedding", "head", "embedding_scale",
    "final_norm", "last_state",
]  # fmt: skip

PLAIN = Wiring(boundaries=None)
DEEPSEEK = {"architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "num_hidden_layers": 61}
WITHOUT_IDS = {**KIMI_CONFIG, "eagle_config": {"use_aux_hidden_state": True}}


def target_of(folder, **config):
    """A target of which only config.json is there."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    return str(folder)


def kimi(tmp_path, *, target=None, tensors=None, ids=(2, 30, 58), **changes):
    eagle = {"eagle_aux_hidden_state_layer_ids": list(ids), "use_aux_hidden_state": True} | changes.pop("eagle", {})
    config = {**KIMI_CONFIG, "eagle_config": eagle, **changes}
    ref = write_checkpoint(tmp_path / "drafter", config, kimi_tensors() | (tensors or {}))
    named = target_of(tmp_path / "target", hidden_size=7168, vocab_size=163840, **(target or DEEPSEEK))
    return open_drafter(ref, target=named)


def apart(spec, base=PLAIN):
    """The knobs on which a drafter's declared wiring differs from the plain one, with their values."""
    wiring = declared_wiring(spec)
    return {knob: getattr(wiring, knob) for knob in KNOBS if getattr(wiring, knob) != getattr(base, knob)}


def test_the_knobs_are_those_of_the_contract():
    assert list(KNOBS) == CONTRACT
    assert list(PLAIN.to_dict()) == CONTRACT


def test_an_unknown_knob_tells_nothing_but_plain_rope_does():
    known = dataclasses.replace(PLAIN, boundaries=(2, 30, 58), rope_scaling=(("factor", 32.0), ("type", "yarn")))
    assert PLAIN.differs(known) == ("rope_scaling",)
    assert known.differs(dataclasses.replace(known, residual=None, concat="hidden_first")) == ("concat",)
    assert known.to_dict()["rope_scaling"] == {"factor": 32.0, "type": "yarn"}


@pytest.mark.parametrize(
    ("peer", "told"),
    [
        ("specforge_trained", {"vocab_map": "offset"}),
        ("speculators_eagle3", {"vocab_map": "offset", "boundaries": (2, 4, 5)}),
        ("speculators_converted", {"vocab_map": "offset", "boundaries": (2, 4, 5)}),
        ("modelopt_eagle3", {"vocab_map": "offset", "boundaries": (2, 4, 5)}),
    ],
)
def test_peers_declare_plain_eagle3(tmp_path, peer, told):
    """All four are the same network: their own code gives the same logits for it."""
    assert apart(open_drafter(write_peer(tmp_path / peer, peer))) == told


def test_the_switches_become_knobs(tmp_path):
    switches = {"norm_before_residual": True, "norm_before_fc": True, "fc_norm": True, "norm_output": True}
    rope = {"rope_theta": 150000.0, "rope_scaling": {"rope_type": "yarn", "factor": 32.0}}
    spec = kimi(tmp_path, tensors=EMBEDDING, eagle={"use_last_layernorm": False}, **switches, **rope)
    assert apart(spec) == {
        "boundaries": (2, 30, 58),
        "pre_fc_norm": "whole_then_per_state",
        "residual": "post_norm",
        "feedback": "post_norm",
        "rope_theta": 150000.0,
        "rope_scaling": (("factor", 32.0), ("type", "yarn")),
        "vocab_map": "offset",
        "final_norm": False,
    }


@pytest.mark.parametrize(
    ("switch", "residual"),
    [({}, None), ({"norm_before_residual": True}, "post_norm"), ({"norm_before_residual": False}, "pre_norm")],
)
def test_speculators_residual_is_unknown_where_its_switch_is_missing(tmp_path, switch, residual):
    spec = kimi(tmp_path, speculators_model_type="eagle3", **switch)
    assert declared_wiring(spec).residual == residual


def test_a_copied_embedding_is_the_targets_and_a_trained_one_its_own(tmp_path):
    assert declared_wiring(kimi(tmp_path, tensors=EMBEDDING)).embedding == "target"  # SpecForge freezes it
    trained = with_config(kimi_peagle(tmp_path), {**KIMI_CONFIG, "parallel_drafting": True})
    assert declared_wiring(trained).embedding == "own"


def kimi_peagle(tmp_path):
    tensors = kimi_tensors() | EMBEDDING | {"mask_hidden": ("BF16", (1, 1, 3 * 7168))}
    return open_drafter(write_checkpoint(tmp_path / "peagle", KIMI_CONFIG, tensors))


def test_a_head_that_is_not_stored_is_the_targets_or_the_embedding(tmp_path):
    tensors = {name: entry for name, entry in kimi_tensors().items() if name not in ("lm_head.weight", "d2t", "t2d")}
    config = {**WITHOUT_IDS, "draft_vocab_size": 163840}
    borrowed = open_drafter(write_checkpoint(tmp_path / "a", config, tensors))
    tied = open_drafter(write_checkpoint(tmp_path / "b", config | {"tie_word_embeddings": True}, tensors))
    assert (declared_wiring(borrowed).head, declared_wiring(tied).head) == ("target", "embedding")
    assert declared_wiring(borrowed).vocab_map == "identity"


def test_the_last_state_alone_is_read_after_the_norm(tmp_path):
    """EAGLE-1 and EAGLE-3 without aux states; ModelOpt feeds the latter the base's normed state (hf_eagle.py)."""
    tensors = {name: entry for name, entry in kimi_tensors().items() if "fc." not in name and "hidden_norm" not in name}
    config = {**KIMI_CONFIG, "eagle_config": {"use_aux_hidden_state": False}}
    ref = write_checkpoint(tmp_path / "noaux", config, tensors)
    spec = open_drafter(ref, target=target_of(tmp_path / "t", hidden_size=7168, vocab_size=163840, **DEEPSEEK))
    assert spec.kind.name == "eagle3_noaux"
    wiring = declared_wiring(spec)
    assert (wiring.boundaries, wiring.last_state, wiring.hidden_norm) == ((61,), "post_norm", None)


def test_slots_in_list_order_stay_so(tmp_path):
    """AngelSlim concatenates in the list's order, SpecForge by layer."""
    listed = kimi(tmp_path, ids=[57, 1, 29], architectures=["Eagle3LlamaForCausalLM"])
    assert (declared_wiring(listed).boundaries, declared_wiring(listed).slot_order) == ((58, 2, 30), "listed")
    sorted_ = with_config(listed, {**listed.config.raw, "architectures": ["LlamaForCausalLMEagle3"]}, told=False)
    assert (declared_wiring(sorted_).boundaries, declared_wiring(sorted_).slot_order) == ((2, 30, 58), "ascending")


def test_a_kind_without_an_eagle_layer_has_no_wiring(tmp_path):
    assert declared_wiring(open_drafter(write_peer(tmp_path / "lm", "tiny_llama"))) is None


@pytest.mark.parametrize(
    ("trainer", "scale"),
    [
        ({}, 1.0),
        ({"speculators_model_type": "eagle3"}, 1.0),
        ({"eagle": {"next_layer_regular": True}}, math.sqrt(7168)),
        ({"_torchspec_version": "1"}, None),
    ],
    ids=["specforge", "speculators", "modelopt", "torchspec"],
)
def test_gemmas_embedding_scale_depends_on_the_trainer(tmp_path, trainer, scale):
    gemma = {"architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text", "num_hidden_layers": 62}
    assert declared_wiring(kimi(tmp_path, target=gemma, **trainer)).embedding_scale == scale


# --- what the user, or an edit, says of the ids


def test_the_users_reading_overrules(tmp_path):
    """The story's drafter: ids 2, 30, 58 that mean the outputs of those layers."""
    spec = kimi(tmp_path)
    assert (spec.aux_layers.boundaries, spec.aux_layers.confidence) == ((2, 30, 58), "medium")
    said = with_reading(spec, "output_of_layer").aux_layers
    assert (said.boundaries, said.reading, said.confidence) == ((3, 31, 59), "output_of_layer", "high")
    assert said.alternatives == ()


def test_a_reading_needs_ids_and_must_fit(tmp_path):
    with pytest.raises(UsageError, match="no layer ids are declared"):
        with_reading(open_drafter(write_checkpoint(tmp_path / "none", WITHOUT_IDS, kimi_tensors())), "boundary")
    with pytest.raises(UsageError, match="leave a target of 61 layers"):
        with_reading(kimi(tmp_path, ids=[2, 30, 61]), "output_of_layer")


def test_the_note_of_an_edit_is_believed(tmp_path):
    """[1, 30, 58] at the top would be read otherwise; the edit noted what it means."""
    note = {"boundaries": [1, 30, 58], "written_for": "vllm@0.33.0"}
    aux = kimi(tmp_path, ids=[1, 30, 58], drafter_audit=note).aux_layers
    assert (aux.declared, aux.boundaries, aux.reading, aux.confidence) == ((1, 30, 58), (1, 30, 58), "boundary", "high")
    assert aux.why == "config.json notes them under drafter_audit.boundaries"
