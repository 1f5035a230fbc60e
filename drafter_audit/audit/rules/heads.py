"""Embedding, head and vocabulary: what a drafter lacks, whether its target can lend it, and how the config names it."""

from __future__ import annotations

import re

from drafter_audit.audit.code import Code
from drafter_audit.audit.finding import Finding, Findings
from drafter_audit.drafter.roles import STORED_ROLES
from drafter_audit.drafter.spec import DrafterSpec

CODES = (
    Code(
        "HEAD-TIED",
        ("warning",),
        what="tie_word_embeddings is true in a drafter whose draft vocabulary is reduced.",
        silent=(
            "SGLang takes the embedding for the head and drops the stored one: logits over all tokens go through a "
            "map of the draft vocabulary. vLLM's EAGLE-3 classes do not read the key."
        ),
        evidence="config.json against the sizes of the two vocabularies.",
        fix="Set tie_word_embeddings to false.",
        source=(
            "SGLang 0.5.23 models/llama_eagle3.py:303; AngelSlim's configs for Hunyuan-7B and Qwen3-VL-4B say true"
        ),
    ),
    Code(
        "EMB-WIDTH",
        ("error",),
        what="No embedding is stored, and the target's has another width than the drafter.",
        silent=(
            "vLLM finds that the widths differ, notes it at INFO, and drafts with an embedding that was never loaded;"
            " older releases stopped."
        ),
        evidence="The shapes of fc and of the drafter's own tensors, or the target's hidden_size.",
        fix="Export the drafter's own embedding with it.",
        source=(
            "https://github.com/vllm-project/vllm/issues/18906, vLLM 0.32.0 v1/spec_decode/llm_base_proposer.py:1485"
        ),
    ),
    Code(
        "HEAD-BORROW",
        ("error",),
        what=(
            "No head is stored, the draft vocabulary is whole, and the target's head has another width than the "
            "drafter."
        ),
        silent="A loader that leaves missing tensors out drafts with a random head.",
        evidence="The shapes of fc and of the drafter's own tensors, or the target's hidden_size.",
        fix="Export the drafter's own head with it.",
        source=("https://github.com/vllm-project/vllm/issues/18906 (the embedding); for the head by the same widths"),
    ),
    Code(
        "VOCAB-CONFIG",
        ("warning", "error"),
        what="vocab_size is the draft vocabulary's, not the target's. An error where the tensors prove it.",
        silent="An engine that compares the two takes the vocabulary for a whole one and skips the map.",
        evidence="The length of t2d, or the target's vocab_size.",
        fix="Set vocab_size to the target's.",
        source=(
            "https://github.com/vllm-project/speculators/pull/188, https://github.com/vllm-project/vllm-"
            "ascend/pull/15863"
        ),
    ),
    Code(
        "MAP-ELSEWHERE",
        ("info",),
        what="The weights hold no vocabulary map, and a file beside them looks like one.",
        silent=("A trainer's own server reads that file, engines do not: they take draft ids for target ids."),
        evidence="The names of the files; they are not opened.",
        fix=("Write the map into the weights as d2t, or give the file to SGLang as --speculative-token-map."),
        source="https://github.com/NVIDIA-NeMo/Automodel/pull/2447",
    ),
    Code(
        "EMB-SCALE",
        ("info",),
        what="The target multiplies the rows of its embedding before its first layer.",
        silent="A table has the same values whether it is scaled after reading or not.",
        evidence="The target's model_type.",
        fix=("Where accept_len is near 1, compare the norm of the drafter's input in training and in serving."),
        source=(
            "https://github.com/NVIDIA/Model-Optimizer/blob/main/examples/speculative_decoding/debug/README.md, "
            "https://github.com/sgl-project/sglang/pull/23976"
        ),
    ),
)

_EMBEDDING, _HEAD = "embed_tokens.weight", "lm_head.weight"
# NeMo's selected ids (Automodel#2447), FR-Spec's and SGLang's token maps.
_MAP_FILE = re.compile(
    r"token_?map|eagle_meta\.pt$|selected_?ids|vocab_?map|draft_?vocab|^freq_\d+\.pt$", re.IGNORECASE
)
# model_type begins with: what its embedding's rows are multiplied by (SGLang 0.5.23 models/gemma.py:258,
# granite.py:337, minicpm.py:500).
_SCALED = {"gemma": "sqrt(hidden_size)", "granite": "embedding_multiplier", "minicpm": "scale_emb"}


def tied(spec: DrafterSpec) -> Findings:
    """speculators keeps the verifier's word among the layers' settings, where no engine that heeds it reads it."""
    arch = spec.architecture
    if arch.tie_word_embeddings and arch.reduced_vocabulary and _fused(spec) and spec.dialect.name != "speculators":
        yield Finding(
            "HEAD-TIED",
            "warning",
            f"tie_word_embeddings is true, and the draft vocabulary is {arch.draft_vocab_size} of {arch.vocab_size}",
            "SGLang drafts with the embedding in place of the head, through a map that is too short; vLLM does not "
            "read the key",
            key="tie_word_embeddings",
            evidence={"draft_vocab_size": arch.draft_vocab_size, "vocab_size": arch.vocab_size},
            fix_set={"tie_word_embeddings": False},
        )


def loans(spec: DrafterSpec) -> Findings:
    """What is not stored and cannot be the target's: it has another width."""
    arch = spec.architecture
    apart = arch.hidden_size != arch.target_hidden_size
    if not spec.clues.has_weights or not spec.kind.traits.eagle or not apart:
        return
    named = (("EMB-WIDTH", _EMBEDDING, ("missing",)), ("HEAD-BORROW", _HEAD, ("borrowed",)))
    for code, name, roles in named:
        if any(tensor.name == name and tensor.role in roles for tensor in spec.tensors):
            yield Finding(
                code,
                "error",
                f"{name} is not stored, and the target's is {arch.target_hidden_size} wide where the drafter is "
                f"{arch.hidden_size}",
                "it cannot be borrowed: engines stop, or leave it random",
                key=name,
                file=spec.table.files[0] if spec.table and spec.table.files else "weights",
                evidence={"drafter": arch.hidden_size, "target": arch.target_hidden_size},
            )


def vocabulary_in_config(spec: DrafterSpec) -> Findings:
    """Half of the target's is far from padding; a mask of the target's tokens tells without a target."""
    declared = spec.sizes.declared
    vocab, marked, theirs = declared["vocab_size"], spec.clues.dim("t2d", 0, rank=1), spec.target.vocab_size
    if not spec.kind.traits.eagle or vocab is None or vocab != declared["draft_vocab_size"]:
        return
    whole = marked if marked is not None else theirs if theirs is not None and theirs >= 2 * vocab else None
    if whole is not None and whole > vocab:
        yield Finding(
            "VOCAB-CONFIG",
            "error" if spec.sizes.measured.get("vocab_size") == whole else "warning",
            f"vocab_size is {vocab}, as draft_vocab_size is; the target has {whole} tokens",
            "an engine that compares the two takes the draft vocabulary for the target's and skips the map",
            key="vocab_size",
            evidence={"vocab_size": vocab, "t2d": marked, "target": theirs},
            fix_set={"vocab_size": whole},
        )


def map_elsewhere(spec: DrafterSpec) -> Findings:
    if not spec.clues.has_weights or not spec.architecture.reduced_vocabulary or "d2t" in spec.clues.tensors:
        return
    beside = [name for name in spec.origin.files() if _MAP_FILE.search(name.rsplit("/", 1)[-1])]
    if beside and spec.kind.traits.eagle:
        yield Finding(
            "MAP-ELSEWHERE",
            "info",
            f"{beside[0]} lies beside the weights, which hold no d2t",
            "engines do not look for it, and take draft ids for the first target ids",
            key="d2t",
            file=beside[0],
            evidence={"files": beside[:5]},
        )


def scale(spec: DrafterSpec) -> Findings:
    """SpecForge a6b6b02 llama3_eagle.py:1759, speculators c05b95b model.py:58, vLLM 0.32.0 llama_eagle3.py:258."""
    by = next((by for kind in spec.target.model_types for name, by in _SCALED.items() if kind.startswith(name)), None)
    if by is None or not spec.is_drafter or spec.kind.name in ("mtp", "medusa"):
        return
    normed = spec.kind.traits.fuses or spec.kind.name == "eagle3_noaux"
    yield Finding(
        "EMB-SCALE",
        "info",
        f"the target multiplies its embedding by {by}",
        "SpecForge and speculators train on the rows as they are stored, and SGLang's and vLLM's Llama drafters read "
        "them so; ModelOpt trains through the target's own module, which multiplies"
        + ("; the drafter's input_layernorm takes out most of the factor" if normed else ""),
        evidence={"model_types": list(spec.target.model_types), "by": by},
    )


def _fused(spec: DrafterSpec) -> bool:
    """Whether it is an EAGLE-3 drafter with a head of its own; an EAGLE-1 drafter always takes the target's."""
    head = any(tensor.name.endswith(_HEAD) and tensor.role in STORED_ROLES for tensor in spec.tensors)
    return spec.kind.traits.eagle and spec.kind.name != "eagle1" and head
