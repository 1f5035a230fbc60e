"""What norms and sampled rows say: never loaded, never trained, damaged, or rows of the wrong tokens."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from drafter_audit.audit.code import Code
from drafter_audit.audit.finding import Finding, Findings, Severity
from drafter_audit.audit.freshness import Start, start_of
from drafter_audit.drafter.spec import DrafterSpec
from drafter_audit.drafter.stored_values import StoredValues, Table

if TYPE_CHECKING:  # the module imports numpy
    from drafter_audit.measure.tables import Block, Norm

CODES = (
    Code(
        "VALUES-BLANK",
        ("warning",),
        what="Every norm and every sampled row is zero.",
        silent="Names and shapes are right, which is all that counts and comparisons of headers need.",
        evidence="Norms and sampled rows, all of them zero.",
        fix="If it is no placeholder on purpose, download or export it again: space was reserved and not filled.",
        source="https://github.com/huggingface/transformers/issues/27923",
    ),
    Code(
        "VALUES-NONFINITE",
        ("error",),
        what="A norm or a sampled row of head or embedding holds a NaN or an infinity.",
        silent="Shapes fit, engines check no values, and a rejected draft costs time alone.",
        evidence="The tensors, and how many values of those read.",
        fix="Load the tensor from the training checkpoint and export again.",
        source=(
            "speculators 0.9.0 model.py (DraftVocabMixin) fills lm_head and embed_tokens with NaN until they are loaded"
        ),
    ),
    Code(
        "NORM-ZERO",
        ("error",),
        what="A norm is all zeros.",
        silent="It loads, and puts out zeros whatever comes in.",
        evidence="The norm's least and greatest value.",
        fix="Export it again from the training checkpoint.",
        source=("deduced: an RMSNorm's output is its weight times the normed input (transformers modeling_llama.py)"),
    ),
    Code(
        "NORM-ONES",
        ("warning", "info"),
        what="A norm is exactly one in each element.",
        silent="It is what a norm starts with, so nothing looks wrong where it was never loaded.",
        evidence="The norms that are ones, and how far the others moved from one.",
        fix="Compare it with the training checkpoint; a lost rename leaves it at its start.",
        source=(
            "https://github.com/vllm-project/speculators/issues/1114 (a converter lost a rename and saved the fresh "
            "module)"
        ),
    ),
    Code(
        "HEAD-DUPROWS",
        ("error", "info"),
        what="Neighbouring rows of lm_head are equal.",
        silent="Shapes fit and the engine loads it; tokens of equal rows get equal logits.",
        evidence=("The equal pairs among those sampled, and whether they are those whose entries in d2t are equal."),
        fix="Select the rows by i + d2t[i] from the full head, and export again.",
        source=(
            "deduced from TorchSpec tools/convert_to_hf.py (_save_with_vocab_pruning selects rows by d2t's offsets)"
        ),
    ),
    Code(
        "HEAD-ZERO",
        ("warning", "error", "info"),
        what="Rows of lm_head are all zeros. An error where all are, info where they lie together at the end.",
        silent="Such a token has the logit 0 and is drafted where all others are below it.",
        evidence="The zero rows among those sampled.",
        fix="Export the head again; padding rows at the end of a full vocabulary are harmless.",
        source=(
            "https://github.com/sgl-project/SpecForge/pull/76 (a vocabulary shorter than the head that was made for it)"
        ),
    ),
    Code(
        "EMB-ZERO",
        ("info", "error"),
        what="Rows of embed_tokens are all zeros. An error where all are; some are padding, or tokens never met.",
        silent="Such a token looks like no token: engines read the row as any other.",
        evidence="The zero rows among those sampled.",
        fix="Leave the embedding out of the export, or copy the target's; rows of padding are harmless.",
        source="https://github.com/lightseekorg/TorchSpec/issues/38 (an exporter that saved an embedding of its own)",
    ),
    Code(
        "HEAD-RANDOM",
        ("warning",),
        what="lm_head looks freshly initialised.",
        silent=("An exporter that loads with strict=False saves the fresh module where a name did not match."),
        evidence=(
            "Standard deviation, mean, kurtosis, and how norms of rows and columns spread, in every sampled block."
        ),
        fix="Compare it with the training checkpoint, and export again with every tensor matched.",
        source="https://github.com/vllm-project/speculators/issues/1114",
    ),
    Code(
        "EMB-RANDOM",
        ("warning",),
        what="embed_tokens looks freshly initialised.",
        silent=(
            "SGLang puts the target's in its place and drafts well, vLLM keeps it: the same files work in one engine "
            "alone."
        ),
        evidence=(
            "Standard deviation, mean, kurtosis, and how norms of rows and columns spread, in every sampled block."
        ),
        fix="Leave it out of the export, or copy the target's; --target compares the rows.",
        source=(
            "https://github.com/lightseekorg/TorchSpec/issues/38, https://github.com/sgl-project/SpecForge/pull/645"
        ),
    ),
)

# Norms stored as a distance from one: transformers' modeling_gemma.py and modeling_qwen3_next.py use 1 + weight.
_AROUND_ZERO = ("gemma", "qwen3_next", "qwen3_5")

_MOVED = 0.02
"""How far one norm must be from its start for another, still there, to be remarkable: five steps of BF16 below one."""

_MANY = 0.02
"""Share of equal or zero rows above which they are no chance."""


def values(spec: DrafterSpec) -> Findings:
    if spec.values is None or not spec.is_drafter:
        return
    if spec.values.blank:
        yield _blank(spec, spec.values)
        return
    yield from _non_finite(spec.values)
    yield from _zero_norms(spec, spec.values)
    yield from _start_norms(spec, spec.values)
    if spec.values.head is not None:
        yield from _equal_rows(spec.values.head)
        yield from _zero_rows(
            "HEAD-ZERO", spec.values.head, "has the logit 0, and is drafted where all others are below"
        )
        yield from _random_head(spec, spec.values.head)
    if spec.values.embedding is not None:
        yield from _zero_rows("EMB-ZERO", spec.values.embedding, "reads like any other of them")
        yield from _random_embedding(spec, spec.values.embedding)


def _blank(spec: DrafterSpec, values: StoredValues) -> Finding:
    return Finding(
        "VALUES-BLANK",
        "warning",
        f"every norm and every sampled row is zero, {values.bytes_read:,} bytes of them",
        "it is a placeholder, or a file that was never filled; nothing else can be said of its values",
        key=None,
        file=spec.table.files[0] if spec.table else "weights",
        evidence={"bytes_read": values.bytes_read},
    )


def _non_finite(values: StoredValues) -> Findings:
    counts = {norm.name: (norm.file, norm.non_finite) for norm in values.norms}
    counts |= {table.name: (table.file, sum(block.non_finite for block in table.blocks)) for table in values.tables}
    for name, (file, count) in counts.items():
        if count:
            what = f"{name} holds {count} values that are NaN or infinite, of those read"
            consequence = "one of them in the way of a token spoils its draft, in any engine; a norm spoils every one"
            evidence = {"non_finite": count}
            yield Finding("VALUES-NONFINITE", "error", what, consequence, key=name, file=file, evidence=evidence)


def _start_of_norms(spec: DrafterSpec) -> float:
    """What a norm starts with."""
    kinds = (spec.config.get("model_type"), spec.config.raw.get("model_type"))
    return 0.0 if any(isinstance(kind, str) and kind.startswith(_AROUND_ZERO) for kind in kinds) else 1.0


def _zero_norms(spec: DrafterSpec, values: StoredValues) -> Findings:
    if _start_of_norms(spec) == 0:
        return
    for norm in values.norms:
        if norm.is_all(0.0):
            what, consequence = f"{norm.name} is all zeros", "it puts out zeros, whatever comes in"
            yield Finding("NORM-ZERO", "error", what, consequence, key=norm.name, file=norm.file, evidence=_ends(norm))


def _start_norms(spec: DrafterSpec, values: StoredValues) -> Findings:
    """All norms at their start: one remark. Some of them: each is one, the graver if the others moved."""
    start = _start_of_norms(spec)
    still = [norm for norm in values.norms if norm.is_all(start)]
    moved = max((norm.distance(start) for norm in values.norms if norm not in still), default=0.0)
    if still and len(still) == len(values.norms):
        yield Finding(
            "NORM-ONES",
            "info",
            f"all {len(still)} norms are exactly {start:g}, as they start",
            "they were never trained, moved less than their dtype shows, or were never loaded",
            key=still[0].name,
            file=still[0].file,
            evidence={"norms": [norm.name for norm in still], "dtype": still[0].dtype},
        )
        return
    for norm in still:
        yield Finding(
            "NORM-ONES",
            "warning" if moved >= _MOVED else "info",
            f"{norm.name} is exactly {start:g} throughout, as it starts, the others moved by up to {moved:.3g}",
            "it may have been left unloaded: it then scales the drafter's states otherwise than training did",
            key=norm.name,
            file=norm.file,
            evidence={"dtype": norm.dtype, "others_moved": moved},
        )


def _ends(norm: Norm) -> dict[str, object]:
    return {"least": norm.least, "greatest": norm.greatest, "elements": norm.elements}


def _equal_rows(head: Table) -> Findings:
    """By TorchSpec's fault two neighbours are equal just where their entries in d2t are."""
    pairs, equal, repeats, explained = (
        sum(counts)
        for counts in zip(
            *((b.rows - 1, b.equal_neighbours, b.repeats or 0, b.explained or 0) for b in head.blocks), strict=True
        )
    )
    if equal <= _MANY * pairs:
        return
    by_offset = repeats == explained == equal
    together = not by_offset and not _spread(head, lambda block: block.equal_neighbours)
    consequence = "tokens of equal rows get equal logits"
    consequence += ": the rows were chosen by the offsets, not by the target ids" if by_offset else ""
    consequence += "; they lie close together, as reserved tokens do that were never trained" if together else ""
    where = ", just where d2t repeats" if by_offset else ""
    yield Finding(
        "HEAD-DUPROWS",
        "info" if together else "error",
        f"{equal} of {pairs} sampled pairs of neighbouring rows of {head.name} are equal{where}",
        consequence,
        key=head.name,
        file=head.file,
        evidence={"pairs": pairs, "equal": equal, "d2t_repeats": repeats, "equal_where_d2t_repeats": explained},
    )


def _zero_rows(code: str, table: Table, consequence: str) -> Findings:
    rows, zero = sum(block.rows for block in table.blocks), sum(block.zero_rows for block in table.blocks)
    if zero <= _MANY * rows:
        return
    spread = _spread(table, lambda block: block.zero_rows)
    severity: Severity = "error" if zero == rows else "warning" if spread and code == "HEAD-ZERO" else "info"
    yield Finding(
        code,
        severity,
        f"{zero} of {rows} sampled rows of {table.name} are all zeros",
        f"such a token {consequence}" + ("" if spread else "; padding at the end of a vocabulary looks so"),
        key=table.name,
        file=table.file,
        evidence={"rows": rows, "zero": zero},
    )


def _spread(table: Table, count: Callable[[Block], int]) -> bool:
    """Whether many rows are so in more than one block, or the table is one block: else they may be reserved tokens,
    which lie together."""
    return len(table.blocks) == 1 or sum(count(block) > _MANY * block.rows for block in table.blocks) > 1


def _random_head(spec: DrafterSpec, head: Table) -> Findings:
    start = start_of(spec, head)
    if start is not None:
        consequence = "if it was never trained or never loaded, drafts are chance and nearly none is accepted"
        yield _random("HEAD-RANDOM", head, start, consequence)


def _random_embedding(spec: DrafterSpec, embedding: Table) -> Findings:
    """Not where rows were compared and are the target's."""
    copies = {one.tensor for one in spec.evidence if one.is_copy}
    start = start_of(spec, embedding) if embedding.name not in copies else None
    if start is not None:
        consequence = "SGLang and TensorRT-LLM put the target's in its place, vLLM keeps this one and drafts from noise"
        yield _random("EMB-RANDOM", embedding, start, consequence)


def _random(code: str, table: Table, start: Start, consequence: str) -> Finding:
    return Finding(
        code,
        "warning",
        f"{table.name} looks freshly initialised: sampled rows are {start.what} of standard deviation {start.std:.4g}",
        consequence,
        key=table.name,
        file=table.file,
        evidence={
            "initialisation": start.what,
            "std": start.std,
            "blocks": [block.to_dict() for block in table.blocks],
        },
    )
