"""The manifest of a recording that is about to be made."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from drafter_audit import __version__
from drafter_audit.checkpoint.config import MAX_CONFIG_BYTES
from drafter_audit.drafter.target import describe_target
from drafter_audit.prompts.prompt import TokenPrompt
from drafter_audit.recording.answer import Settings
from drafter_audit.recording.manifest import Manifest
from drafter_audit.sources.base import Source
from drafter_audit.sources.open import open_source


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


@dataclass(frozen=True)
class Ran:
    """How the target ran: with which versions, in which of torch's dtypes, on which devices, over how many ranks."""

    libraries: Mapping[str, str]
    dtype: str
    devices: tuple[str, ...]
    ranks: int


class Described(Protocol):
    """A target, as far as a manifest tells of it: one that is loaded here, or that an engine loads."""

    @property
    def ref(self) -> str: ...
    @property
    def revision(self) -> str | None: ...
    @property
    def dtype(self) -> str: ...
    @property
    def num_layers(self) -> int: ...
    @property
    def hidden_size(self) -> int: ...
    @property
    def vocab_size(self) -> int: ...
    @property
    def end_ids(self) -> tuple[int, ...]: ...
    @property
    def notes(self) -> tuple[str, ...]: ...


def tokens_sha256(prompts: Sequence[TokenPrompt]) -> str:
    """Of all that a target is given, in order: two runs that have it alike were asked the same."""
    return hashlib.sha256(json.dumps([prompt.ids for prompt in prompts]).encode()).hexdigest()


def config_sha256(source: Source) -> str:
    """Over the bytes of a target's config.json."""
    return hashlib.sha256(source.read("config.json", limit=MAX_CONFIG_BYTES)).hexdigest()


def describe(
    target: Described,
    prompts: Sequence[TokenPrompt],
    settings: Settings,
    origin: Origin,
    ran: Ran,
    engine: str | None = None,
    engine_args: tuple[str, ...] = (),
) -> Manifest:
    """What the recording will say of itself, before any answer; `engine` is None where transformers ran the target.

    No engine gives the last state behind the final norm.
    """
    source = open_source(target.ref)
    tokens = tokens_sha256(prompts)
    return Manifest(
        target=target.ref,
        revision=target.revision,
        dtype=ran.dtype,
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
        last_normed=engine is None,
        end_ids=target.end_ids,
        count=len(prompts),
        tokens_sha256=tokens,
        thinking=origin.thinking,
        raw=origin.raw,
        quantization=describe_target(source, ref=target.ref, said_by=None).quantization,
        config_sha256=config_sha256(source),
        tokenizer_sha256=origin.tokenizer_sha256,
        template_sha256=origin.template_sha256,
        devices=ran.devices,
        ranks=ran.ranks,
        engine=engine,
        engine_args=engine_args,
        tool_version=__version__,
        libraries=dict(ran.libraries),
        notes=(*origin.notes, *target.notes),
        command=origin.command,
    )
