"""What the engine's worker is asked, and what it says of itself: plain JSON between two environments."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from drafter_audit.checkpoint.strict_json import strict_loads
from drafter_audit.errors import CannotRunError, UsageError
from drafter_audit.recording.describe import Ran
from drafter_audit.recording.manifest import filled

_OURS = (
    *("--model", "--dtype", "--revision", "--code-revision", "--max-model-len", "--max-logprobs", "--max-num-seqs"),
    *("--logprobs-mode", "--skip-tokenizer-init", "--enable-prefix-caching", "--no-enable-prefix-caching"),
    *("--speculative-config", "--kv-transfer-config"),
)
"""Arguments that recording decides: another value makes another recording, or none."""


@dataclass(frozen=True)
class Engine:
    """Which engine, by which Python; `arguments` as `vllm serve` takes them; `environment` is added to ours.

    `timeout_s`: how long it may take to load the target, and to answer one prompt. Raises UsageError for arguments that
    recording decides.
    """

    python: str
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float = 3600.0
    name: str = "vllm"

    def __post_init__(self) -> None:
        for argument in self.arguments:
            name = argument.partition("=")[0].replace("_", "-")
            if name in _OURS or name.startswith(("--speculative-config", "--kv-transfer-config")):
                raise UsageError(f"{name} is not for you to say: `record` does", "--engine-args", "leave it out")


@dataclass(frozen=True)
class Asked:
    """A prompt's place in the set and its tokens."""

    index: int
    ids: tuple[int, ...]


@dataclass(frozen=True)
class Job:
    """`model` at `revision`, in `dtype`, or on a CPU in `cpu_dtype`; `max_length` is the longest text in tokens."""

    model: str
    revision: str | None
    dtype: str
    cpu_dtype: str
    boundaries: tuple[int, ...]
    end_ids: tuple[int, ...]
    max_new_tokens: int
    lookahead: int
    top: int
    max_length: int
    arguments: tuple[str, ...]
    prompts: Sequence[Asked]

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")


def read_ran(path: Path) -> Ran:
    """What the worker wrote to `path`. Raises RecordingError, CannotRunError."""
    try:
        raw: Any = strict_loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise CannotRunError(
            f"what the engine says of itself cannot be read: {error}", str(path), "run again"
        ) from error
    return filled(Ran, raw, str(path))
