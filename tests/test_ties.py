"""How close logits are a tie, by their dtype."""

from __future__ import annotations

import pytest
import torch

from drafter_audit.decode.ties import tie_below


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_two_units_in_the_last_place_are_below_a_tie(dtype: str) -> None:
    """torch's own rounding of logits between 16 and 32: neighbours differ by one unit, half a tie."""
    logit = torch.tensor(20.0, dtype=getattr(torch, dtype))
    above = torch.nextafter(logit, torch.tensor(float("inf"), dtype=logit.dtype))
    assert tie_below(dtype) == 2 * float(above - logit)


def test_a_tie_of_single_precision_is_far_above_its_rounding() -> None:
    assert tie_below("float32") == tie_below("float64") == 1e-4
    assert tie_below("float32") > 10 * 32 * torch.finfo(torch.float32).eps
