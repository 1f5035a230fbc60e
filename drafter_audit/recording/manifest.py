"""What a recording says of itself."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Manifest:
    """`lookahead` tokens follow each answer; `top` logits are kept for each answer token."""

    target: str
    revision: str | None
    dtype: str
    num_layers: int
    hidden_size: int
    vocab_size: int
    prompts_name: str
    prompts_sha256: str
    max_new_tokens: int
    lookahead: int
    top: int
    temperature: float
    seed: int
