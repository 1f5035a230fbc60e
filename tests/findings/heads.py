"""Cases of audit/rules/heads.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from drafter_audit.audit.lint import Lint, lint
from tests.checkpoints import KIMI_CONFIG, Tensors, kimi_tensors, read_peer, write_checkpoint
from tests.findings.case import Build, Case
from tests.whole import write_config

FULL = {"lm_head.weight": ("BF16", (163840, 7168))}


def _kimi(
    config: dict[str, Any] | None = None,
    *,
    drop: tuple[str, ...] = (),
    add: Tensors | None = None,
    beside: str | None = None,
) -> Build:
    """AQ-MedAI's drafter with other settings, tensors or files."""

    def build(folder: Path) -> Lint:
        tensors = {name: entry for name, entry in kimi_tensors().items() if name not in drop} | (add or {})
        ref = write_checkpoint(folder, {**KIMI_CONFIG, **(config or {})}, tensors)
        if beside:
            (folder / beside).write_bytes(b"")
        return lint(ref)

    return build


def _narrow(*, embedding: bool, head: bool = True) -> Build:
    """A drafter half as wide as its target, as yuhuili/EAGLE3-LLaMA3.3-Instruct-70B is narrower than its own."""

    def build(folder: Path) -> Lint:
        config, tensors, metadata = read_peer("specforge_eagle3")
        tensors["fc.weight"] = ("F32", (64, 3 * 128))
        if not head:
            tensors = {name: entry for name, entry in tensors.items() if name not in ("lm_head.weight", "d2t", "t2d")}
            config["draft_vocab_size"] = 512
        if not embedding:
            tensors.pop("embed_tokens.weight", None)
        return lint(write_checkpoint(folder, {**config, "target_hidden_size": 128}, tensors, metadata))

    return build


def _gemma(model_type: str) -> Build:
    def build(folder: Path) -> Lint:
        drafter, tensors, metadata = read_peer("specforge_eagle3")
        target, _, _ = read_peer("tiny_llama")
        ref = write_checkpoint(folder / "drafter", drafter, tensors, metadata)
        return lint(ref, target=write_config(folder / "target", {**target, "model_type": model_type}))

    return build


def _whole_head(folder: Path) -> Lint:
    config, tensors, metadata = read_peer("specforge_eagle3")
    kept = {name: entry for name, entry in tensors.items() if name not in ("lm_head.weight", "d2t", "t2d")}
    return lint(write_checkpoint(folder, {**config, "draft_vocab_size": 512}, kept, metadata))


CASES = (
    Case("HEAD-TIED", fires=_kimi({"tie_word_embeddings": True}), silent=_kimi()),
    # tied, and the vocabulary is whole: its head is the target's width
    Case(
        "HEAD-TIED",
        fires=_kimi({"tie_word_embeddings": True}),
        silent=_kimi({"tie_word_embeddings": True, "draft_vocab_size": 163840}, drop=("d2t", "t2d"), add=FULL),
    ),
    Case("EMB-WIDTH", fires=_narrow(embedding=False), silent=_narrow(embedding=True)),
    # of the same width nothing needs to be stored
    Case("EMB-WIDTH", fires=_narrow(embedding=False), silent=_kimi()),
    Case("HEAD-BORROW", fires=_narrow(embedding=True, head=False), silent=_whole_head),
    Case("VOCAB-CONFIG", fires=_kimi({"vocab_size": 32000}), silent=_kimi()),
    # a whole vocabulary has one size
    Case(
        "VOCAB-CONFIG",
        fires=_kimi({"vocab_size": 32000}),
        silent=_kimi({"draft_vocab_size": 163840}, drop=("d2t", "t2d"), add=FULL),
    ),
    Case("MAP-ELSEWHERE", fires=_kimi(drop=("d2t",), beside="eagle_meta.pt"), silent=_kimi(beside="eagle_meta.pt")),
    Case("MAP-ELSEWHERE", fires=_kimi(drop=("d2t",), beside="token_map.pt"), silent=_kimi(drop=("d2t",))),
    Case("EMB-SCALE", fires=_gemma("gemma3_text"), silent=_gemma("llama")),
)
