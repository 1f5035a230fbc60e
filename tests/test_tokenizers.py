"""A drafter's tokenizer against its target's: what is compared, and why not where it is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from drafter_audit.audit.lint import lint
from drafter_audit.drafter.open import open_drafter
from drafter_audit.drafter.tokenizer import read_tokenizers
from tests.checkpoints import read_peer, write_peer
from tests.findings.pair import END, VOCAB, tokenizer
from tests.hub import Hub
from tests.whole import write_config

SAME = tokenizer(VOCAB, [END])


def read(folder: Path, ours: str | None, theirs: str | None) -> object:
    for side, text in (("drafter", ours), ("target", theirs)):
        (folder / side).mkdir()
        if text is not None:
            (folder / side / "tokenizer.json").write_text(text, encoding="utf-8")
    target = write_config(folder / "target", read_peer("tiny_llama")[0])
    return read_tokenizers(open_drafter(write_peer(folder / "drafter", "specforge_eagle3"), target=target))


@pytest.mark.parametrize(
    ("ours", "reason"),
    [
        (None, "not both folders hold"),
        ("{", "not JSON"),
        ('{"model": {"vocab": {"a": "0"}}}', "no table of ids"),
        ('{"model": {"vocab": {"a": 0}}, "added_tokens": [3]}', "no list of objects"),
        ('{"model": 3}', "no table of ids"),
        ("[]", "not a JSON object"),
    ],
)
def test_what_cannot_be_compared_is_said_and_no_failure(tmp_path: Path, ours: str | None, reason: str) -> None:
    told = read(tmp_path, ours, SAME)
    assert isinstance(told, str)
    assert told.startswith("the tokenizers were not compared: ")
    assert reason in told


def test_a_unigram_model_lists_its_tokens(tmp_path: Path) -> None:
    """tokenizers' Unigram: [token, score], the id is the place in the list."""
    unigram = '{"model": {"type": "Unigram", "vocab": [["a", -1.0], ["b", -2.5], ["c", -3.0]]}}'
    ours, _ = read(tmp_path, unigram, SAME)
    assert ours.vocab == VOCAB


def test_nothing_is_fetched_for_it(tmp_path: Path, hub: Hub) -> None:
    hub.add_repo("org/target", files={"config.json": b'{"num_hidden_layers": 8}', "tokenizer.json": SAME.encode()})
    ref = write_peer(tmp_path / "drafter", "specforge_eagle3")
    (tmp_path / "drafter" / "tokenizer.json").write_text(tokenizer(VOCAB, []))
    assert "as local folders" in str(read_tokenizers(open_drafter(ref, target="org/target")))
    assert "as local folders" in str(read_tokenizers(open_drafter(ref)))


def test_the_finding_says_which_token(tmp_path: Path) -> None:
    read(tmp_path, tokenizer({"a": 0, "c": 1, "b": 2}, [END]), SAME)
    found = lint(str(tmp_path / "drafter"), target=str(tmp_path / "target"))
    finding = next(finding for finding in found.findings if finding.code == "TOKENIZER-DIFF")
    assert "2 tokens differ, such as 'c' (1, there 2)" in finding.what
