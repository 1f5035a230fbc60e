"""Records a target: its answers to prompts into a folder, one after another, from where an earlier run stopped."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path

import torch

from drafter_audit.model.target.model import TargetModel
from drafter_audit.model.target.taps import checked_boundaries
from drafter_audit.prompts.limits import check_prompts
from drafter_audit.prompts.prompt import TokenPrompt
from drafter_audit.recording.answer import Settings, recorded_answer
from drafter_audit.recording.describe import Origin, Ran, describe
from drafter_audit.recording.size import check_space
from drafter_audit.recording.store import Store, begin

__all__ = ["Origin", "Settings", "record"]

_LIBRARIES = ("torch", "transformers", "safetensors")


def record(
    target: TargetModel,
    prompts: Sequence[TokenPrompt],
    folder: str | Path,
    settings: Settings,
    origin: Origin | None = None,
    watch: Callable[[int], None] = lambda _: None,
) -> None:
    """The target's answers to `prompts` become a recording in `folder`, which `open_recording` reads.

    Each answer is written whole before the next begins, so that the same call goes on after a kill, and gives the same
    bytes as a run that was not killed. `watch` is told after each prompt how many are there. Under torchrun every rank
    calls it, and rank 0 alone keeps and writes. Raises, before any answer: InputsError for no prompts and for one that
    does not fit the target, UsageError for a folder with another recording, AuditError where the disk has too little
    room; later AuditError where the disk refuses, and what `TargetModel.forward_into` raises.
    """
    checked_boundaries(settings.boundaries, target.num_layers)
    check_prompts(
        prompts,
        target.ref,
        vocab_size=target.vocab_size,
        max_positions=target.max_positions,
        max_new_tokens=settings.max_new_tokens,
        lookahead=settings.lookahead,
    )
    store = None
    rows = torch.zeros(len(prompts), dtype=torch.int64)
    if target.ranks.first:
        store = begin(Path(folder), describe(target, prompts, settings, origin or Origin(), _ran(target)))
        rows = torch.tensor([store.rows(index) for index in range(len(prompts))])
        check_space(store.folder, target, [p for p, done in zip(prompts, rows, strict=True) if not done], settings)
    rows = target.ranks.same(rows, next(target.model.parameters()).device)
    for index, prompt in enumerate(prompts):
        if not rows[index]:
            rows[index] = _record_one(target, prompt, index, int(rows[:index].sum()), settings, store)
        watch(index + 1)
    if store is not None:
        store.finish()


def _record_one(
    target: TargetModel, prompt: TokenPrompt, index: int, before: int, settings: Settings, store: Store | None
) -> int:
    """Records prompt `index`, with `before` states in the prompts before it; how many states it has."""
    every = tuple(range(target.num_layers + 1))
    boundaries = every if before < settings.all_tokens else settings.boundaries
    made = recorded_answer(target, prompt, boundaries, settings, _seed(settings.seed, index))
    if store is not None:
        store.add(index, made)
    return made.prompt_length + made.answer_length - 1


def _seed(seed: int, index: int) -> int:
    """Each prompt's own, so that a run that goes on draws what it would have drawn; hashed, so that no two runs of
    neighbouring seeds share one."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{index}".encode()).digest()[:8], "big")


def _ran(target: TargetModel) -> Ran:
    devices = tuple(sorted({str(each.device) for each in target.model.parameters()}))
    return Ran({name: version(name) for name in _LIBRARIES}, target.dtype, devices, target.ranks.size)
