"""The network against peers that no one here wrote: their checkpoints as they saved them, and their own logits.

Each folder of tests/oracles/ holds a peer's config.json and model.safetensors, and in oracle.safetensors what its code
computed; the metadata tells by which knobs that differs from what the files declare. tests/oracles/README.md says more.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from drafter_audit import Drafter, load_drafter, open_drafter
from drafter_audit.drafter.wiring import Wiring, declared_wiring

ORACLES = Path(__file__).parent / "oracles"


def holding(part: str) -> list[str]:
    """The oracles that hold a tensor of that name."""
    return sorted(path.parent.name for path in ORACLES.glob("*/oracle.safetensors") if part in load_file(path))


UNROLLED, CHAINS = holding("logits"), holding("drafts0")
FP32 = 1e-4


def wiring_of(folder: Path) -> tuple[Wiring, dict[str, Any]]:
    """What the drafter declares, and by which knobs its peer differs from that; a knob that nothing tells is set to
    what the peer computes."""
    declared = declared_wiring(open_drafter(str(folder)))
    assert declared is not None
    with safe_open(folder / "oracle.safetensors", "pt") as file:
        differs = json.loads(file.metadata()["differs"])
    return replace(declared, hidden_norm=declared.hidden_norm or "none"), differs


def target_of(folder: Path, made: Path) -> str | None:
    """A folder with the target's embedding and head, where the drafter borrows them."""
    tables = load_file(folder / "oracle.safetensors")
    if "target_embedding" not in tables:
        return None
    weights = {"model.embed_tokens.weight": tables["target_embedding"]}
    weights |= {"lm_head.weight": tables["target_head"]} if "target_head" in tables else {}
    made.mkdir()
    save_file(weights, made / "model.safetensors")
    config = {"model_type": "llama", "tie_word_embeddings": False, "num_hidden_layers": 8}
    config |= {"hidden_size": tables["target_embedding"].shape[1], "vocab_size": tables["target_embedding"].shape[0]}
    (made / "config.json").write_text(json.dumps(config))
    return str(made)


def farthest(drafter: Drafter, folder: Path) -> float:
    """The largest difference to the peer's logits, over all that it computed."""
    tables = load_file(folder / "oracle.safetensors")
    steps, tokens, _ = tables["logits"].shape
    ours = drafter.unroll(tables["input_ids"], tables["states"], steps).cpu()
    valid = tables.get("valid", torch.full((steps,), tokens)).tolist()
    return max(
        float((mine[:count] - peer[:count]).abs().max())
        for mine, peer, count in zip(ours, tables["logits"], valid, strict=True)
    )


@pytest.mark.parametrize("name", UNROLLED)
def test_the_peers_logits(name: str, tmp_path: Path) -> None:
    folder = ORACLES / name
    wiring, differs = wiring_of(folder)
    drafter = load_drafter(
        str(folder), wiring=replace(wiring, **differs), target=target_of(folder, tmp_path / "target")
    )
    assert farthest(drafter, folder) <= FP32


@pytest.mark.parametrize("name", UNROLLED)
def test_where_a_peer_differs_from_its_files_the_declared_wiring_is_not_what_it_computes(
    name: str, tmp_path: Path
) -> None:
    folder = ORACLES / name
    wiring, differs = wiring_of(folder)
    target = target_of(folder, tmp_path / "target")
    for knob, value in differs.items():
        if (knob, value) == ("embedding", "own") and target is None:  # its own is the only one there is
            continue
        without = replace(wiring, **{other: told for other, told in differs.items() if other != knob})
        assert farthest(load_drafter(str(folder), wiring=without, target=target), folder) > 100 * FP32


def test_without_states_to_fuse_modelopts_drafter_reads_no_token(tmp_path: Path) -> None:
    folder = ORACLES / "modelopt_no_states"
    tables, (wiring, differs) = load_file(folder / "oracle.safetensors"), wiring_of(folder)
    target = target_of(folder, tmp_path / "target")
    drafter = load_drafter(str(folder), wiring=replace(wiring, **differs), target=target)
    assert "which tokens it is given changes nothing" in " ".join(drafter.loaded.notes)
    ids, states = tables["input_ids"], tables["states"]
    assert torch.equal(drafter.unroll(ids, states, 3), drafter.unroll(ids.flip(0), states, 3))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
@pytest.mark.parametrize(("dtype", "bound"), [("float32", 1e-3), ("bfloat16", 0.25)])
@pytest.mark.parametrize("name", UNROLLED)
def test_the_peers_logits_on_a_gpu(name: str, dtype: str, bound: float, tmp_path: Path) -> None:
    folder = ORACLES / name
    wiring, differs = wiring_of(folder)
    target = target_of(folder, tmp_path / "target")
    drafter = load_drafter(str(folder), wiring=replace(wiring, **differs), target=target, dtype=dtype, device="cuda")
    scale = float(load_file(folder / "oracle.safetensors")["logits"].abs().max())
    assert farthest(drafter, folder) <= bound * max(1.0, scale)


@pytest.mark.parametrize("name", CHAINS)
def test_the_peers_own_rounds_step_by_step(name: str, tmp_path: Path) -> None:
    """Each round extends the text by the true states of what was accepted, then drafts as many tokens as the peer; its
    logits are the peer's too, where they were recorded."""
    folder = ORACLES / name
    tables = load_file(folder / "oracle.safetensors")
    drafter = load_drafter(str(folder), target=target_of(folder, tmp_path / "target"))
    for text in range(sum(key.startswith("sequence") for key in tables)):
        sequence, states, cache, seen = tables[f"sequence{text}"], tables[f"states{text}"], drafter.start(), 0
        for number, length in enumerate(tables[f"lengths{text}"].tolist()):
            theirs = tables[f"drafts{text}"][number].tolist()
            logits = [drafter.extend(cache, sequence[seen + 1 : length + 1], states[:, seen:length])[-1]]
            logits += [drafter.draft(cache, token) for token in theirs[:-1]]
            seen, ours = length, torch.stack(logits)
            assert drafter.target_ids(ours.argmax(dim=-1)).tolist() == theirs
            peer = tables.get(f"logits{text}")
            assert peer is None or float((ours - peer[number]).abs().max()) <= FP32
