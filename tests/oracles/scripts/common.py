"""What the scripts share: seeded weights, states and tokens, and how an oracle is written."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

ORACLES = Path(__file__).parent.parent
HIDDEN, HEADS, KV_HEADS, HEAD_DIM, INTERMEDIATE = 32, 4, 2, 16, 48  # heads * head_dim is not hidden
VOCAB, DRAFT_VOCAB, TOKENS, STEPS = 80, 36, 12, 5


def fill(weights: Iterable[tuple[str, Tensor]]) -> None:
    """Norms around 1 with spread 0.3, so that none of them can be left out or swapped unseen; all else normal."""
    with torch.no_grad():
        for name, weight in weights:
            if "norm" in name:
                weight.copy_(1 + 0.3 * torch.randn_like(weight))
            else:
                weight.copy_(0.15 * torch.randn_like(weight))


def set_vocabulary(module: nn.Module) -> None:
    """A sorted random subset of the target's vocabulary: target id = draft id + d2t[draft id]."""
    kept = torch.randperm(VOCAB)[:DRAFT_VOCAB].sort().values
    module.get_buffer("d2t").copy_(kept - torch.arange(DRAFT_VOCAB))
    if hasattr(module, "t2d"):
        module.get_buffer("t2d").zero_()
        module.get_buffer("t2d")[kept] = True


def random_states(slots: int, width: int) -> Tensor:
    """[slots, TOKENS, width], each slot larger than the one before, as a residual stream is."""
    scale = torch.arange(1, slots + 1).view(-1, 1, 1)
    return scale * torch.randn(slots, TOKENS, width)


def random_tokens() -> Tensor:
    """[TOKENS], without the first ids, which configs give to special tokens."""
    return torch.randint(3, VOCAB, (TOKENS,))


def fresh(name: str) -> Path:
    """An empty folder of that name among the oracles."""
    folder = ORACLES / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def write_oracle(folder: Path, tensors: Mapping[str, Tensor], **metadata: object) -> None:
    """oracle.safetensors beside the checkpoint. Metadata values become strings, JSON where they are no strings."""
    if not all(torch.isfinite(tensor).all() for tensor in tensors.values()):
        raise ValueError(f"{folder.name}: a value is not finite")
    told = {key: value if isinstance(value, str) else json.dumps(value) for key, value in metadata.items()}
    save_file(
        {name: tensor.detach().clone().contiguous() for name, tensor in tensors.items()},
        folder / "oracle.safetensors",
        metadata=told,
    )
