"""What looks like a fault and is none, and what must never pass: both lists whole, each on files.

"Fails" is a finding of severity error. The reports that each entry comes from are named beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drafter_audit.audit.lint import Lint, lint
from drafter_audit.drafter.open import open_drafter
from drafter_audit.errors import ConfigError
from tests.checkpoints import PEERS, read_peer
from tests.whole import table, write_config, write_whole, write_whole_peer

WIDTH, VOCABULARY = 64, 512  # of the peers' small pair

Build = Callable[[Path], Lint]


def drafted(config: dict[str, Any] | None = None, target: dict[str, Any] | None = None, **arrays: Any) -> Build:
    """SpecForge's drafter, changed, on its target's config alone, changed."""

    def build(folder: Path) -> Lint:
        theirs = write_config(folder / "target", {**read_peer("tiny_llama")[0], **(target or {})})
        return lint(write_whole_peer(folder / "drafter", "specforge_eagle3", config, **arrays), target=theirs)

    return build


def full(**arrays: Any) -> Build:
    """A drafter of the whole vocabulary, whose head is its own."""
    tables = {"lm_head__weight": table((VOCABULARY, WIDTH)), "d2t": None, "t2d": None, **arrays}
    return drafted({"draft_vocab_size": VOCABULARY}, **tables)


def beside_its_target(embedding_seed: int) -> Build:
    """A drafter with an embedding of that seed, on a target with the one of seed 1 and a head of its own."""

    def build(folder: Path) -> Lint:
        shape = (VOCABULARY, WIDTH)
        theirs = {"model.embed_tokens.weight": table(shape, seed=1), "lm_head.weight": table(shape, seed=2)}
        target = write_whole(folder / "target", read_peer("tiny_llama")[0], theirs)
        arrays = {"embed_tokens__weight": table(shape, seed=embedding_seed)}
        return lint(write_whole_peer(folder / "drafter", "specforge_eagle3", **arrays), target=target)

    return build


def padded(folder: Path) -> Lint:
    """vllm-project/vllm#55133: 201024 draft tokens and embedding rows beside a target's 200058, and no map."""
    rows = VOCABULARY + 64
    tables: dict[str, Any] = {"lm_head__weight": table((rows, WIDTH)), "embed_tokens__weight": table((rows, WIDTH))}
    sizes = {"vocab_size": rows, "draft_vocab_size": rows}
    return drafted(sizes, d2t=None, t2d=None, **tables)(folder)


def wide_heads(folder: Path) -> Lint:
    """Tencent/AngelSlim#5: 80 = hidden / heads in the drafter, 128 in its target."""
    return drafted(target={"head_dim": 48})(folder)


YARN = {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0}}

PASSES: dict[str, tuple[Build, dict[str, str]]] = {
    "a zero map of equal vocabularies (EAGLE#222)": (full(d2t=np.zeros(VOCABULARY, np.int64)), {}),
    "no map of equal vocabularies (executorch#20149)": (full(), {}),
    "a padded vocabulary without a map (vllm#55133)": (padded, {"VOCAB-MISMATCH": "warning"}),
    "positions below the target's (SpecForge#220)": (
        drafted(target={"max_position_embeddings": 131072}),
        {"MAXPOS": "warning"},
    ),
    "another rope than the target's (Model-Optimizer#917)": (drafted(target=YARN), {"ROPE-DIFF": "warning"}),
    "a head that is not the target's (EAGLE#303)": (beside_its_target(1), {}),
    "attention that reads twice the width (DeepSpec#44)": (drafted(), {}),
    "another head_dim than the target's (AngelSlim#5)": (wide_heads, {"HEAD-DIM-TARGET": "info"}),
}

FAILS: dict[str, tuple[Build, str]] = {
    "a reduced vocabulary without a map (Automodel#2447)": (drafted(d2t=None, t2d=None), "D2T-MISSING"),
    "no head of a reduced vocabulary (vllm-ascend#9795)": (drafted(lm_head__weight=None), "HEAD-MISSING"),
    "no head, and the target's is too wide": (
        drafted(
            {"draft_vocab_size": VOCABULARY, "target_hidden_size": 2 * WIDTH},
            {"hidden_size": 2 * WIDTH},
            lm_head__weight=None,
            d2t=None,
            t2d=None,
            fc__weight=table((WIDTH, 6 * WIDTH)),
        ),
        "HEAD-BORROW",
    ),
    "no embedding, and the target's is too wide (vllm#18906)": (
        drafted(
            {"target_hidden_size": 2 * WIDTH},
            {"hidden_size": 2 * WIDTH},
            embed_tokens__weight=None,
            fc__weight=table((WIDTH, 6 * WIDTH)),
        ),
        "EMB-WIDTH",
    ),
    "fc reads no multiple of the target's width": (drafted(fc__weight=table((WIDTH, 3 * WIDTH + 1))), "FC-WIDTH"),
    "an id beyond the target's layers (vllm#46788)": (
        drafted({"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 3, 9]}}),
        "IDS-RANGE",
    ),
    "an id below the embedding": (
        drafted({"eagle_config": {"eagle_aux_hidden_state_layer_ids": [-2, 3, 4]}}),
        "IDS-RANGE",
    ),
    "a norm tensor without its flag (vllm#38111)": (
        drafted(input_norm__weight=table((3 * WIDTH,))),
        "NORM-FLAG",
    ),
    "a flag without its norm tensor (Automodel#2897)": (drafted({"fc_norm": True}), "NORM-FLAG"),
    "an embedding of another model, frozen by its trainer (TorchSpec#38)": (beside_its_target(3), "EMB-UNRELATED"),
}


@pytest.mark.parametrize("name", PASSES)
def test_it_does_not_fail(tmp_path: Path, name: str) -> None:
    build, told = PASSES[name]
    findings = build(tmp_path).findings
    assert [(finding.code, finding.what) for finding in findings if finding.severity == "error"] == []
    severities = {finding.code: finding.severity for finding in findings}
    assert {code: severities.get(code) for code in told} == told


@pytest.mark.parametrize("name", FAILS)
def test_it_fails(tmp_path: Path, name: str) -> None:
    build, code = FAILS[name]
    assert code in [finding.code for finding in build(tmp_path).findings if finding.severity == "error"]


@pytest.mark.parametrize("size", [0, -1, 4.0, True, "32000"])
def test_a_draft_vocabulary_of_no_size_is_refused(tmp_path: Path, size: object) -> None:
    """NVIDIA-NeMo/Automodel#2260: -1 sliced a list, 0 gave empty logits, 4.0 was accepted."""
    with pytest.raises(ConfigError, match="draft_vocab_size"):
        drafted({"draft_vocab_size": size})(tmp_path)


@pytest.mark.parametrize(
    "rope",
    [
        {"rope_theta": 1e4, "rope_parameters": None},
        {"rope_parameters": {"rope_theta": 1e4, "rope_type": "default"}},
        {"rope_theta": 1e4, "rope_scaling": {"rope_type": "default"}, "rope_parameters": None},
    ],
)
def test_one_rope_in_any_layout_is_one(tmp_path: Path, rope: dict[str, Any]) -> None:
    """pytorch/executorch#20149, NVIDIA-NeMo/Automodel#2920."""
    codes = {finding.code for finding in drafted(rope)(tmp_path).findings}
    assert not codes & {"ROPE-DIFF", "ROPE-CONFLICT", "ROPE-DEFAULT"}


def test_an_unknown_model_type_is_no_failure(tmp_path: Path) -> None:
    """sgl-project/sglang#25673: AutoConfig raises a KeyError."""
    found = drafted({"model_type": "kimi_k9"}, {"model_type": "kimi_k9"})(tmp_path)
    assert not [finding for finding in found.findings if finding.severity == "error"]


def test_a_target_may_be_a_config_alone(tmp_path: Path) -> None:
    target = write_config(tmp_path / "target", read_peer("tiny_llama")[0])
    spec = open_drafter(write_whole_peer(tmp_path / "drafter", "specforge_eagle3"), target=target)
    assert (spec.target.num_layers, spec.target.max_position_embeddings) == (8, 512)
    assert spec.evidence == ()
    assert spec.evidence_none is not None


PEER_TARGETS = {
    "specforge_eagle3": "tiny_llama",
    "specforge_trained": None,  # its target of 8 layers, width 128, is not among the peers' files
    "speculators_eagle3": "tiny_llama",
    "speculators_converted": None,
    "modelopt_eagle3": "tiny_llama",
    "modelopt_eagle3_kimik2": "tiny_dsv3",
}


@pytest.mark.parametrize("peer", PEER_TARGETS)
def test_what_peers_wrote_has_no_error(tmp_path: Path, peer: str) -> None:
    named = PEER_TARGETS[peer]
    target = None if named is None else write_config(tmp_path / "target", read_peer(named)[0])
    found = lint(write_whole_peer(tmp_path / peer, peer), target=target)
    assert [(finding.code, finding.what) for finding in found.findings if finding.severity == "error"] == []


def test_every_peer_is_linted() -> None:
    drafters = {folder.name for folder in PEERS.iterdir() if folder.is_dir() and not folder.name.startswith("tiny_")}
    assert drafters == set(PEER_TARGETS)
