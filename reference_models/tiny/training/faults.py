"""What may be wrong with a pair, one fault at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch

from drafter_audit.model.drafter import Drafter
from drafter_audit.model.layers import Linear
from drafter_audit.model.load import load_drafter

_KNOBS: dict[str, dict[str, Any]] = {
    "state concatenated first": {"concat": "hidden_first"},
    "residual after the norm": {"residual": "post_norm"},
    "feedback after the norm": {"feedback": "post_norm"},
    "no hidden norm": {"hidden_norm": "none"},
    "no final norm": {"final_norm": False},
    "token shift 0": {"token_shift": 0},
    "token shift 2": {"token_shift": 2},
    "rope theta 1,000,000": {"rope_theta": 1e6},
    "yarn rope, factor 32": {
        "rope_scaling": (("factor", 32.0), ("original_max_position_embeddings", 1024), ("type", "yarn"))
    },
    "embedding times sqrt(hidden)": {"embedding_scale": 128**0.5},
    "vocabulary map dropped": {"vocab_map": "identity"},
    "vocabulary map taken as absolute": {"vocab_map": "absolute"},
}


@dataclass(frozen=True)
class Case:
    """A drafter, and the boundaries that its slots are given."""

    name: str
    drafter: Drafter
    boundaries: tuple[int, ...]


def declared(ref: str) -> Case:
    """The drafter as it declares itself."""
    drafter = load_drafter(ref)
    return Case("as trained", drafter, drafter.wiring.boundaries or ())


def faults(ref: str) -> Iterator[Case]:
    """The drafter `ref`, each time with one thing wrong."""
    right = declared(ref)
    for name, boundaries in _tapped(right.boundaries).items():
        yield replace(right, name=name, boundaries=boundaries)
    for name, knobs in _KNOBS.items():
        wiring = replace(right.drafter.wiring, **knobs)
        yield replace(right, name=name, drafter=load_drafter(ref, wiring=wiring))
    yield replace(right, name="head at random", drafter=_random_head(right.drafter))


def _tapped(right: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    a, b, c = right
    shifted = {f"all boundaries {by:+d}": tuple(each + by for each in right) for by in (1, -1)}
    alone = {
        f"slot {slot} {by:+d}": tuple(each + by * (place == slot) for place, each in enumerate(right))
        for slot in range(3)
        for by in (1, -1)
    }
    swapped = {
        "slots 0 and 1 swapped": (b, a, c),
        "slots 1 and 2 swapped": (a, c, b),
        "slots 0 and 2 swapped": (c, b, a),
    }
    return shifted | {"embedding output in slot 0": (0, b, c)} | swapped | alone


def _random_head(drafter: Drafter) -> Drafter:
    generator = torch.Generator().manual_seed(5)
    weight = drafter.network.head.weight
    drawn = torch.randn(weight.shape, generator=generator) * weight.std()
    return replace(drafter, network=replace(drafter.network, head=Linear(drawn)))
