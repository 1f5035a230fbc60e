"""Records a target: its answers to prompts into a folder, one after another, from where an earlier run stopped."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import torch

from drafter_audit import __version__
from drafter_audit.checkpoint.config import MAX_CONFIG_BYTES
from drafter_audit.drafter.target import describe_target
from drafter_audit.model.target.model import TargetModel
from drafter_audit.model.target.taps import checked_boundaries
from drafter_audit.prompts.limits import check_prompts
from drafter_audit.prompts.prompt import TokenPrompt
from drafter_audit.recording.answer import Settings, recorded_answer
from drafter_audit.recording.manifest import Manifest
from drafter_audit.recording.size import check_space
from drafter_audit.recording.store import Store, begin
from drafter_audit.sources.open import open_source

__all__ = ["Origin", "Settings", "record"]

_LIBRARIES = ("torch", "transformers", "safetensors")


@dataclass(frozen=True)
class Origin:
    """Where the prompts come from and how they became tokens; `prompts_sha256` is over the bytes of their file, None
    where there is none: the tokens' own then stands for it. `notes` say what of them a reader must know, `command` what
    was called."""

    prompts_name: str = "tokens"
    prompts_sha256: str | None = None
    thinking: bool | None = None
    raw: bool = False
    tokenizer_sha256: str | None = None
    template_sha256: str | None = None
    notes: tuple[str, ...] = ()
    command: tuple[str, ...] = ()


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
        store = begin(Path(folder), describe(target, prompts, settings, origin or Origin()))
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


def describe(target: TargetModel, prompts: Sequence[TokenPrompt], settings: Settings, origin: Origin) -> Manifest:
    """The manifest of the recording that `record` makes."""
    source = open_source(target.ref)
    config = source.read("config.json", limit=MAX_CONFIG_BYTES)
    tokens = hashlib.sha256(json.dumps([prompt.ids for prompt in prompts]).encode()).hexdigest()
    return Manifest(
        target=target.ref,
        revision=target.revision,
        dtype=target.dtype,
        num_layers=target.num_layers,
        hidden_size=target.hidden_size,
        vocab_size=target.vocab_size,
        prompts_name=origin.prompts_name,
        prompts_sha256=origin.prompts_sha256 or tokens,
        max_new_tokens=settings.max_new_tokens,
        lookahead=settings.lookahead,
        top=min(settings.top, target.vocab_size),
        temperature=settings.temperature,
        seed=settings.seed,
        boundaries=settings.boundaries,
        all_tokens=settings.all_tokens,
        end_ids=target.end_ids,
        count=len(prompts),
        tokens_sha256=tokens,
        thinking=origin.thinking,
        raw=origin.raw,
        quantization=describe_target(source, ref=target.ref, said_by=None).quantization,
        config_sha256=hashlib.sha256(config).hexdigest(),
        tokenizer_sha256=origin.tokenizer_sha256,
        template_sha256=origin.template_sha256,
        devices=tuple(sorted({str(each.device) for each in target.model.parameters()})),
        ranks=target.ranks.size,
        tool_version=__version__,
        libraries={name: version(name) for name in _LIBRARIES},
        notes=(*origin.notes, *target.notes),
        command=origin.command,
    )
