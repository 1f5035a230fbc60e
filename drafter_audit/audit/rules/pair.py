"""What sets drafter and target apart beside their sizes: how they are quantised, and their tokenizers."""

from __future__ import annotations

from drafter_audit.audit.code import Code
from drafter_audit.audit.finding import Finding, Findings
from drafter_audit.drafter.quantization import read_quantization
from drafter_audit.drafter.spec import DrafterSpec
from drafter_audit.drafter.target import UNQUANTISED
from drafter_audit.drafter.tokenizer import Tokenizer, read_tokenizers

CODES = (
    Code(
        "QUANT-TARGET",
        ("info",),
        what="The target is quantised and the drafter is not, or the other way round.",
        silent="An engine that builds the drafter by its target's settings gets the wrong linear layers.",
        evidence="quantization_config or hf_quant_config.json of both; packed tensors of the drafter.",
        fix="Take a release that builds the drafter by its own quantization_config.",
        source="https://github.com/vllm-project/vllm/pull/26590",
    ),
    Code(
        "TOKENIZER-DIFF",
        ("warning",),
        what="The drafter ships another tokenizer than its target.",
        silent=(
            "Engines read the target's alone: where the drafter was trained on the other, its tokens mean other words."
        ),
        evidence=(
            "tokenizer.json or tokenizer_config.json of two local folders: tokens, ids and added tokens, not merges."
        ),
        fix="Train with the target's tokenizer, or name the target that it was trained for.",
        source="https://github.com/SafeAILab/EAGLE/issues/258",
    ),
)


def quantised(spec: DrafterSpec) -> Findings:
    theirs = spec.target.quantization
    if not spec.is_drafter or theirs is None:
        return
    method = read_quantization(spec.config, spec.clues.quant_file).method
    ours = method or ("packed weights" if spec.clues.packing.companions else None)
    if (ours is None) != (theirs == UNQUANTISED):
        yield Finding(
            "QUANT-TARGET",
            "info",
            f"the drafter is {_words(ours)}, the target {_words(None if theirs == UNQUANTISED else theirs)}",
            "vLLM before PR 26590 built the drafter's layers by the target's settings; the drafter's own must be used",
            key="quantization_config",
            evidence={"drafter": ours, "target": theirs},
        )


def _words(label: str | None) -> str:
    return "not quantised" if label is None else f"quantised ({label})"


def tokenizers(spec: DrafterSpec) -> Findings:
    found = read_tokenizers(spec)
    if isinstance(found, str):
        return
    ours, theirs = found
    apart = _apart(ours, theirs)
    if apart:
        yield Finding(
            "TOKENIZER-DIFF",
            "warning",
            f"the drafter's tokenizer is not the target's: {'; '.join(apart)}",
            "engines read the target's alone; a drafter trained on another one drafts other words than it means",
            key=None,
            file=ours.file,
            evidence={"drafter": ours.to_dict(), "target": theirs.to_dict()},
        )


def _apart(ours: Tokenizer, theirs: Tokenizer) -> list[str]:
    said = []
    for what, one, other in (("tokens", ours.vocab, theirs.vocab), ("added tokens", ours.added, theirs.added)):
        differing = [token for token in one.keys() | other.keys() if one.get(token) != other.get(token)]
        if differing:
            first = min(differing, key=lambda token: (one.get(token, other.get(token, 0)), token))
            said.append(
                f"{len(differing)} {what} differ, such as {first!r} ({one.get(first)}, there {other.get(first)})"
            )
    return said
