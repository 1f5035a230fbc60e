"""What vLLM computes without a word although the file lacks or holds something else: it loads, and drafts are bad."""

from __future__ import annotations

from collections.abc import Iterator

from drafter_audit.drafter.expected import stand_ins
from drafter_audit.engines.base import Rule
from drafter_audit.engines.vllm import checks
from drafter_audit.engines.vllm.case import Case
from drafter_audit.engines.vllm.parameters import matrices, norms
from drafter_audit.engines.vllm.rules import BY_NAME

Said = Iterator[tuple[Rule, str]]

# Norms whose absence has a rule of its own.
_ONES = {"layers.0.hidden_norm.weight": "hidden_norm_always", "norm.weight": "final_norm_always"}


def faults(case: Case) -> Said:
    """Each rule by which it drafts otherwise than trained and no knob says so, with what it meets in this drafter."""
    if not case.spec.clues.has_weights or case.seen.model_class is None:
        return
    yield from _unfilled(case)
    yield from _of_ones(case)
    yield from _skipped(case)
    yield from _cut_head(case)


def _unfilled(case: Case) -> Said:
    if case.reads_aux and not case.fuses:
        yield BY_NAME["noaux_needs_switch"], "three of the target's states go through fc, and no fc is stored"
    lost = _absent(case, matrices(case))
    if lost:
        yield (
            BY_NAME["missing_weight"],
            f"{checks.some(lost)} {_are(lost)} not stored, and whatever lies in memory is used",
        )


def _of_ones(case: Case) -> Said:
    lost = _absent(case, norms(case))
    if not case.spec.architecture.final_norm:
        lost = [name for name in lost if name != "norm.weight"]  # the knob `final_norm` says so
    for name in [name for name in lost if name in _ONES]:
        yield BY_NAME[_ONES[name]], f"{name} is not stored, and a norm of ones stands there"
    rest = [name for name in lost if name not in _ONES]
    if rest:
        yield BY_NAME["missing_norm"], f"{checks.some(rest)} {_are(rest)} not stored, and norms of ones stand there"
    yield from _deeper(case)


def _deeper(case: Case) -> Said:
    names = case.spec.clues.tensors
    lost = [
        index
        for index in sorted(case.spec.clues.layers)
        if index > 0
        and f"layers.{index}.input_layernorm.weight" not in names
        and f"layers.{index}.hidden_norm.weight" in names
    ]
    if lost and case.since("0.11.1"):
        yield BY_NAME["deeper_norm"], f"layer {lost[0]} stores hidden_norm and no input_layernorm"


def _skipped(case: Case) -> Said:
    rule, names = BY_NAME["bias_skipped"], [name for name in checks.placeless(case) if name.endswith(".bias")]
    if names and not case.spec.clues.packing.weights and rule.holds(case.release):
        yield rule, f"{checks.some(sorted(names))} {_are(names)} stored and passed over"


def _cut_head(case: Case) -> Said:
    """Without d2t the draft ids are the target's first ids, and the cut head is theirs."""
    tensors, arch = case.spec.clues.tensors, case.spec.architecture
    reduced = arch.reduced_vocabulary and "lm_head.weight" not in tensors and "d2t" in tensors
    if reduced and case.since("0.11.1"):
        size = arch.draft_vocab_size
        yield (
            BY_NAME["head_cut"],
            f"lm_head is not stored, and the target's rows 0 to {(size or 0) - 1} score draft ids",
        )


def _absent(case: Case, names: Iterator[str]) -> list[str]:
    stored = case.spec.clues.tensors.keys()
    return [name for name in names if name not in stored and not stored & set(stand_ins(name))]


def _are(names: list[str]) -> str:
    return "is" if len(names) == 1 else "are"
