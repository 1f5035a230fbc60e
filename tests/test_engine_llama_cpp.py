"""What llama.cpp makes of a drafter, by the vectors of public reports and by each rule."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from drafter_audit.drafter.open import open_drafter
from drafter_audit.drafter.wiring import KNOBS
from drafter_audit.engines.base import Release, Served
from drafter_audit.engines.llama_cpp import LLAMA_CPP
from drafter_audit.engines.llama_cpp.rules import RULES
from drafter_audit.engines.serving import serve
from tests.checkpoints import Tensors, write_peer
from tests.engine_drafters import (
    HIDDEN,
    SPECULATORS,
    VOCAB,
    drafter,
    knobs,
    nested,
    served_after,
    target,
    tensors,
    top,
)

OLD, BETWEEN, NEW = (Release("llama.cpp", build) for build in ("9637", "10100", "11312"))
GGUF = Path(__file__).parent / "data" / "gguf" / "drafter.gguf"


def asked(
    folder: Path, config: Any = None, stored: Tensors | None = None, *, release: Release = NEW, **on: Any
) -> Served:
    return serve(LLAMA_CPP, drafter(folder, config, stored, **on), release)


# Config, layers of the target, its model_type, boundaries of an old build, of the newest, and meant ones.
VECTORS = [
    pytest.param({}, 32, "llama", (2, 16, 29), (2, 16, 29), (2, 16, 29), id="1"),
    pytest.param(nested(1, 15, 28), 32, "llama", (2, 16, 29), (2, 16, 29), (2, 16, 29), id="2"),
    pytest.param(nested(2, 16, 29), 32, "llama", (2, 16, 29), (2, 16, 29), (2, 16, 29), id="3"),
    pytest.param(nested(24, 30, 36), 36, "gpt_oss", (2, 18, 33), (2, 18, 33), (24, 30, 36), id="7"),
    pytest.param(top(24, 30, 36), 36, "gpt_oss", (2, 18, 33), (24, 30, 36), (24, 30, 36), id="7, at the top"),
    pytest.param(nested(1, 17, 32), 36, "gpt_oss", (2, 18, 33), (2, 18, 33), (2, 18, 33), id="8"),
    pytest.param(nested(1, 11, 21), 24, "gpt_oss", (2, 12, 21), (2, 12, 21), (2, 12, 22), id="9"),
    pytest.param(top(2, 18, 33, **SPECULATORS), 36, "qwen3", (2, 18, 33), (2, 18, 33), (2, 18, 33), id="10"),
    pytest.param(top(1, 23, 44, **SPECULATORS), 48, "qwen3", (2, 24, 45), (1, 23, 44), (1, 23, 44), id="11"),
    pytest.param(nested(1, 21, 40), 43, "deepseek_v4", (2, 21, 40), (2, 21, 40), (2, 22, 41), id="PR 27040"),
]


@pytest.mark.parametrize(("config", "layers", "model_type", "old", "new", "meant"), VECTORS)
def test_ids(tmp_path, config, layers, model_type, old, new, meant):
    spec = drafter(tmp_path, config, layers=layers, model_type=model_type)
    assert spec.aux_layers.boundaries == meant
    before, after = (serve(LLAMA_CPP, spec, release) for release in (OLD, NEW))
    assert (before.boundaries, after.boundaries) == (old, new)
    assert (before.effect.loads, after.effect.loads) == (True, True)
    assert (before.edit, after.effect.launch) == ({}, {})
    assert after.edit.get("eagle_aux_hidden_state_layer_ids") == (None if new == meant else list(meant))
    assert not served_after(LLAMA_CPP, spec, NEW, after).differs


@pytest.mark.parametrize(("ids", "meant"), [((1, 29, 57), (2, 30, 58)), ((2, 30, 58), (3, 31, 59))])
def test_deepseek_targets_keep_no_layer_inputs(tmp_path, ids, meant):
    """Vectors 4 to 6. The converter takes the drafter, the first request aborts."""
    config = {**nested(*ids), "drafter_audit": {"boundaries": list(meant)}}
    served = asked(tmp_path, config, layers=61, model_type="deepseek_v3")
    assert (served.effect.loads, served.boundaries) == (False, (2, 30, 58))
    assert [rule.name for rule, _ in served.effect.refusals] == ["LCPP-HOOKS"]


def test_minimax_targets_came_later(tmp_path):
    spec = drafter(tmp_path, layers=62, model_type="minimax_m2")
    assert [rule.name for rule, _ in serve(LLAMA_CPP, spec, OLD).effect.refusals] == ["LCPP-HOOKS-LATE"]
    assert serve(LLAMA_CPP, spec, NEW).effect.loads


def test_dflash_is_not_judged(tmp_path):
    """Vector 12: llama.cpp has DFlash, by rules that are not here."""
    config = {"architectures": ["DFlashDraftModel"], "target_layer_ids": [1, 9, 17, 25, 33], "block_size": 8,
              "num_target_layers": 36}  # fmt: skip
    served = asked(tmp_path, config, {"fc.weight": ("BF16", (64, 320))}, layers=36)
    assert (served.effect.loads, served.effect.wiring) == (None, None)


def test_a_build_between_is_said_to_be_uncertain(tmp_path):
    served = asked(tmp_path, top(1, 11, 21), layers=24, release=BETWEEN)
    assert (served.proof, [rule.name for rule, _ in served.effect.notes]) == ("deduced", ["LCPP-UNDATED"])


@pytest.mark.parametrize(
    ("config", "layers", "model_type", "rule"),
    [
        pytest.param(top(-1, 16, 29), 32, "llama", "LCPP-RANGE", id="-1"),
        pytest.param(top(2, 16, 33), 32, "llama", "LCPP-RANGE", id="beyond"),
        pytest.param(top(2, 16, 32), 32, "llama", "LCPP-LAST", id="last, of a target that does not keep it"),
        pytest.param(top(2, 16, 32), 32, "gpt_oss", None, id="last, of one that does"),
        pytest.param(top(0, 16, 29), 32, "llama", None, id="0 is the embedding"),
        pytest.param(top(2, 9, 16, 29), 32, "llama", "LCPP-THREE", id="four"),
    ],
)
def test_the_ends_of_the_target(tmp_path, config, layers, model_type, rule):
    stored = tensors(slots=len(config["eagle_aux_hidden_state_layer_ids"]))
    served = asked(tmp_path, config, stored, layers=layers, model_type=model_type)
    assert [refused.name for refused, _ in served.effect.refusals] == ([] if rule is None else [rule])


def test_the_list_s_order_is_kept(tmp_path):
    """Vector 14: SpecForge sorts, llama.cpp does not; the edit writes the sorted list."""
    spec = drafter(tmp_path, top(29, 2, 16))
    served = serve(LLAMA_CPP, spec, NEW)
    assert (served.boundaries, knobs(served.differs)) == ((29, 2, 16), {"boundaries", "slot_order"})
    assert served.edit["eagle_aux_hidden_state_layer_ids"] == [2, 16, 29]
    assert not served_after(LLAMA_CPP, spec, NEW, served).differs


NESTED = {"norm_before_fc": True}
INPUT_NORM = {"input_norm__weight": (3 * HIDDEN,)}


@pytest.mark.parametrize(
    ("config", "release", "used", "edit"),
    [
        ({"norm_before_fc": True}, NEW, "whole", {}),
        ({"eagle_config": NESTED}, NEW, "none", {"norm_before_fc": True}),
        ({"norm_before_fc": True}, OLD, "none", {}),
    ],
)
def test_the_norm_before_fc(tmp_path, config, release, used, edit):
    """Where its flag is not read, the stored norm has no place and the drafter is refused."""
    spec = drafter(tmp_path, config, tensors(**INPUT_NORM))
    served = serve(LLAMA_CPP, spec, release)
    assert served.effect.wiring is not None
    assert (served.effect.wiring.pre_fc_norm, served.edit) == (used, edit)
    assert served.effect.loads == (used == "whole")
    assert served_after(LLAMA_CPP, spec, release, served).effect.loads == (release is NEW)


@pytest.mark.parametrize("switch", [True, False])
def test_the_residual_switch_is_honoured(tmp_path, switch):
    served = asked(tmp_path, {"norm_before_residual": switch}, release=OLD)
    assert served.effect.wiring is not None
    assert (served.effect.wiring.residual, served.differs) == ("post_norm" if switch else "pre_norm", ())


def test_the_feedback_is_before_the_norm(tmp_path):
    served = asked(tmp_path, {"norm_output": True, "eagle_config": {"return_hidden_post_norm": True}})
    assert (knobs(served.differs), served.edit) == ({"feedback"}, {})
    assert served.to_dict()["ignored_keys"] == ["norm_output", "eagle_config.return_hidden_post_norm"]


@pytest.mark.parametrize(
    ("more", "shown"),
    [
        ({f"fc_norm__{i}__weight": (HIDDEN,) for i in range(3)}, "fc_norm.0.weight"),
        ({"midlayer__self_attn__q_proj__bias": (64,)}, "self_attn.q_proj.bias"),
        ({"verifier_lm_head__weight": (128, HIDDEN)}, "verifier_lm_head.weight"),
    ],
)
def test_tensors_without_a_place(tmp_path, more, shown):
    served = asked(tmp_path, {}, tensors(**more))
    ((rule, text),) = served.effect.refusals
    assert rule.name == "LCPP-TENSORS"
    assert shown in text


@pytest.mark.parametrize(
    ("config", "release", "edit"),
    [
        ({"architectures": ["LlamaEagle3DraftModel"]}, NEW, {"architectures": ["LlamaForCausalLMEagle3"]}),
        ({"draft_vocab_size": None}, NEW, {"draft_vocab_size": 128}),
    ],
)
def test_what_keeps_a_drafter_from_being_converted_is_mended(tmp_path, config, release, edit):
    spec = drafter(tmp_path, config)
    served = serve(LLAMA_CPP, spec, release)
    assert (served.effect.loads, served.edit) == (False, edit)
    assert served_after(LLAMA_CPP, spec, release, served).effect.loads


def test_angelslim_s_class_came_later(tmp_path):
    spec = drafter(tmp_path, {"architectures": ["Eagle3LlamaForCausalLM"]})
    assert serve(LLAMA_CPP, spec, NEW).effect.loads
    assert [rule.name for rule, _ in serve(LLAMA_CPP, spec, OLD).effect.refusals] == ["LCPP-CLASS"]


def test_embedding_and_head(tmp_path):
    own = asked(tmp_path / "own", {}, tensors(embed_tokens__weight=(VOCAB, HIDDEN)))
    lent = asked(tmp_path / "lent", {"draft_vocab_size": VOCAB}, tensors(without=("lm_head.weight", "d2t", "t2d")))
    for served, head in ((own, "own"), (lent, "target")):
        assert served.effect.wiring is not None
        assert (served.effect.wiring.head, served.effect.wiring.embedding) == (head, "target")
        assert not served.differs


LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}


@pytest.mark.parametrize(
    ("rope", "differs"),
    [
        ({"rope_scaling": {**LLAMA3, "original_max_position_embeddings": 8192}}, set()),
        ({"rope_scaling": {**LLAMA3, "original_max_position_embeddings": 4096}}, {"rope_scaling"}),
        ({"rope_scaling": {"rope_type": "dynamic", "factor": 4.0}}, {"rope_scaling"}),
        ({"rope_scaling": {"rope_type": "linear", "factor": 4.0}}, set()),
        ({"rope_scaling": {"type": "linear", "factor": 4.0}, "rope_parameters": {"rope_theta": 1e4}}, {"rope_scaling"}),
    ],
)
def test_rope(tmp_path, rope, differs):
    assert knobs(asked(tmp_path, rope).differs) == differs


def _gguf(folder: Path, old: str, new: str) -> str:
    """The drafter that llama.cpp's own package wrote, one metadata key renamed to another of the same length or not."""
    data = GGUF.read_bytes()
    found = struct.pack("<Q", len(old)) + old.encode()
    assert data.count(found) == 1
    shift = len(new) - len(old)
    data = data.replace(found, struct.pack("<Q", len(new)) + new.encode())
    folder.mkdir()
    pad = (-shift) % 32  # tensors begin at a multiple of 32 behind the header: a key more fills the gap
    (folder / "drafter.gguf").write_bytes(_padded(data, pad))
    return str(folder / "drafter.gguf")


def _padded(data: bytes, pad: int) -> bytes:
    """`data` with one more metadata value whose name and text take `pad` bytes more, header sizes kept aligned."""
    kind, count_at = 8, 16
    name = b"general.note"
    text = b"x" * ((pad - len(name) - 8 - 4 - 8) % 32)
    (count,) = struct.unpack_from("<Q", data, count_at)
    entry = struct.pack("<Q", len(name)) + name + struct.pack("<IQ", kind, len(text)) + text
    return data[:count_at] + struct.pack("<Q", count + 1) + entry + data[count_at + 8 :]


def test_a_gguf_file_is_taken_at_its_word(tmp_path):
    spec = open_drafter(str(GGUF), target=target(tmp_path, 6))
    served = serve(LLAMA_CPP, spec, NEW)
    assert (served.effect.loads, served.boundaries, served.differs) == (True, (2, 4, 5), ())
    assert served.effect.wiring is not None
    assert served.effect.wiring.vocab_map == "absolute"
    assert [rule.name for rule, _ in serve(LLAMA_CPP, spec, OLD).effect.refusals] == ["LCPP-GGUF-KEY-OLD"]


def test_an_older_gguf_file_is_to_be_converted_anew(tmp_path):
    ref = _gguf(tmp_path / "old", "eagle3.target_layers", "eagle3.extract_layers")
    spec = open_drafter(ref, target=target(tmp_path / "target", 6))
    assert [rule.name for rule, _ in serve(LLAMA_CPP, spec, NEW).effect.refusals] == ["LCPP-GGUF-KEY"]
    assert serve(LLAMA_CPP, spec, OLD).effect.loads


def test_peers(tmp_path):
    """ModelOpt's and speculators' own exports are converted; latent attention is not."""
    on = target(tmp_path / "target", 8)
    for name, loads in (("modelopt_eagle3", True), ("speculators_eagle3", True), ("modelopt_eagle3_kimik2", False)):
        served = serve(LLAMA_CPP, open_drafter(write_peer(tmp_path / name, name), target=on), NEW)
        assert served.effect.loads == loads, name


def test_every_rule_is_reached(tmp_path):
    eagle1 = {"fc.weight": ("BF16", (64, 128)), "layers.0.self_attn.o_proj.weight": ("BF16", (64, 64)),
              "layers.0.self_attn.q_proj.weight": ("BF16", (64, 64))}  # fmt: skip
    gguf = open_drafter(str(GGUF), target=target(tmp_path / "six", 6))
    renamed = open_drafter(_gguf(tmp_path / "r", "eagle3.target_layers", "eagle3.extract_layers"))
    many = [
        *(asked(tmp_path / release.version, release=release) for release in (OLD, BETWEEN, NEW)),
        *(serve(LLAMA_CPP, spec, release) for spec in (gguf, renamed) for release in (OLD, NEW)),
        asked(tmp_path / "four", top(2, 9, 16, 29), tensors(slots=4)),
        asked(tmp_path / "range", top(2, 16, 40)),
        asked(tmp_path / "hooks", layers=61, model_type="deepseek_v3"),
        asked(tmp_path / "late", layers=62, model_type="minimax_m2", release=OLD),
        asked(tmp_path / "class", {"architectures": ["Other"], "draft_vocab_size": None}),
        asked(tmp_path / "tensors", {}, tensors(verifier_lm_head__weight=(128, HIDDEN))),
        asked(tmp_path / "kind", {"architectures": ["LlamaForCausalLM"], "draft_vocab_size": None}, eagle1),
    ]
    assert {name for served in many for name in served.to_dict()["rules"]} == {rule.name for rule in RULES}


def test_every_knob_names_its_rule(tmp_path):
    for release in (OLD, BETWEEN, NEW):
        effect = asked(tmp_path / release.version, release=release).effect
        assert set(effect.because) == set(KNOBS)
        assert all(rule.holds(release) for rule in effect.because.values())


def test_the_metadata_that_is_renamed_is_still_read(tmp_path):
    ref = _gguf(tmp_path / "old", "eagle3.target_layers", "eagle3.extract_layers")
    table = open_drafter(ref).table
    assert table is not None
    assert json.loads(table.metadata["eagle3.extract_layers"]) == [2, 4, 5]
