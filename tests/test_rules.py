"""Findings where config, tensors, ids and facts disagree, and none where they do not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from drafter_audit.audit.finding import Finding
from drafter_audit.audit.rules import find
from drafter_audit.drafter.open import open_drafter
from tests.checkpoints import KIMI_CONFIG, LEFTOVER, Tensors, kimi_tensors, read_peer, write_checkpoint, write_peer

KIMI_TARGET = "moonshotai-kimi-k2-instruct"


def found(
    folder: Path, *, target: str | None = KIMI_TARGET, tensors: Tensors | None = None, **config: Any
) -> dict[str, Finding]:
    ref = write_checkpoint(folder, {**KIMI_CONFIG, **config}, tensors or kimi_tensors())
    spec = replace(open_drafter(ref, target=target), evidence_none=None)  # a bundled target has no rows to compare
    return {finding.code: finding for finding in find(spec)}


def ids(*layer_ids: int) -> dict[str, Any]:
    return {"eagle_aux_hidden_state_layer_ids": list(layer_ids)}


OF_THE_PAIR = ["ROPE-DIFF", "QUANT-TARGET"]  # what sets a drafter of this family apart from Kimi-K2: no fault


def test_a_sound_drafter_has_only_its_ambiguous_ids(tmp_path: Path) -> None:
    findings = found(tmp_path / "aq")
    assert list(findings) == ["IDS-AMBIG", *OF_THE_PAIR]
    ambiguous = findings["IDS-AMBIG"]
    assert (ambiguous.severity, ambiguous.key) == ("warning", "eagle_config.eagle_aux_hidden_state_layer_ids")
    assert ambiguous.evidence["alternatives"] == [{"reading": "output_of_layer", "boundaries": [3, 31, 59]}]


def test_output_default_ids_are_not_ambiguous(tmp_path: Path) -> None:
    assert list(found(tmp_path / "aq", eagle_config=ids(1, 29, 57))) == OF_THE_PAIR


@pytest.mark.parametrize(
    "peer", ["specforge_eagle3", "speculators_eagle3", "modelopt_eagle3", "modelopt_eagle3_kimik2"]
)
def test_what_peers_wrote_has_no_error(tmp_path: Path, peer: str) -> None:
    target = write_peer(tmp_path / "target", "tiny_dsv3" if peer.endswith("kimik2") else "tiny_llama")
    findings = find(open_drafter(write_peer(tmp_path / peer, peer), target=target))
    assert [finding.code for finding in findings if finding.severity == "error"] == []


@pytest.mark.parametrize(
    ("changed", "code", "severity"),
    [
        ({"eagle_config": ids(1, 29, 61 + 1)}, "IDS-RANGE", "error"),
        ({"eagle_config": ids(58, 2, 30)}, "IDS-ORDER", "warning"),
        ({"eagle_config": ids(2, 2, 58)}, "IDS-DUP", "warning"),
        ({"eagle_config": ids(2, 58)}, "IDS-COUNT", "error"),
        ({"eagle_config": {}}, "IDS-MISSING", "info"),
        ({"eagle_layer_ids": [1, 29, 57]}, "IDS-CONFLICT", "error"),
        ({"intermediate_size": 12288}, "SHAPE-MISMATCH", "error"),
        ({"draft_vocab_size": 64000}, "SHAPE-MISMATCH", "error"),
        ({"norm_before_fc": True}, "NORM-FLAG", "error"),
        ({"fc_norm": True}, "NORM-FLAG", "error"),
        ({"dtype": "float16"}, "DTYPE", "info"),
        ({"rope_theta": None}, "ROPE-DEFAULT", "info"),
        ({"rope_parameters": {"rope_theta": 5e6}}, "ROPE-CONFLICT", "warning"),
        ({"target_hidden_size": 5000}, "FC-WIDTH", "error"),
    ],
)  # fmt: skip
def test_config_faults(tmp_path: Path, changed: dict[str, Any], code: str, severity: str) -> None:
    findings = found(tmp_path / "faulty", **changed)
    assert code in findings
    assert findings[code].severity == severity
    assert findings[code].consequence


@pytest.mark.parametrize(
    ("left_out", "added", "code", "severity"),
    [
        (("lm_head.weight",), {}, "HEAD-MISSING", "error"),
        (("norm.weight",), {}, "TENSOR-MISSING", "error"),
        (("d2t",), {}, "D2T-MISSING", "error"),
        ((), LEFTOVER, "LEFTOVER", "warning"),
        ((), {"input_norm.weight": ("BF16", (21504,))}, "NORM-FLAG", "error"),
        ((), {"fc_norm.0.weight": ("BF16", (7168,))}, "NORM-FLAG", "error"),
        (("norm.weight",), {"norm.weight": ("BF16", (4096,))}, "TENSOR-SHAPE", "error"),
        ((), {"midlayer.mlp.extra.weight_packed": ("I32", (8, 8))}, "PACKED-UNKNOWN", "warning"),
    ],
)  # fmt: skip
def test_tensor_faults(tmp_path: Path, left_out: tuple[str, ...], added: Tensors, code: str, severity: str) -> None:
    kept = {name: shape for name, shape in kimi_tensors().items() if name not in left_out}
    findings = found(tmp_path / "faulty", tensors={**kept, **added})
    assert code in findings
    assert findings[code].severity == severity


def test_a_full_vocabulary_needs_no_map(tmp_path: Path) -> None:
    tensors = {name: shape for name, shape in kimi_tensors().items() if name not in ("d2t", "t2d")}
    tensors["lm_head.weight"] = ("BF16", (163840, 7168))
    assert "D2T-MISSING" not in found(tmp_path / "full", tensors=tensors, draft_vocab_size=163840)


def test_modelopt_may_leave_out_the_last_norm(tmp_path: Path) -> None:
    config, tensors, _ = read_peer("modelopt_eagle3")
    del tensors["norm.weight"]
    config["eagle_config"]["use_last_layernorm"] = False
    findings = find(open_drafter(write_checkpoint(tmp_path / "m", config, tensors)))
    assert "TENSOR-MISSING" not in {finding.code for finding in findings}


def test_a_target_that_is_not_named_or_not_readable_is_told(tmp_path: Path) -> None:
    assert "TARGET-UNKNOWN" in found(tmp_path / "a", target=None)
    config, tensors, _ = read_peer("speculators_eagle3")  # names "tiny_llama", a folder of its author's
    codes = {f.code: f for f in find(open_drafter(write_checkpoint(tmp_path / "b", config, tensors)))}
    assert "tiny_llama" in codes["TARGET-UNREAD"].what


def test_another_vocabulary_than_the_targets_is_told(tmp_path: Path) -> None:
    target = write_peer(tmp_path / "target", "tiny_llama")
    finding = found(tmp_path / "aq", target=target)["VOCAB-MISMATCH"]
    assert finding.evidence == {"drafter": 163840, "target": 512}


def test_errors_come_first(tmp_path: Path) -> None:
    ref = write_checkpoint(tmp_path / "f", {**KIMI_CONFIG, "intermediate_size": 1, "dtype": "float16"}, kimi_tensors())
    severities = [finding.severity for finding in find(open_drafter(ref))]
    assert severities == sorted(severities, key=["error", "warning", "info"].index)
    assert {"error", "info"} <= set(severities)
