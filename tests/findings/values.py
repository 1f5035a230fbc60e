"""Cases of audit/rules/values.py: small drafters whose norms, head and embedding are real bytes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from drafter_audit.audit.lint import Lint, lint
from tests.checkpoints import read_peer, write_peer
from tests.findings.case import Build, Case
from tests.findings.vocabulary_map import CHOSEN, DRAFT, ROWS, VOCABULARY, marks
from tests.rows import Array, bf16, peer_rows, write_arrays

HEAD, EMBED, WIDTH = "lm_head.weight", "embed_tokens.weight", 64
FIRST_NORM = "midlayer.hidden_norm.weight"


def normal(rows: int, *, std: float = 0.02, width: int = WIDTH, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(0, std, (rows, width)).astype(np.float32)


def trained(rows: int, *, width: int = WIDTH, seed: int = 0) -> Array:
    """Rows whose norms differ as those of SpecForge's trained head do, by a third of their mean."""
    scales = np.random.default_rng(seed + 1).uniform(0.4, 1.6, (rows, 1))
    return (normal(rows, width=width, seed=seed) * scales).astype(np.float32)


def norms(hidden_norm: Array | None = None) -> dict[str, Array]:
    """The drafter's four norms, moved from one as 255 steps of SpecForge moved them, or that one as it is given."""
    _, tensors, _ = read_peer("specforge_eagle3")
    names = [name for name in tensors if "norm" in name]
    moved = {name: 1 + normal(1, seed=place)[0] for place, name in enumerate(names)}
    return moved if hidden_norm is None else moved | {FIRST_NORM: hidden_norm}


def write(folder: Path, arrays: Mapping[str, Array], **config: Any) -> str:
    """SpecForge's drafter of those arrays, the others as peers have them or holes; returned as a reference."""
    original, tensors, _ = read_peer("specforge_eagle3")
    whole = {**norms(), HEAD: trained(DRAFT), "d2t": CHOSEN - ROWS, "t2d": marks(CHOSEN), **arrays}
    others = {name: of for name, of in tensors.items() if name not in (*whole, EMBED)}
    return write_arrays(folder, {**original, "initializer_range": 0.02, **config}, others, whole)


def drafter(arrays: Mapping[str, Array], **config: Any) -> Build:
    return lambda folder: lint(write(folder, arrays, **config))


def _spoiled(values: Array, value: float) -> Array:
    spoiled = values.copy()
    spoiled.flat[5] = value
    return spoiled


def _pruned(folder: Path, rows: Array) -> Lint:
    """TorchSpec's --prune-vocab: rows of a full head, chosen by `rows`, for a target of a few thousand tokens."""
    return drafter({HEAD: trained(VOCABULARY)[rows]})(folder)


def _reserved_at_the_end(rows: Array) -> Build:
    """A full head of 40,000 tokens, whose last rows are those of reserved tokens: `rows` in place of them."""
    head = bf16(trained(40_000))
    head[-len(rows) :] = bf16(rows)
    return drafter({HEAD: head, "d2t": np.zeros(40_000, np.int64)}, draft_vocab_size=40_000, vocab_size=40_000)


ONES, ZEROS = np.ones(WIDTH, np.float32), np.zeros(WIDTH, np.float32)
ALL_ONES = dict.fromkeys(norms(), ONES)
HALF = np.where(np.arange(DRAFT)[:, None] % 2, trained(DRAFT), 0).astype(np.float32)
UNIFORM = np.random.default_rng(3).uniform(-1 / 8, 1 / 8, (DRAFT, WIDTH)).astype(np.float32)  # 1 / sqrt(width)
WIDER = normal(DRAFT, std=0.15)
SIZES = np.random.default_rng(4).uniform(0.5, 1.5, (DRAFT, 1)).astype(np.float32)
NORMS = np.linalg.norm(WIDER, axis=1, keepdims=True).astype(np.float32)
PADDED = np.where(np.arange(VOCABULARY)[:, None] == 0, 0, trained(VOCABULARY)).astype(np.float32)


def _hole(folder: Path) -> Lint:
    """The peer's header over a hole."""
    return lint(write_peer(folder, "specforge_eagle3"))


CASES = (
    Case("VALUES-BLANK", fires=_hole, silent=drafter(norms(hidden_norm=ZEROS))),
    Case("VALUES-NONFINITE", fires=drafter({HEAD: _spoiled(WIDER, np.nan)}), silent=drafter({HEAD: WIDER})),
    Case("VALUES-NONFINITE", fires=drafter(norms(hidden_norm=_spoiled(ONES, np.inf))), silent=drafter(norms())),
    Case("NORM-ZERO", fires=drafter(norms(hidden_norm=ZEROS)), silent=drafter(norms(hidden_norm=_spoiled(ZEROS, 1)))),
    Case(
        "NORM-ZERO",
        fires=drafter(norms(hidden_norm=ZEROS)),
        silent=drafter(norms(hidden_norm=ZEROS), model_type="gemma2"),  # its norms scale by 1 + weight
    ),
    Case("NORM-ONES", fires=drafter(norms(hidden_norm=ONES)), silent=drafter(norms(hidden_norm=_spoiled(ONES, 1.01)))),
    Case("NORM-ONES", fires=drafter(ALL_ONES), silent=drafter(norms())),
    Case(
        "HEAD-DUPROWS",
        fires=lambda folder: _pruned(folder, CHOSEN - ROWS),
        silent=lambda folder: _pruned(folder, CHOSEN),
    ),
    Case(
        "HEAD-DUPROWS",
        fires=_reserved_at_the_end(np.ones((20_000, WIDTH))),
        silent=_reserved_at_the_end(trained(20_000, seed=5)),
    ),
    Case("HEAD-ZERO", fires=drafter({HEAD: HALF}), silent=drafter({HEAD: np.where(ROWS[:, None] == 1, 0, WIDER)})),
    Case("HEAD-RANDOM", fires=drafter({HEAD: normal(DRAFT)}), silent=drafter({HEAD: trained(DRAFT)})),
    Case("HEAD-RANDOM", fires=drafter({HEAD: UNIFORM}), silent=drafter({HEAD: UNIFORM * SIZES})),
    # of a standard deviation that config.json does not name; rows brought to one norm spread too little for chance
    Case("HEAD-RANDOM", fires=drafter({HEAD: bf16(WIDER)}), silent=drafter({HEAD: WIDER / NORMS})),
    Case("EMB-ZERO", fires=drafter({EMBED: PADDED * 0}), silent=drafter({EMBED: PADDED})),
    Case(
        "EMB-RANDOM",
        fires=drafter({EMBED: peer_rows("specforge_eagle3")[EMBED]}, initializer_range=0.15),
        silent=drafter({EMBED: trained(VOCABULARY)}, initializer_range=0.02),
    ),
)
