"""The files that the weights were read from: pickled ones, and pickled ones that were not read."""

from __future__ import annotations

from drafter_audit.audit.code import Code
from drafter_audit.audit.finding import Finding, Findings
from drafter_audit.drafter.spec import DrafterSpec

CODES: tuple[Code, ...] = (
    Code(
        "WEIGHTS-PICKLED",
        ("info",),
        what="The weights are pickled, as torch.save writes them.",
        silent="A reader without weights_only=True runs whatever the file says.",
        evidence="The file's name, and what its reader decided.",
        fix="Store them as safetensors.",
        source="https://github.com/vllm-project/speculators/pull/75",
    ),
    Code(
        "WEIGHTS-IGNORED",
        ("info",),
        what="A pickled file lies beside the safetensors and was not read.",
        silent="EAGLE's own loader takes the pickled one first; nothing says that both hold the same.",
        evidence="Both files' names.",
        fix="Remove the one that is out of date.",
        source="SafeAILab/EAGLE@cb7e084 eagle/model/ea_model.py:125",
    ),
)


_SHOWN = 5  # notes in the evidence


def pickled(spec: DrafterSpec) -> Findings:
    """Weights that torch.save wrote, with what its reader had to decide: views, a dict around them."""
    if spec.table is None or not spec.table.pickled:
        return
    files, notes = spec.table.pickled, spec.table.notes
    decided = f"; {notes[0]}" + (f", and {len(notes) - 1} notes more" if len(notes) > 1 else "") if notes else ""
    yield Finding(
        "WEIGHTS-PICKLED",
        "info",
        f"the weights are pickled ({files[0]}{f' and {len(files) - 1} more' if len(files) > 1 else ''}){decided}",
        "they were counted without running the pickle; a reader without weights_only=True runs whatever it says",
        file=files[0],
        evidence={"files": len(files), "notes": len(notes), "first": list(notes[:_SHOWN])},
    )


def ignored(spec: DrafterSpec) -> Findings:
    """Both formats beside each other: the EAGLE authors' own loader prefers the one that is not read here."""
    if spec.table is None or not spec.table.ignored:
        return
    names = spec.table.ignored
    yield Finding(
        "WEIGHTS-IGNORED",
        "info",
        f"{names[0]}{f' and {len(names) - 1} more' if len(names) > 1 else ''} beside the safetensors was not read",
        "EAGLE's own loader takes pytorch_model.bin first, and nothing says that both hold the same",
        file=names[0],
        evidence={"files": list(names[:_SHOWN]), "count": len(names)},
    )
