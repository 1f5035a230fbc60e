"""One drafter in the dialects of four trainers is one drafter: to the network, to `compare` and to `lint`.

It is the one whose drafts EAGLE's own code recorded, in tests/oracles/eagle_chain.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from drafter_audit import compare, load_drafter, open_drafter
from drafter_audit.audit.lint import lint
from tests.exporters import DIALECTS, export
from tests.plain_rounds import drafted

CHAIN = Path(__file__).parent / "oracles" / "eagle_chain"
BOUNDARIES = (2, 4, 5)  # what EAGLE takes of eight layers
TARGET = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_hidden_layers": 8, "hidden_size": 128}
STEPS = 4


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The target's config and embedding, which the drafter has a copy of."""
    folder = tmp_path_factory.mktemp("target")
    embedding = load_file(CHAIN / "model.safetensors")["embed_tokens.weight"]
    save_file({"model.embed_tokens.weight": embedding}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({**TARGET, "vocab_size": len(embedding)}))
    return folder


@pytest.fixture(scope="module")
def exported(target: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("exported")
    return {name: export(name, CHAIN, target, BOUNDARIES, folder / name) for name in DIALECTS}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_it_is_known_for_what_its_trainer_writes(exported: dict[str, str], target: Path, dialect: str) -> None:
    spec = open_drafter(exported[dialect], target=str(target))
    assert (spec.dialect.name, spec.kind.name) == (dialect, "eagle3")
    assert spec.aux_layers.boundaries == BOUNDARIES


@pytest.mark.parametrize("dialect", DIALECTS)
def test_it_stores_what_its_trainer_stores(exported: dict[str, str], dialect: str) -> None:
    stored = {tensor.name for tensor in open_drafter(exported[dialect]).table or ()}
    peer = Path(__file__).parent / "oracles" / f"{dialect}_plain" / "model.safetensors"
    if dialect == "eagle":  # its drafters are told of in formats alone: no file of theirs is at hand
        assert (Path(exported[dialect]) / "pytorch_model.bin").is_file()
    else:
        with safe_open(peer, "pt") as file:
            theirs = set(file.keys())
        assert theirs - stored <= {"embed_tokens.weight"}  # SpecForge's export for engines drops the frozen copy
        assert stored <= theirs


@pytest.mark.parametrize("dialect", DIALECTS)
def test_all_give_the_logits_of_the_drafter_itself(exported: dict[str, str], target: Path, dialect: str) -> None:
    tables = load_file(CHAIN / "oracle.safetensors")
    states = tables["states0"]
    ids = tables["sequence0"][1 : states.shape[1] + 1]
    ours, theirs = (load_drafter(ref, target=str(target)) for ref in (str(CHAIN), exported[dialect]))
    assert torch.equal(ours.unroll(ids, states, STEPS), theirs.unroll(ids, states, STEPS))


@pytest.mark.parametrize("dialect", DIALECTS)
def test_all_draft_and_are_accepted_as_in_eagle(exported: dict[str, str], target: Path, dialect: str) -> None:
    tables, drafter = load_file(CHAIN / "oracle.safetensors"), load_drafter(exported[dialect], target=str(target))
    for text in range(2):
        sequence, states = tables[f"sequence{text}"], tables[f"states{text}"]
        lengths = tables[f"lengths{text}"].tolist()
        drafts = [drafted(drafter, sequence, states, length, STEPS) for length in lengths]
        assert drafts == tables[f"drafts{text}"].tolist()


def test_compare_calls_them_the_same_drafter(exported: dict[str, str], target: Path) -> None:
    found = compare(list(exported.values()), target=str(target))
    assert next(each.numbers for each in found.conclusions if each.code == "same_architecture") == {"same": True}
    assert {each.field for each in found.differences} == {"parameters.stored", "parameters.frozen"}  # one embedding


@pytest.mark.parametrize("last", DIALECTS)
def test_their_tensors_are_the_same(exported: dict[str, str], last: str) -> None:
    others = [ref for name, ref in exported.items() if name != last]
    for found in compare([*others, exported[last]], weights=True).weights or ():
        assert found.differing == ()
        assert len(found.tensors) >= 14
        assert {*found.only_theirs, *found.only_ours} <= {"embed_tokens.weight", "t2d"}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_lint_finds_no_error(exported: dict[str, str], target: Path, dialect: str) -> None:
    assert [each for each in lint(exported[dialect], target=str(target)).findings if each.severity == "error"] == []
