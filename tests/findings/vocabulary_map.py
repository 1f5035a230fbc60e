"""Cases of audit/rules/vocabulary_map.py: small drafters whose d2t and t2d are real bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from drafter_audit.audit.lint import Lint, lint
from tests.checkpoints import read_peer
from tests.findings.case import Build, Case
from tests.rows import Array, write_arrays

VOCABULARY, DRAFT = 512, 128
CHOSEN = np.sort(np.random.default_rng(0).choice(VOCABULARY, DRAFT, replace=False)).astype(np.int64)
ROWS = np.arange(DRAFT, dtype=np.int64)


def marks(ids: Array, size: int = VOCABULARY) -> Array:
    """t2d: true at `ids`."""
    mask = np.zeros(size, np.bool_)
    mask[ids] = True
    return mask


def mapped(d2t: Array, t2d: Array | None, *, embedding: int = VOCABULARY, **config: Any) -> Build:
    """SpecForge's drafter with that map, its other tensors holes, its embedding of so many rows."""

    def build(folder: Path) -> Lint:
        original, tensors, _ = read_peer("specforge_eagle3")
        head = {"lm_head.weight": ("F32", (len(d2t), 64)), "embed_tokens.weight": ("F32", (embedding, 64))}
        others = {name: of for name, of in tensors.items() if name not in ("d2t", "t2d")} | head
        arrays = {"d2t": d2t} | ({} if t2d is None else {"t2d": t2d})
        return lint(write_arrays(folder, {**original, "draft_vocab_size": len(d2t), **config}, others, arrays))

    return build


def changed(row: int, offset: int) -> Array:
    """A right map with one entry changed."""
    d2t = CHOSEN - ROWS
    d2t[row] = offset
    return d2t


def _identity(length: int) -> Build:
    return mapped(np.zeros(length, np.int64), marks(np.arange(length)))


def _beyond(folder: Path) -> Lint:
    """A draft vocabulary padded beyond the target's (vllm-project/vllm#55133)."""
    return mapped(np.zeros(DRAFT, np.int64), None, embedding=DRAFT, vocab_size=120)(folder)


def _prefixed(folder: Path) -> Lint:
    """The first ids are all chosen, as byte tokens are, the rest are not."""
    ids = np.concatenate([np.arange(100), 300 + np.arange(28)])
    return mapped(ids - ROWS, marks(ids))(folder)


RIGHT = mapped(CHOSEN - ROWS, marks(CHOSEN))
SHUFFLED = np.random.default_rng(1).permutation(CHOSEN)


CASES = (
    Case("D2T-ZERO", fires=_identity(DRAFT), silent=_identity(VOCABULARY)),  # SafeAILab/EAGLE#222: equal is right
    Case("D2T-ZERO", fires=mapped(np.zeros(DRAFT, np.int64), None), silent=_beyond),
    Case("D2T-ZERO", fires=mapped(np.zeros(DRAFT, np.int64), marks(CHOSEN)), silent=_prefixed),
    Case("D2T-ABS", fires=mapped(CHOSEN, marks(CHOSEN)), silent=RIGHT),
    Case("D2T-ABS", fires=mapped(CHOSEN, None), silent=mapped(2 * ROWS, None)),  # offsets may strictly increase
    Case("D2T-ABS", fires=mapped(SHUFFLED, marks(CHOSEN)), silent=mapped(SHUFFLED - ROWS, marks(CHOSEN))),
    Case("D2T-RANGE", fires=mapped(changed(127, VOCABULARY - 127), None), silent=mapped(changed(127, 384), None)),
    Case("D2T-RANGE", fires=mapped(changed(0, -1), None), silent=RIGHT),
    Case("D2T-DUP", fires=mapped(changed(7, int(CHOSEN[6]) - 7), None), silent=RIGHT),
    Case("D2T-ORDER", fires=mapped(SHUFFLED - ROWS, marks(CHOSEN)), silent=RIGHT),
    Case("D2T-T2D", fires=mapped(CHOSEN - ROWS, marks(CHOSEN[1:])), silent=mapped(CHOSEN - ROWS, None)),
    Case("D2T-T2D", fires=mapped(CHOSEN - ROWS, ~marks(CHOSEN)), silent=RIGHT),
    Case(
        "D2T-DTYPE",
        fires=mapped((CHOSEN - ROWS).astype(np.float32), marks(CHOSEN)),
        silent=mapped((CHOSEN - ROWS).astype(np.int32), marks(CHOSEN)),
    ),
)
