"""How well the pair drafts, and what each fault costs: KL(target ‖ drafter) and accept_len, on held-out prompts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from drafter_audit.model.drafter import Drafter
from reference_models.tiny.training.faults import Case, declared, faults
from reference_models.tiny.training.recordings import Recording

STEPS = 3
_RESAMPLES = 4000
Pairs = list[tuple[float, int]]
"""Of each text a sum and what it is divided by."""


@dataclass(frozen=True)
class Measured:
    """A case on every text: KL summed over n positions, and accepted tokens summed over n rounds."""

    kl: Pairs
    accepted: Pairs


def table(ref: str, recordings: list[Recording]) -> list[dict[str, Any]]:
    """A row for the drafter as trained and for each fault; a difference is that from the first row, paired by text."""
    right = declared(ref)
    first = measured(right, recordings)
    rows: list[dict[str, Any]] = [_row(right, first)]
    for case in faults(ref):
        found = measured(case, recordings)
        rows.append(
            _row(case, found)
            | {"kl_difference": difference(found.kl, first.kl)}
            | {"accept_len_difference": difference(found.accepted, first.accepted)}
        )
    return rows


def curves(ref: str, recordings: list[Recording]) -> list[list[float]]:
    """For each slot the KL with that slot alone at each boundary, 0 to L."""
    right, last = declared(ref), len(recordings[0].states)
    return [
        [pooled(kls(right.drafter, _at(right.boundaries, slot, boundary), recordings)) for boundary in range(last)]
        for slot in range(len(right.boundaries))
    ]


def measured(case: Case, recordings: list[Recording]) -> Measured:
    """KL and accept_len of one case."""
    return Measured(
        kl=kls(case.drafter, case.boundaries, recordings),
        accepted=[_accepted(case.drafter, case.boundaries, each) for each in recordings],
    )


def kls(drafter: Drafter, boundaries: tuple[int, ...], recordings: list[Recording]) -> Pairs:
    """KL of the first step where it guesses an answer's token, on the draft vocabulary."""
    ids = drafter.target_ids(torch.arange(len(drafter.network.head.weight)))
    return [_kl(drafter, boundaries, each, ids) for each in recordings]


def pooled(pairs: Pairs) -> float:
    """The mean over all texts, each weighing what it is divided by."""
    return sum(total for total, _ in pairs) / sum(count for _, count in pairs)


def difference(these: Pairs, those: Pairs) -> dict[str, float]:
    """These pooled less those, with a 95% interval by resampling texts."""
    drawn = np.random.default_rng(0).integers(len(these), size=(_RESAMPLES, len(these)))
    one, other = (np.asarray(pairs, dtype=float)[drawn].sum(axis=1) for pairs in (these, those))
    low, high = np.percentile(one[:, 0] / one[:, 1] - other[:, 0] / other[:, 1], [2.5, 97.5])
    return {"value": pooled(these) - pooled(those), "low": float(low), "high": float(high)}


def _row(case: Case, found: Measured) -> dict[str, Any]:
    return {
        "name": case.name,
        "boundaries": list(case.boundaries),
        "kl": pooled(found.kl),
        "accept_len": 1 + pooled(found.accepted),
        "rounds": sum(rounds for _, rounds in found.accepted),
    }


def _at(right: tuple[int, ...], slot: int, boundary: int) -> tuple[int, ...]:
    return tuple(boundary if place == slot else each for place, each in enumerate(right))


def _unrolled(drafter: Drafter, boundaries: tuple[int, ...], each: Recording, steps: int) -> Tensor:
    return drafter.unroll(each.tokens[1:], each.states[list(boundaries)][:, :-1], steps)


def _kl(drafter: Drafter, boundaries: tuple[int, ...], each: Recording, ids: Tensor) -> tuple[float, int]:
    # The state at t, with the token at t + 1, guesses the token at t + 2: so does the target at t + 1.
    start, stop = each.prompt - 1, each.prompt + each.answer - 2
    guessed = _unrolled(drafter, boundaries, each, 1)[0, start:stop].log_softmax(-1)
    wanted = each.logits[start + 1 : stop + 1, ids].log_softmax(-1)
    return float((wanted.exp() * (wanted - guessed)).sum()), stop - start


def _accepted(drafter: Drafter, boundaries: tuple[int, ...], each: Recording) -> tuple[float, int]:
    """Accepted tokens and rounds: a round begins behind the last token that is known, and counts whole."""
    drafted = drafter.target_ids(_unrolled(drafter, boundaries, each, STEPS).argmax(-1))
    place, stop, accepted, rounds = each.prompt - 1, each.prompt + each.answer - 2, 0, 0
    while place < stop:
        right = [int(drafted[step, place]) == int(each.tokens[place + 2 + step]) for step in range(STEPS)]
        taken = right.index(False) if False in right else STEPS
        place, accepted, rounds = place + taken + 1, accepted + taken, rounds + 1
    return float(accepted), rounds
