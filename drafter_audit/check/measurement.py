"""What was measured of one drafter, with all that decides whether another measurement may be set against it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any

from drafter_audit.measure.acceptance import Acceptance, PromptCounts

if TYPE_CHECKING:
    from drafter_audit.decode.result import DecodeResult
    from drafter_audit.recording.manifest import Manifest


@dataclass(frozen=True)
class Made:
    """How a figure was made: two figures are comparable where all of this is equal. A hash is None where there is
    nothing to hash, as a chat template of raw prompts. `target` is the last part of a path, which moves."""

    mode: str
    steps: int
    topk: int
    temperature: float
    rule: str
    max_new_tokens: int
    raw: bool
    thinking: bool | None
    prompts_sha256: str
    tokens_sha256: str | None
    tokenizer_sha256: str | None
    template_sha256: str | None
    target: str
    target_revision: str | None
    target_config_sha256: str | None
    target_dtype: str | None
    target_quantization: str | None

    def differences(self, other: Made) -> Iterator[str]:
        """Each thing that is not the same, with both values."""
        for name in (each.name for each in fields(self)):
            ours, theirs = getattr(self, name), getattr(other, name)
            if ours != theirs:
                yield f"{name} {_short(ours)} against {_short(theirs)}"


@dataclass(frozen=True)
class Measurement:
    """The counts of each prompt, how they were made, and with which files and versions."""

    made: Made
    prompts: tuple[PromptCounts, ...]
    drafter: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)

    @property
    def acceptance(self) -> Acceptance:
        return Acceptance.pooled(self.prompts, steps=self.made.steps)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, told: Mapping[str, Any]) -> Measurement:
        """The inverse of `to_dict`. Raises KeyError, TypeError or ValueError for what is none."""
        prompts = tuple(PromptCounts(**{**each, "histogram": tuple(each["histogram"])}) for each in told["prompts"])
        return cls(Made(**told["made"]), prompts, dict(told["drafter"]), dict(told["versions"]))


def of_recording(result: DecodeResult, manifest: Manifest) -> Measurement:
    told = {name: getattr(manifest, name) for name in ("max_new_tokens", *_HASHES)}
    return _measurement(result, told | {"target_config_sha256": manifest.config_sha256})


_HASHES = ("tokens_sha256", "tokenizer_sha256", "template_sha256")


def of_live(result: DecodeResult, told: Mapping[str, Any]) -> Measurement:
    """`told` has max_new_tokens and the hashes that a recording's manifest has."""
    return _measurement(result, told)


def _measurement(result: DecodeResult, told: Mapping[str, Any]) -> Measurement:
    made, acceptance = result.provenance, result.acceptance
    return Measurement(
        Made(
            mode=made.mode,
            steps=acceptance.steps,
            topk=acceptance.topk,
            temperature=made.temperature,
            rule=made.rule,
            raw=made.raw,
            thinking=made.thinking,
            prompts_sha256=made.prompts.sha256,
            target=_named(made.target.ref),
            target_revision=made.target.revision,
            target_dtype=made.target.dtype,
            target_quantization=made.target.quantization,
            **told,
        ),
        acceptance.per_prompt,
        {"ref": made.drafter.ref, "revision": made.drafter.revision, "sha256": file_hashes(made.drafter.ref)},
        versions(),
    )


def _named(ref: str) -> str:
    return os.path.basename(os.path.abspath(ref)) if os.path.exists(ref) else ref


def file_hashes(ref: str) -> dict[str, str]:
    """sha256 of config and weights where `ref` is a folder; the revision says it of a repository."""
    import hashlib
    from pathlib import Path

    folder = Path(ref)
    found = [path for path in sorted(folder.glob("*")) if path.suffix in _HASHED] if folder.is_dir() else []
    hashes = {}
    for path in found:
        with path.open("rb") as file:
            hashes[path.name] = hashlib.file_digest(file, "sha256").hexdigest()
    return hashes


_HASHED = (".json", ".safetensors", ".bin", ".gguf")


def versions() -> dict[str, str]:
    """Of this tool, and of what computes."""
    from importlib.metadata import PackageNotFoundError, version

    from drafter_audit import __version__

    told = {"drafter-audit": __version__}
    for name in ("torch", "transformers", "numpy"):
        try:
            told[name] = version(name)
        except PackageNotFoundError:
            continue
    return told


def _short(value: object) -> str:
    text = "none" if value is None else str(value)
    return text[:12] if len(text) == 64 else text
