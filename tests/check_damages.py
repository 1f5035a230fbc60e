"""Ten ways in which an export is damaged, each planted in the reference drafter, and what a gate has to name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from tests.planted import PLANTS, Config, Plant, Weights, planted


def _random_head(_: Config, weights: Weights) -> None:
    head = weights["lm_head.weight"]
    made = torch.randn(head.shape, generator=torch.Generator().manual_seed(2)) * 0.02
    weights["lm_head.weight"] = made.to(head.dtype)


def _stale_map(_: Config, weights: Weights) -> None:
    """The map of another run, which kept other tokens: each as many places on as there were tokens left out before."""
    kept = torch.arange(len(weights["d2t"])) + weights["d2t"]
    others = (kept + 1).clamp(max=int(kept.max()))
    others[-1] = kept[-1]
    weights["d2t"] = _distinct(others) - torch.arange(len(kept))


def _distinct(ids: torch.Tensor) -> torch.Tensor:
    """Rising, with no id twice: the last ones step back."""
    for place in range(len(ids) - 2, -1, -1):
        ids[place] = min(int(ids[place]), int(ids[place + 1]) - 1)
    return ids


def _lost_embedding(_: Config, weights: Weights) -> None:
    """Allocated and never filled: what is left of a weight that the exporter did not find."""
    weights["embed_tokens.weight"] = torch.zeros_like(weights["embed_tokens.weight"])


def _renamed_layer(_: Config, weights: Weights) -> None:
    for name in [name for name in weights if name.startswith(("midlayer.", "layers.0."))]:
        weights[name.replace("midlayer.", "decoder.block.").replace("layers.0.", "decoder.block.")] = weights.pop(name)


def _untrained(_: Config, weights: Weights) -> None:
    made = torch.Generator().manual_seed(3)
    for name, weight in weights.items():
        if weight.dim() == 2:
            weights[name] = (torch.randn(weight.shape, generator=made) * 0.02).to(weight.dtype)


@dataclass(frozen=True)
class Damage:
    """`row` fails and its reason has `words`: the finding's code, the knob or the verdict. `plant` names one of
    `tests/planted.py` or is its own; `after` is done to the folder."""

    name: str
    row: str
    words: str
    plant: str | Plant
    after: Callable[[Path], None] = lambda _: None

    def write(self, folder: Path) -> str:
        folder.mkdir(parents=True)
        own = {"own": self.plant} if callable(self.plant) else {}
        ref = planted(folder, *(["own"] if own else [str(self.plant)]), also=own)
        self.after(folder)
        return ref


def _truncate(folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[: file.stat().st_size * 2 // 3])


def _nothing(_: Config, __: Weights) -> None:
    pass


DAMAGES = (
    Damage("wrong ids", "wiring", "boundaries: declared [2, 6, 8], trained with [2, 6, 9]", "slot 2 -1"),
    Damage("lost norm flag", "wiring", "residual: declared post_norm, trained with pre_norm", "norm_before_residual"),
    Damage("random head", "wiring", "damaged; the stored lm_head is not", _random_head),
    Damage("stale vocabulary map", "lint", "D2T-T2D", _stale_map),
    Damage("lost embedding", "lint", "EMB-ZERO", _lost_embedding),
    Damage("truncated shard", "lint", "model.safetensors", _nothing, _truncate),
    Damage(
        "swapped fc slots", "wiring", "slot_order: declared [2, 6, 9], trained with [6, 2, 9]", "fc columns 0 1 swapped"
    ),
    Damage("wrong rope base", "wiring", "rope_theta: declared 500000.0, trained with 10000.0", "theta 500000"),
    Damage("renamed layer", "lint", "KIND-UNKNOWN", _renamed_layer),
    Damage("untrained weights", "wiring", "damaged; it drafts at chance", _untrained),
)
assert set(PLANTS) >= {damage.plant for damage in DAMAGES if isinstance(damage.plant, str)}
