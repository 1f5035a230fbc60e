"""One drafter in the dialects of four trainers is one drafter: to the network, to `compare` and to `lint`.

Two are exported: the reference pair's, and that of tests/oracles/eagle_chain, whose drafts EAGLE's own code recorded.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from drafter_audit import compare, load_drafter, open_drafter
from drafter_audit.audit.lint import lint
from drafter_audit.decode.live import LiveRun, decode_live
from drafter_audit.decode.settings import Settings
from drafter_audit.model.target.load import load_target
from drafter_audit.prompts.prompt import TokenPrompt
from tests.engines_run import vllm_pair
from tests.exporters import DIALECTS, export
from tests.plain_rounds import drafted

ORACLES = Path(__file__).parent / "oracles"
CHAIN = ORACLES / "eagle_chain"
STEPS = 4


@dataclass(frozen=True)
class Exported:
    """A drafter, its target and boundaries, and where each dialect's export of it lies."""

    drafter: str
    target: str
    boundaries: tuple[int, ...]
    refs: dict[str, str]


def _exported(drafter: Path, target: Path, boundaries: tuple[int, ...], folder: Path) -> Exported:
    refs = {name: export(name, drafter, target, boundaries, folder / name) for name in DIALECTS}
    return Exported(str(drafter), str(target), boundaries, refs)


def _chain(folder: Path) -> Exported:
    """Of its target there is the embedding, which the drafter has a copy of."""
    embedding = load_file(CHAIN / "model.safetensors")["embed_tokens.weight"]
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_hidden_layers": 8}
    config |= {"hidden_size": embedding.shape[1], "vocab_size": len(embedding)}
    (folder / "target").mkdir()
    save_file({"model.embed_tokens.weight": embedding}, folder / "target" / "model.safetensors")
    (folder / "target" / "config.json").write_text(json.dumps(config))
    return _exported(CHAIN, folder / "target", (2, 4, 5), folder)


def _pair(folder: Path) -> Exported:
    return _exported(vllm_pair.DRAFTER, vllm_pair.TARGET, (2, 6, 9), folder)


@pytest.fixture(scope="module", params=[_chain, _pair], ids=["chain", "pair"])
def exported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Exported:
    made: Callable[[Path], Exported] = request.param
    return made(tmp_path_factory.mktemp("exported"))


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    return _chain(tmp_path_factory.mktemp("chain"))


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    return _pair(tmp_path_factory.mktemp("pair"))


each_dialect = pytest.mark.parametrize("dialect", DIALECTS)


@each_dialect
def test_it_is_known_for_what_its_trainer_writes(exported: Exported, dialect: str) -> None:
    spec = open_drafter(exported.refs[dialect], target=exported.target)
    assert (spec.dialect.name, spec.kind.name) == (dialect, "eagle3")
    assert spec.aux_layers.boundaries == exported.boundaries


@pytest.mark.parametrize("dialect", ["specforge", "speculators", "modelopt"])
def test_it_stores_what_its_trainer_stores(exported: Exported, dialect: str) -> None:
    stored = {tensor.name for tensor in open_drafter(exported.refs[dialect]).table or ()}
    with safe_open(ORACLES / f"{dialect}_plain" / "model.safetensors", "pt") as file:
        theirs = set(file.keys())
    dropped = {"embed_tokens.weight"} if dialect == "specforge" else set()  # by its export for engines
    assert stored == theirs - dropped


def test_eagles_own_is_pickled(exported: Exported) -> None:
    assert {path.name for path in Path(exported.refs["eagle"]).iterdir()} == {"config.json", "pytorch_model.bin"}


@each_dialect
def test_all_give_the_logits_of_the_drafter_itself(exported: Exported, dialect: str) -> None:
    ours, theirs = (load_drafter(ref, target=exported.target) for ref in (exported.drafter, exported.refs[dialect]))
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(3, 500, (24,), generator=generator)
    states = torch.randn((3, 24, ours.states_shape[1]), generator=generator)
    assert torch.equal(ours.unroll(ids, states, STEPS), theirs.unroll(ids, states, STEPS))


@each_dialect
def test_all_draft_what_eagle_drafted(chain: Exported, dialect: str) -> None:
    tables, drafter = load_file(CHAIN / "oracle.safetensors"), load_drafter(chain.refs[dialect], target=chain.target)
    for text in range(2):
        sequence, states = tables[f"sequence{text}"], tables[f"states{text}"]
        lengths = tables[f"lengths{text}"].tolist()
        drafts = [drafted(drafter, sequence, states, length, STEPS) for length in lengths]
        assert drafts == tables[f"drafts{text}"].tolist()


@each_dialect
def test_all_are_accepted_alike(pair: Exported, dialect: str) -> None:
    ours, theirs = (_decoded(ref, pair.target) for ref in (pair.drafter, pair.refs[dialect]))
    assert theirs.rounds == ours.rounds
    assert sum(counts.accepted for counts in ours.counts) > sum(counts.rounds for counts in ours.counts)


@cache
def _decoded(ref: str, target: str) -> LiveRun:
    prompts = [TokenPrompt(row["id"], None, tuple(row["token_ids"])) for row in vllm_pair.token_rows()[:4]]
    settings = Settings(steps=3, max_new_tokens=64, plain=False)
    return decode_live(load_drafter(ref, target=target), load_target(target, dtype="float32"), prompts, settings)


def test_compare_calls_them_the_same_drafter(exported: Exported) -> None:
    found = compare(list(exported.refs.values()), target=exported.target)
    assert next(each.numbers for each in found.conclusions if each.code == "same_architecture") == {"same": True}
    assert {each.field for each in found.differences} == {"parameters.stored", "parameters.frozen"}  # one embedding


@each_dialect
def test_their_tensors_are_the_same(exported: Exported, dialect: str) -> None:
    others = [ref for name, ref in exported.refs.items() if name != dialect]
    comparisons = compare([*others, exported.refs[dialect]], weights=True).weights or ()
    assert len(comparisons) == 3
    for found in comparisons:
        assert found.differing == ()
        assert len(found.tensors) >= 14
        assert {*found.only_theirs, *found.only_ours} <= {"embed_tokens.weight", "t2d"}


@each_dialect
def test_lint_finds_no_error(exported: Exported, dialect: str) -> None:
    found = lint(exported.refs[dialect], target=exported.target).findings
    assert [each for each in found if each.severity == "error"] == []
