"""How large a recording becomes at most, and whether the disk has the room: asked before any long work."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import torch

from drafter_audit.errors import AuditError
from drafter_audit.prompts.prompt import TokenPrompt
from drafter_audit.recording.answer import Settings
from drafter_audit.recording.describe import Described

_OVERHEAD = 8192
"""Bytes of a file beside its values: the header, of up to some 100 tensors, and what a file system rounds up."""


def largest(target: Described, prompts: Sequence[TokenPrompt], settings: Settings) -> int:
    """Bytes of the recording of `prompts` where every answer is as long as it may be."""
    state = target.hidden_size * torch.empty(0, dtype=getattr(torch, target.dtype)).element_size()
    top = min(settings.top, target.vocab_size)
    total = rows = 0
    for prompt in prompts:
        every = rows < settings.all_tokens
        boundaries = target.num_layers + 1 if every else len(settings.boundaries)
        boundaries += every or target.num_layers in settings.boundaries  # the last state, behind the final norm
        rows += (states := len(prompt.ids) + settings.max_new_tokens - 1)
        tokens = 8 * (states + 1 + settings.lookahead) + 4 * (settings.max_new_tokens + settings.lookahead)
        total += boundaries * states * state + settings.max_new_tokens * (8 * top + 4) + tokens + _OVERHEAD
    return total


def check_space(folder: Path, target: Described, prompts: Sequence[TokenPrompt], settings: Settings) -> None:
    """Raises AuditError where `prompts`, those still to be recorded, may take more room than the disk has free."""
    needed, free = largest(target, prompts, settings), shutil.disk_usage(folder).free
    if needed > free:
        told = f"the recording takes up to {needed:,} bytes, and {free:,} are free"
        mend = "make room, or ask for fewer boundaries, prompts or new tokens"
        raise AuditError(told, str(folder), mend)
