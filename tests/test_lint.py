"""Levels of knowledge, what each leaves unchecked, and boundaries in words."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from drafter_audit.audit.engine_codes import CODES
from drafter_audit.audit.lint import Lint, lint
from drafter_audit.drafter.open import open_drafter
from drafter_audit.errors import UsageError
from tests.checkpoints import EMBEDDING, KIMI_CONFIG, PEERS, kimi_tensors, read_peer, write_checkpoint, write_peer
from tests.findings.engines import CASES, NESTED, kimi, write_target
from tests.hub import Hub
from tests.rows import cut_peer


def kimi_checkpoint(folder: Path, ids: list[int] | None = None) -> str:
    eagle = {**KIMI_CONFIG["eagle_config"], **({} if ids is None else {NESTED: ids})}
    return write_checkpoint(folder, {**KIMI_CONFIG, "eagle_config": eagle}, kimi_tensors())


def about(result: Lint, *words: str) -> list[str]:
    return [each for each in result.not_checked if all(word in each for word in words)]


# --- levels


@pytest.fixture
def pair(tmp_path: Path) -> tuple[str, str]:
    return cut_peer(tmp_path / "drafter", "specforge_eagle3"), cut_peer(tmp_path / "target", "tiny_llama")


@pytest.mark.parametrize("level", ["drafter", "target_config", "target_headers", "target_rows"])
def test_a_level_bounds_what_is_read(pair: tuple[str, str], level: str) -> None:
    result = lint(pair[0], target=pair[1], level=level)
    assert result.level == level
    spec = result.spec
    assert (spec.target.num_layers is not None) == (level != "drafter")
    assert bool(spec.target_tables) == (level in ("target_headers", "target_rows"))
    assert bool(spec.evidence) == (level == "target_rows")
    assert spec.target.said_by == "--target"


@pytest.mark.parametrize(("level", "sentences"), [("drafter", 3), ("target_config", 2), ("target_headers", 1),
                                                  ("target_rows", 0)])  # fmt: skip
def test_a_sentence_for_each_level_above(pair: tuple[str, str], level: str, sentences: int) -> None:
    result = lint(pair[0], target=pair[1], level=level)
    assert len(about(result, f"--level {level} stops before it")) == sentences


def test_without_a_target_it_says_how_to_name_one(tmp_path: Path) -> None:
    result = lint(kimi_checkpoint(tmp_path))
    assert result.level == "drafter"
    for words in ("layer count", "boundaries", "rope", "vocabulary", "family"):
        assert about(result, words, "--target")
    assert about(result, "width of the target's embedding")
    assert about(result, "tokenizer")


def test_a_target_of_config_json_alone(tmp_path: Path) -> None:
    result = lint(kimi_checkpoint(tmp_path / "d"), target=write_target(tmp_path / "t"))
    assert result.level == "target_config"
    assert result.spec.target.num_layers == 61
    assert len(about(result, "has no weight files")) == 2


def test_a_target_of_config_json_alone_is_told_once(tmp_path: Path) -> None:
    """What is not checked says it; the finding is for a target whose weights should have been there."""
    result = lint(write_peer(tmp_path / "d", "specforge_eagle3"), target=write_target(tmp_path / "t"))
    assert about(result, "trained or random", "has no weight files")
    assert "EVIDENCE-NONE" not in {finding.code for finding in result.findings}


def test_a_target_whose_weights_cannot_be_had_is_a_warning_too(hub: Hub, tmp_path: Path) -> None:
    """Its config is bundled; the stand-in has no such repository."""
    result = lint(write_peer(tmp_path / "d", "specforge_eagle3"), target="moonshotai/Kimi-K2-Instruct")
    assert about(result, "trained or random", "moonshotai/Kimi-K2-Instruct")
    assert [f.severity for f in result.findings if f.code == "EVIDENCE-NONE"] == ["warning"]


def test_a_bundled_target_has_a_config_alone(tmp_path: Path) -> None:
    result = lint(kimi_checkpoint(tmp_path / "d"), target="moonshotai-kimi-k2-instruct")
    assert result.level == "target_config"
    assert about(result, "bundled record")


def test_headers_tell_of_both_tables(tmp_path: Path) -> None:
    """A tied target's head is its embedding; here both are stored. Shapes are those of the peer's own header."""
    target = write_peer(tmp_path / "target", "tiny_llama")
    spec = open_drafter(write_peer(tmp_path / "drafter", "modelopt_eagle3"), target=target, level="target_headers")
    shapes = read_peer("tiny_llama")[1]
    assert {table.part: (table.name, (table.rows, table.width)) for table in spec.target_tables} == {
        "embed_tokens.weight": ("model.embed_tokens.weight", shapes["model.embed_tokens.weight"][1]),
        "lm_head.weight": ("lm_head.weight", shapes["lm_head.weight"][1]),
    }


def test_a_hub_drafter_reads_the_config_of_its_target_unasked(hub: Hub) -> None:
    config, _, _ = read_peer("speculators_eagle3")
    config["speculators_config"]["verifier"]["name_or_path"] = "org/target"
    hub.add_repo("org/drafter", files={"config.json": json.dumps(config).encode()})
    hub.add_repo("org/target", files={"config.json": (PEERS / "tiny_llama" / "config.json").read_bytes()})
    result = lint("org/drafter")
    assert result.level == "target_config"
    assert about(result, "named with --target only")
    assert lint("org/drafter", level="drafter").spec.target.num_layers is None


# --- what of the drafter is not checked


def test_a_config_alone_leaves_the_tensors_open(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(KIMI_CONFIG))
    assert about(lint(str(tmp_path)), "no weights were read")


def test_a_plain_language_model_has_no_target(tmp_path: Path) -> None:
    result = lint(write_peer(tmp_path / "lm", "tiny_llama"))
    assert (result.spec.kind.name, result.not_checked) == ("lm", ())
    assert not result.reaches("warning")


# --- engines


def test_no_engine_yields_a_finding_unless_it_is_named(tmp_path: Path) -> None:
    codes = {code.name for code in CODES}
    ref, target = kimi_checkpoint(tmp_path / "d", [1, 9, 57]), write_target(tmp_path / "t")
    unnamed = lint(ref, target=target)
    assert {served.release.engine for served in unnamed.engines} == {"sglang", "vllm", "tensorrt-llm", "llama.cpp"}
    assert not codes & {finding.code for finding in unnamed.findings}
    named = lint(ref, target=target, engines=["tensorrt-llm"])
    assert "ENGINE-IDS" in {finding.code for finding in named.findings}


def test_a_finding_of_an_engine_says_who_does_what_by_which_rule(tmp_path: Path) -> None:
    """TensorRT-LLM reads no ids: it takes 2, L//2 and L-3 unless the user says otherwise at launch."""
    result = kimi("tensorrt-llm@1.4.0rc1", ids=[1, 9, 57])(tmp_path)
    found = next(finding for finding in result.findings if finding.code == "ENGINE-IDS")
    evidence = found.evidence
    assert (found.severity, found.key) == ("error", f"eagle_config.{NESTED}")
    assert (evidence["engine"], evidence["version"]) == ("tensorrt-llm", "1.4.0rc1")
    assert (evidence["declared"], evidence["effective"]) == ([2, 10, 58], [2, 30, 58])
    assert evidence["rule"]
    assert evidence["says"] in found.consequence
    assert evidence["proof"] in ("run", "read", "deduced")
    assert "TensorRT-LLM" in evidence["source"]


def test_ids_that_may_be_meant_as_the_engine_takes_them_are_a_warning(tmp_path: Path) -> None:
    """No rule decides whether [3, 31, 59] are outputs: vLLM's runner V1 takes the other reading, V2 its own default."""
    result = kimi("vllm@0.33.0", ids=[3, 31, 59])(tmp_path)
    assert result.spec.aux_layers.confidence == "low"
    found = {tuple(f.evidence["effective"]): f.severity for f in result.findings if f.code == "ENGINE-IDS"}
    assert found == {(3, 31, 59): "warning", (2, 30, 58): "error"}
    target = write_target(tmp_path / "t")
    sure = lint(kimi_checkpoint(tmp_path / "d", [3, 31, 59]), target=target, engines=["vllm@0.33.0"],
                reading="output_of_layer")  # fmt: skip
    assert {f.severity for f in sure.findings if f.code == "ENGINE-IDS"} == {"error"}


@pytest.mark.parametrize(("trained", "severity"), [(True, "error"), (None, "warning"), (False, None)])
def test_an_own_embedding_that_is_replaced(tmp_path: Path, trained: bool | None, severity: str | None) -> None:
    """SGLang takes the target's: grave where the drafter's was trained, nothing where it is a copy."""
    tensors = {name.replace("midlayer.", "layers.0."): shape for name, shape in {**kimi_tensors(), **EMBEDDING}.items()}
    config = KIMI_CONFIG if trained is None else {**KIMI_CONFIG, "embed_requires_grad": trained}
    ref = write_checkpoint(tmp_path / "d", config, tensors)
    result = lint(ref, target=write_target(tmp_path / "t"), engines=["sglang"], level="target_config")
    found = [finding.severity for finding in result.findings if finding.code == "EMB-REPLACED"]
    assert found == ([] if severity is None else [severity])


@pytest.mark.parametrize(("engine", "code"), [("sglang@0.5.23", "HEAD-REPLACED"), ("vllm@0.33.0", "ENGINE-LOAD")])
def test_a_size_that_mends_stands_with_its_finding(tmp_path: Path, engine: str, code: str) -> None:
    """ModelOpt writes draft_vocab_size null beside a head of 128 rows: SGLang shares the target's, vLLM stops."""
    ref, target = write_peer(tmp_path / "d", "modelopt_eagle3_kimik2"), write_peer(tmp_path / "t", "tiny_dsv3")
    result = lint(ref, target=target, engines=[engine], level="target_config")
    found = [finding.fix_set for finding in result.findings if finding.code == code]
    assert found == [{"draft_vocab_size": 128}]


def test_a_key_that_is_not_read_is_named_once(tmp_path: Path) -> None:
    """The rule says no more than the finding, so it is left out; where a knob differs its own finding has it."""
    found = [f for f in kimi("vllm@0.33.0")(tmp_path).findings if f.code == "IDS-KEYPLACE"]
    assert [f.consequence for f in found] == ["what it takes instead is the same here"]
    differing = [f for f in kimi("vllm@0.33.0", ids=[1, 9, 57])(tmp_path).findings if f.code == "IDS-KEYPLACE"]
    assert [f.consequence for f in differing] == ["what it takes instead differs in boundaries"]


def test_every_code_of_an_engine_has_a_case() -> None:
    assert {code.name for code in CODES} <= {case.code for case in CASES}


# --- readings


def test_the_user_says_what_ids_mean(tmp_path: Path) -> None:
    ref, target = kimi_checkpoint(tmp_path / "d"), write_target(tmp_path / "t")
    assert lint(ref, target=target, reading="boundary").spec.aux_layers.boundaries == (2, 30, 58)
    found = lint(ref, target=target, reading="output_of_layer")
    assert found.spec.aux_layers.boundaries == (3, 31, 59)
    assert "IDS-AMBIG" not in {finding.code for finding in found.findings}


def test_a_reading_that_leaves_the_target_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="leave a target of 61 layers"):
        lint(kimi_checkpoint(tmp_path / "d", [2, 30, 61]), target=write_target(tmp_path / "t"),
             reading="output_of_layer")  # fmt: skip
