"""Which token of the target each row of lm_head stands for, and what became of the tokens from theirs to ours.

target token = row + d2t[row] in every framework that writes or reads safetensors (EAGLE, SpecForge, speculators,
ModelOpt, SGLang, vLLM). Without d2t row i stands for token i, which is only so where lm_head has a row for each token.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from drafter_audit.audit.tensors.reading import Indices, Stored
from drafter_audit.audit.weights import Vocabulary
from drafter_audit.drafter.spec import DrafterSpec
from drafter_audit.measure.closeness import integers

Tokens = npt.NDArray[np.int64]

_INTEGERS = frozenset({"I64", "I32", "I16", "U32", "U16"})
_MOST_ROWS = 2**24  # far above any vocabulary


class UnknownMap(Exception):
    """Why a drafter's rows cannot be told by token."""


@dataclass(frozen=True)
class Shared:
    """The tokens that both sides have a row for: their rows and ours, ours ascending; `of` counts all of each."""

    theirs: Indices
    ours: Indices
    of: tuple[int, int]


def read_tokens(spec: DrafterSpec, on_read: Callable[[int], None]) -> Tokens | None:
    """The tokens of the rows of lm_head, None without lm_head. Raises UnknownMap with the reason; AuditError."""
    head, d2t = spec.clues.tensors.get("lm_head.weight"), spec.clues.tensors.get("d2t")
    if head is None and d2t is None:
        return None
    if d2t is None:
        return _identity(spec, head.shape[0] if head is not None and head.shape else 0)
    if d2t.dtype not in _INTEGERS or len(d2t.shape) != 1 or d2t.shape[0] > _MOST_ROWS:
        raise UnknownMap(f"d2t of {spec.ref} is {d2t.dtype} of shape {list(d2t.shape)}")
    if d2t.strides is not None:
        raise UnknownMap(f"d2t of {spec.ref} is a view in a pickled file")
    if head is not None and head.shape[:1] != d2t.shape:
        raise UnknownMap(
            f"d2t of {spec.ref} has {d2t.shape[0]} entries and lm_head {head.shape[0] if head.shape else 'no'} rows"
        )
    data = Stored(spec.origin, d2t, on_read).read_bytes(0, d2t.nbytes)
    offsets = integers(data, d2t.dtype)
    return _checked(spec, offsets + np.arange(len(offsets)))


def _identity(spec: DrafterSpec, rows: int) -> Tokens:
    vocab = spec.architecture.vocab_size
    if vocab is not None and rows < vocab:
        raise UnknownMap(f"{spec.ref} has {rows} rows of lm_head for {vocab} tokens and no d2t")
    return np.arange(rows, dtype=np.int64)


def _checked(spec: DrafterSpec, tokens: Tokens) -> Tokens:
    vocab = spec.architecture.vocab_size
    if len(tokens) and (tokens.min() < 0 or (vocab is not None and tokens.max() >= vocab)):
        raise UnknownMap(f"d2t of {spec.ref} leads outside the vocabulary of {vocab or 'the target'}")
    if len(np.unique(tokens)) != len(tokens):
        raise UnknownMap(f"d2t of {spec.ref} gives two rows one token")
    return tokens


def set_against(theirs: Tokens, ours: Tokens) -> tuple[Vocabulary, Shared]:
    """What moved, came and went, and the rows of the tokens that both have."""
    _, first, last = np.intersect1d(theirs, ours, assume_unique=True, return_indices=True)
    order = np.argsort(last)
    shared = Shared(first[order], last[order], (len(theirs), len(ours)))
    vocabulary = Vocabulary(
        moved=int((first != last).sum()),
        added=len(ours) - len(last),
        removed=len(theirs) - len(first),
        same_map=np.array_equal(theirs, ours),
    )
    return vocabulary, shared
