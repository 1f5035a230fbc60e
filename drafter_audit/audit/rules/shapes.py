"""Where config.json, the tensors and the drafter's own sizes disagree."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from drafter_audit.audit.code import Code
from drafter_audit.audit.finding import Finding, Findings
from drafter_audit.drafter.expected import expected_tensors
from drafter_audit.drafter.spec import DrafterSpec

CODES: tuple[Code, ...] = (
    Code(
        "SHAPE-MISMATCH",
        ("error",),
        what=(
            "config.json gives a size that the tensors contradict, or leaves out a head_dim that is not "
            "hidden_size / heads."
        ),
        silent=(
            "What leaves the products alone, such as more heads of a smaller size, loads without a word; the "
            "rest stops the load with a shape and no cause."
        ),
        evidence="The declared size, and the one that the tensors' shapes prove.",
        fix="Write the size of the tensors into config.json.",
        source="https://github.com/vllm-project/speculators/pull/134",
    ),
    Code(
        "TENSOR-SHAPE",
        ("error",),
        what="A tensor has another shape than the drafter's other tensors call for.",
        silent="Most loaders stop; one that is told to ignore sizes that differ leaves the module random.",
        evidence="The stored shape, and the one that follows from the other tensors.",
        fix="Export it again: no config makes it fit.",
        source="https://github.com/vllm-project/vllm/issues/18906",
    ),
    Code(
        "FC-WIDTH",
        ("error",),
        what="fc reads a width that is no multiple of one target state.",
        silent="A loader that stops names a shape of fc and not its cause, which is mostly another target.",
        evidence="The columns of fc.weight, and the hidden size of the target or of the drafter.",
        fix="Use the drafter with the target it was trained on, or correct target_hidden_size.",
        source="https://github.com/sgl-project/sglang/pull/24663",
    ),
    Code(
        "IDS-COUNT",
        ("error",),
        what="There are more or fewer layer ids than states that fc reads.",
        silent=(
            "Engines may size fc by another key and capture by this list: then the first request fails, deep inside."
        ),
        evidence="The ids, and the columns of fc.weight over the hidden size.",
        fix="Write the ids that training used; fc.weight tells how many.",
        source="https://github.com/sgl-project/sglang/pull/14920",
    ),
    Code(
        "D2T-LENGTH",
        ("error",),
        what="d2t has another number of entries than the head has rows.",
        silent=(
            "Training goes on with a map that is too short; a server stops at load, or maps draft ids to wrong tokens."
        ),
        evidence="The length of d2t, and the rows of lm_head.weight.",
        fix="Export head and map again from one draft vocabulary.",
        source="https://github.com/sgl-project/SpecForge/pull/76",
    ),
    Code(
        "T2D-LENGTH",
        ("error",),
        what="t2d has another number of entries than the target has tokens.",
        silent="Serving engines skip t2d, so only retraining or a converter trips over it.",
        evidence="The length of t2d, and the rows of the embedding, or vocab_size.",
        fix="Export the mask again for this target's vocabulary; vocab_size is the target's, not the draft's.",
        source="https://github.com/vllm-project/speculators/pull/188",
    ),
)


# Shapes that config.json and the tensors both tell, with what goes wrong when a reader believes the config.
_SHAPE_KEYS = {
    "hidden_size": ("hidden_size", "the drafter is built too narrow or too wide and its weights do not load"),
    "intermediate_size": ("intermediate_size", "the MLP is built in another size and its weights do not load"),
    "num_layers": ("num_hidden_layers", "layers are left unloaded, or built and left random"),
    "num_attention_heads": ("num_attention_heads", "the attention is split into the wrong heads"),
    "num_key_value_heads": ("num_key_value_heads", "the attention is split into the wrong heads"),
    "head_dim": ("head_dim", "the attention is split into the wrong heads, or its weights do not load"),
    "vocab_size": ("vocab_size", "the embedding or the vocabulary map does not load"),
    "draft_vocab_size": ("draft_vocab_size", "the head does not load, or its logits are mapped to the wrong tokens"),
    "num_aux_hidden_states": ("num_aux_hidden_states", "fc is built for another number of target states"),
}


def config_against_tensors(spec: DrafterSpec) -> Findings:
    """config.json against the tensors."""
    if not spec.is_drafter:
        return
    for name, (key, consequence) in _SHAPE_KEYS.items():
        said, stored = spec.sizes.declared[name], spec.sizes.measured.get(name)
        if said is not None and stored is not None and said != stored and not _map_agrees(spec, name, said):
            fix = spec.config.edit(key, stored)
            yield _mismatch(f"{key} is {said}", key, {"declared": said, "stored": stored}, consequence, fix)
    yield from _derived_head_dim(spec)
    yield from _query_rank(spec)


def _map_agrees(spec: DrafterSpec, name: str, said: int) -> bool:
    """Whether the map is of the declared size, so that it is head or embedding that is not: D2T-LENGTH, T2D-LENGTH."""
    of_map = {"draft_vocab_size": "d2t", "vocab_size": "t2d"}.get(name)
    return of_map is not None and spec.clues.dim(of_map, 0, rank=1) == said


def _derived_head_dim(spec: DrafterSpec) -> Findings:
    """Readers derive an undeclared head_dim as hidden / heads."""
    declared, stored = spec.sizes.declared, spec.sizes.measured.get("head_dim")
    hidden, heads = declared["hidden_size"], declared["num_attention_heads"]
    if declared["head_dim"] is None and stored and hidden and heads and hidden // heads != stored:
        derived = hidden // heads
        what = f"head_dim is not declared and derives to {derived} from hidden_size and heads"
        evidence = {"declared": None, "derived": derived, "stored": stored}
        fix = spec.config.edit("head_dim", stored, beside="hidden_size")
        yield _mismatch(what, "head_dim", evidence, _SHAPE_KEYS["head_dim"][1], fix)


def _mismatch(
    said: str, key: str, evidence: dict[str, int | None], consequence: str, fix: Mapping[str, Any]
) -> Finding:
    what = f"{said}, the tensors say {evidence['stored']}"
    return Finding("SHAPE-MISMATCH", "error", what, consequence, key=key, evidence=evidence, fix_set=fix)


def _query_rank(spec: DrafterSpec) -> Findings:
    """Latent attention builds its queries by q_lora_rank. ModelOpt 0.47.0 writes the target's where its own is null."""
    declared, stored = spec.sizes.declared["q_lora_rank"], spec.architecture.q_lora_rank
    if spec.kind.name == "eagle3_mla" and spec.clues.has_weights and declared is not None and declared != stored:
        rank = f"the rank {stored}" if stored else "queries of full rank, q_proj"
        yield Finding(
            "SHAPE-MISMATCH",
            "error",
            f"q_lora_rank is {declared}, the tensors say {rank}",
            "the queries are built in another layout and their weights do not load",
            key="q_lora_rank",
            evidence={"declared": declared, "stored": stored},
            fix_set=spec.config.edit("q_lora_rank", stored),
        )


# Two tensors that tell of one vocabulary: the engine that believes the one cannot use the other.
_VOCABULARIES = (
    ("D2T-LENGTH", "d2t", 1, "lm_head.weight", "draft tokens"),
    ("T2D-LENGTH", "t2d", 1, "embed_tokens.weight", "target tokens"),
)


def vocabularies(spec: DrafterSpec) -> Findings:
    """The vocabulary map against head and embedding."""
    clues, arch = spec.clues, spec.architecture
    for code, name, rank, other, what in _VOCABULARIES:
        shape, rows = clues.shape(name), clues.dim(other, 0)
        length = None if shape is None else shape[0] if len(shape) == rank else list(shape)
        wanted = rows or (arch.draft_vocab_size if name == "d2t" else arch.vocab_size)
        if length is not None and wanted is not None and length != wanted:
            yield Finding(
                code,
                "error",
                f"{name} has {length} entries for {wanted} {what}"
                if isinstance(length, int)
                else f"{name} has the shape {length}, not [{wanted}], one entry for each of the {what}",
                "draft ids are mapped to the wrong tokens, or the map does not load",
                key=name,
                file=clues.tensors[name].file,
                evidence={name: length, other: wanted},
            )


def tensors_against_each_other(spec: DrafterSpec) -> Findings:
    """Each stored tensor against the shape that the drafter's own sizes give it: all in one, as they have one cause."""
    wrong = {
        name: (stored, shape)
        for name, shape in expected_tensors(spec.architecture, spec.kind.name).items()
        if (stored := spec.clues.shape(name)) is not None and _misfits(name, stored, shape)
    }
    if wrong:
        first, (stored, shape) = next(iter(wrong.items()))
        more = f", and {len(wrong) - 1} more do not fit" if len(wrong) > 1 else ""
        yield Finding(
            "TENSOR-SHAPE",
            "error",
            f"{first} is {list(stored)}, the drafter's other tensors call for {list(shape)}{more}",
            "no engine can load it as it is",
            key=spec.clues.tensors[first].name,
            file=spec.clues.tensors[first].file,
            evidence={"stored": list(stored), "expected": list(shape), "others": list(wrong)[1 : _SHOWN + 1]},
        )


_SHOWN = 20  # names in the evidence


def _misfits(name: str, stored: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    """Of fc the rows alone: FC-WIDTH and IDS-COUNT tell of what it reads."""
    return stored[:1] != shape[:1] if name == "fc.weight" and len(stored) == 2 else stored != shape


def _true_width(spec: DrafterSpec, fc_in: int) -> Mapping[str, Any] | None:
    """The target's own hidden size where it fits and config.json gives another."""
    declared, theirs = spec.sizes.declared["target_hidden_size"], spec.target.hidden_size
    fits = declared and theirs and declared != theirs and fc_in % theirs == 0
    return spec.config.edit("target_hidden_size", theirs) if fits and theirs else None


def fc_width(spec: DrafterSpec) -> Findings:
    width, state = spec.clues.dim("fc.weight", 1), spec.architecture.target_hidden_size
    if width is None or not state or not spec.kind.traits.fuses:
        return
    ids, declared = spec.aux_layers.declared, spec.sizes.declared["target_hidden_size"]
    whose = "target's" if declared or spec.target.hidden_size else "drafter's own"
    if width % state:
        by_config = declared == state
        yield Finding(
            "FC-WIDTH",
            "error",
            f"fc reads {width}, which is no multiple of "
            + (f"target_hidden_size, {state}" if by_config else f"the {whose} hidden size {state}"),
            "no whole number of target states fits",
            key="target_hidden_size" if by_config else spec.clues.tensors["fc.weight"].name,
            file="config.json" if by_config else spec.clues.tensors["fc.weight"].file,
            evidence={"fc_in": width, "hidden_size": state, "whose": whose},
            fix_set=_true_width(spec, width),
        )
    elif ids is not None and len(ids) * state != width:
        yield Finding(
            "IDS-COUNT",
            "error",
            f"{len(ids)} layer ids are declared, fc reads {width // state} states of {state}, the {whose} hidden size",
            "the concatenated states do not fit fc",
            key=spec.aux_layers.key,
            evidence={"ids": list(ids), "fc_in": width, "hidden_size": state, "whose": whose},
        )
