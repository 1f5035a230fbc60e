"""Cases of audit/rules/pair.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from drafter_audit.audit.lint import Lint, lint
from tests.checkpoints import read_peer, write_checkpoint
from tests.findings.case import Build, Case
from tests.whole import write_config

FP8 = {"quantization_config": {"quant_method": "fp8"}}
VOCAB = {"a": 0, "b": 1, "c": 2}
END = {"id": 3, "content": "</s>", "special": True}


def _quantised(drafter: dict[str, Any], target: dict[str, Any]) -> Build:
    def build(folder: Path) -> Lint:
        return _pair(folder, drafter, target)

    return build


def tokenizer(vocab: dict[str, int], added: list[dict[str, Any]], *, indent: int | None = None) -> str:
    """The parts of a tokenizer.json that are compared."""
    model = {"type": "BPE", "vocab": vocab, "merges": []}
    return json.dumps({"version": "1.0", "added_tokens": added, "model": model}, indent=indent)


def _tokenizers(drafter: str | None, target: str, *, name: str = "tokenizer.json") -> Build:
    def build(folder: Path) -> Lint:
        for side, text in (("drafter", drafter), ("target", target)):
            (folder / side).mkdir(parents=True)
            if text is not None:
                (folder / side / name).write_text(text)
        return _pair(folder, {}, {})

    return build


def _pair(folder: Path, drafter: dict[str, Any], target: dict[str, Any]) -> Lint:
    config, tensors, metadata = read_peer("specforge_eagle3")
    theirs, _, _ = read_peer("tiny_llama")
    ref = write_checkpoint(folder / "drafter", {**config, **drafter}, tensors, metadata)
    return lint(ref, target=write_config(folder / "target", {**theirs, **target}))


def _decoder(token: str) -> str:
    return json.dumps({"added_tokens_decoder": {"3": {"content": token, "special": True}}})


CASES = (
    Case("QUANT-TARGET", fires=_quantised({}, FP8), silent=_quantised({}, {})),
    Case("QUANT-TARGET", fires=_quantised(FP8, {}), silent=_quantised(FP8, FP8)),
    # the same words, written otherwise
    Case(
        "TOKENIZER-DIFF",
        fires=_tokenizers(tokenizer(VOCAB, [END]), tokenizer({"b": 0, "a": 1, "c": 2}, [END])),
        silent=_tokenizers(tokenizer(VOCAB, [END], indent=2), tokenizer(VOCAB, [END])),
    ),
    # a drafter that ships none is the usual case
    Case(
        "TOKENIZER-DIFF",
        fires=_tokenizers(tokenizer(VOCAB, []), tokenizer(VOCAB, [END])),
        silent=_tokenizers(None, tokenizer(VOCAB, [END])),
    ),
    Case(
        "TOKENIZER-DIFF",
        fires=_tokenizers(_decoder("<|end|>"), _decoder("</s>"), name="tokenizer_config.json"),
        silent=_tokenizers(_decoder("</s>"), _decoder("</s>"), name="tokenizer_config.json"),
    ),
)
