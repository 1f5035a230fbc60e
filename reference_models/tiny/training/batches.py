"""Samples become batches of near-equal length, in an order that a seed decides."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from reference_models.tiny.training.text import samples
from reference_models.tiny.training.tokenizer import encode_all

Row = tuple[list[int], list[int]]
"""The tokens of a prompt, and those of its answer."""

_WINDOW = 4


def sample_rows(tokenizer: PreTrainedTokenizerFast, count: int, seed: int, apart: frozenset[str]) -> list[Row]:
    """`count` tasks with the answers that were made with them."""
    return encode_all(tokenizer, samples(count, seed, apart))


def batches(rows: list[Row], size: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Token ids [size, T], zero behind the end, and what each row's answer is of them: a mask [size, T].

    Rows are sorted by length within a few batches, so that little is padding.
    """
    rng, span = Random(seed), size * _WINDOW
    for start in range(0, len(rows) - size + 1, span):
        window = sorted(rows[start : start + span], key=lambda row: len(row[0]) + len(row[1]))
        starts = list(range(0, len(window) - size + 1, size))
        rng.shuffle(starts)
        for first in starts:
            yield padded(window[first : first + size])


def padded(rows: list[Row]) -> tuple[Tensor, Tensor]:
    """One batch, as `batches` gives it."""
    longest = max(len(prompt) + len(answer) for prompt, answer in rows)
    ids, mask = torch.zeros(len(rows), longest, dtype=torch.long), torch.zeros(len(rows), longest, dtype=torch.bool)
    for place, (prompt, answer) in enumerate(rows):
        stop = len(prompt) + len(answer)
        ids[place, :stop] = torch.tensor(prompt + answer)
        mask[place, len(prompt) : stop] = True
    return ids, mask
