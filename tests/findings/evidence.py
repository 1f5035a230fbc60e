"""Cases of audit/rules/evidence.py: a drafter's tables beside its target's, over 64 tokens."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from drafter_audit.audit.lint import Lint, lint
from tests.checkpoints import read_peer
from tests.findings.case import Build, Case
from tests.findings.drafters import kimi, pair, renamed
from tests.rows import Array, cut_peer, peer_rows, write_arrays

_EMBEDDING = peer_rows("tiny_llama")["model.embed_tokens.weight"]
_HEAD = peer_rows("tiny_llama")["lm_head.weight"]


def _own(name: str, table: Array) -> Array:
    """Those rows of the target's table that a peer's map selects."""
    d2t = peer_rows(name)["d2t"]
    return table[np.arange(len(d2t)) + d2t]


def _random(rows: int) -> Array:
    return np.random.default_rng(0).normal(0, 0.15, (rows, 64)).astype(np.float32)


def _one_row(table: Array) -> Array:
    """`table` with one row changed."""
    changed = table.copy()
    changed[7] += 1
    return changed


def _moved(table: Array) -> Array:
    """`table` trained on by some 2% of each row."""
    return table * (1 + _random(len(table)) * np.float32(0.02 / 0.15))


def _trains_embedding(table: Array) -> Build:
    """speculators' drafter whose config says that the embedding was trained."""

    def build(folder: Path) -> Lint:
        ref = Path(cut_peer(folder / "drafter", "speculators_eagle3", embed_tokens__weight=table))
        config = json.loads((ref / "config.json").read_text())
        (ref / "config.json").write_text(json.dumps({**config, "embed_requires_grad": True}))
        return lint(str(ref), target=cut_peer(folder / "target", "tiny_llama"))

    return build


def _nobodys(table: Array) -> Build:
    """SpecForge's drafter under names that tell no trainer."""

    def build(folder: Path) -> Lint:
        config, tensors, _ = read_peer(_FORGE)
        arrays = {**peer_rows(_FORGE), "embed_tokens.weight": table}
        others = {name: entry for name, entry in tensors.items() if name not in (*arrays, "t2d")}
        sizes = {"vocab_size": 64, "draft_vocab_size": len(arrays["d2t"])}
        named = renamed(others, "midlayer.", "layers.0.")
        ref = write_arrays(folder / "drafter", {**config, **sizes}, named, arrays)
        return lint(ref, target=cut_peer(folder / "target", "tiny_llama"))

    return build


_NAN = np.full((23, 64), np.nan, np.float32)
_FORGE, _SPECULATORS = "specforge_eagle3", "speculators_eagle3"

CASES = (
    # A copy in half precision is still the target's.
    Case(
        "EMB-UNRELATED",
        fires=pair(embed_tokens__weight=_random(64)),
        silent=pair(embed_tokens__weight=_EMBEDDING.astype(np.float16)),
    ),
    # One that is said to be trained may differ.
    Case("EMB-UNRELATED", fires=pair(embed_tokens__weight=_random(64)), silent=_trains_embedding(_random(64))),
    # Where the trainer is not known it may have been trained, or not.
    Case("EMB-UNRELATED", fires=_nobodys(_random(64)), silent=_nobodys(_EMBEDDING)),
    Case("EMB-NEAR", fires=pair(embed_tokens__weight=_one_row(_EMBEDDING)), silent=pair()),
    # Gemma's factor on every row, which an engine applies too.
    Case(
        "EMB-NEAR",
        fires=pair(embed_tokens__weight=_moved(_EMBEDDING)),
        silent=pair(embed_tokens__weight=_EMBEDDING * 8),
    ),
    # A head that started as the target's and was trained.
    Case(
        "HEAD-NEAR",
        fires=pair(_FORGE, lm_head__weight=_one_row(_own(_FORGE, _HEAD))),
        silent=pair(_FORGE, lm_head__weight=_moved(_own(_FORGE, _HEAD))),
    ),
    Case("EMB-EQUAL", fires=_trains_embedding(_EMBEDDING), silent=pair(_SPECULATORS)),
    # speculators freezes the head: there it should be the target's.
    Case("HEAD-EQUAL", fires=pair(_FORGE, lm_head__weight=_own(_FORGE, _HEAD)), silent=pair(_SPECULATORS)),
    Case("ROWS-NONFINITE", fires=pair(lm_head__weight=_NAN), silent=pair(lm_head__weight=_random(23))),
    # Whole numbers are no rows to compare; a target that is a config.json alone is among what is not checked.
    Case("EVIDENCE-NONE", fires=pair(embed_tokens__weight=np.ones((512, 64), np.int64)), silent=pair()),
    Case("EVIDENCE-NONE", fires=pair(embed_tokens__weight=np.ones((512, 64), np.int64)), silent=kimi()),
)
