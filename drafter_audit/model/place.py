"""In which dtype and on which device a drafter computes, and its tensors brought there."""

from __future__ import annotations

import torch
from torch import Tensor

from drafter_audit.errors import CheckpointError, UsageError
from drafter_audit.model.needs import MAP

Place = tuple[torch.dtype, torch.device]

_PIECE = 2**20
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16, "float64": torch.float64}


def place_of(dtype: str, device: str) -> Place:
    """Both by their names in torch. Raises UsageError."""
    if dtype not in _DTYPES:
        raise UsageError(f"dtype {dtype!r}", "load_drafter", f"name one of {', '.join(_DTYPES)}")
    try:
        place = torch.empty(0, device=device).device
    except (RuntimeError, AssertionError, TypeError) as error:  # torch without CUDA asserts
        why = str(error).partition(". ")[0]
        raise UsageError(f"device {device!r} ({why})", "load_drafter", "name one that torch has here") from error
    if place.type == "meta":
        raise UsageError("device 'meta', which holds no values", "load_drafter", "name one that torch has here")
    return _DTYPES[dtype], place


def cast(tensor: Tensor, name: str, place: Place, where: str) -> Tensor:
    """As the network holds it: the map in int64, all else in the dtype that it computes in. Raises CheckpointError for
    a map of fractions and for weights that are whole numbers."""
    dtype, device = place
    if name == MAP:
        whole = tensor.to(torch.int64)
        if tensor.dtype == torch.bool or bool((whole != tensor).any()):
            raise CheckpointError(f"{MAP} holds {tensor.dtype}, and no whole numbers", where, "save it as int64")
        return whole.to(device)
    if not tensor.is_floating_point():
        raise CheckpointError(f"{name} is stored as {tensor.dtype}", where, "save it as F32, F16 or BF16")
    return tensor.to(device, dtype)


def non_finite(tensor: Tensor) -> int:
    """How many of its values are a NaN or infinite, counted in pieces: the check takes no memory of its own."""
    if not tensor.is_floating_point():
        return 0
    parts = torch.split(tensor.flatten(), _PIECE)
    return sum(part.numel() - int(part.isfinite().sum()) for part in parts)
