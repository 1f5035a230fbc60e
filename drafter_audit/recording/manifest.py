"""What a recording says of itself: which target, prompts and settings made it, and what each answer came to."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from types import UnionType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from drafter_audit.checkpoint.strict_json import strict_loads
from drafter_audit.errors import RecordingError

SCHEMA_VERSION = 1
Status = Literal["in progress", "finished"]
T = TypeVar("T")

_FREE = ("command", "answers", "notes")
"""Fields that a run that goes on with a recording need not share with the one that began it."""

_ADDED: Mapping[str, Any] = {"notes": [], "last_normed": False, "engine": None, "engine_args": []}
"""Fields that the first recordings lack, and what those are read with."""


@dataclass(frozen=True)
class Answer:
    """One prompt's file: its name and size, and what the answer came to. `boundaries` are those of its states."""

    file: str
    nbytes: int
    id: str
    category: str | None
    prompt_length: int
    answer_length: int
    boundaries: tuple[int, ...]
    capped: bool
    degenerate: bool


@dataclass(frozen=True)
class Manifest:
    """`lookahead` tokens follow each answer; `top` logits are kept for each answer token.

    `boundaries` are those that every prompt has; the first prompts have all, until they hold `all_tokens` states.
    `last_normed`: wherever boundary L is kept, so is its state behind the target's final norm.
    `prompts_sha256` is over the bytes of the prompt file, `tokens_sha256` over what the target was given. `thinking` is
    None where nobody chose. `engine`, such as "vllm", ran the target with `engine_args`; None: transformers did.
    `libraries` maps names to versions. `notes` say what a reader must know of prompts,
    tokenizer and target. `answers` are complete once the recording is finished.
    """

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
    boundaries: tuple[int, ...] = ()
    all_tokens: int = 0
    end_ids: tuple[int, ...] = ()
    count: int = 0
    tokens_sha256: str | None = None
    thinking: bool | None = None
    raw: bool = False
    quantization: str | None = None
    config_sha256: str | None = None
    tokenizer_sha256: str | None = None
    template_sha256: str | None = None
    devices: tuple[str, ...] = ()
    ranks: int = 1
    engine: str | None = None
    engine_args: tuple[str, ...] = ()
    tool_version: str = ""
    libraries: Mapping[str, str] = field(default_factory=dict)
    command: tuple[str, ...] = ()
    last_normed: bool = False
    notes: tuple[str, ...] = ()
    answers: tuple[Answer, ...] = ()

    def differences(self, other: Manifest) -> Iterator[tuple[str, object, object]]:
        """Each field in which the two were made otherwise: its name, and both values."""
        for name in (each.name for each in fields(self) if each.name not in _FREE):
            ours, theirs = getattr(self, name), getattr(other, name)
            if ours != theirs:
                yield name, ours, theirs

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def to_text(manifest: Manifest, status: Status) -> str:
    """manifest.json: the same text for the same manifest."""
    head = {"schema_version": SCHEMA_VERSION, "status": status}
    return json.dumps(head | manifest.to_dict(), indent=2, allow_nan=False) + "\n"


def from_text(text: str | bytes, where: str) -> tuple[Manifest, Status]:
    """What `to_text` was given. Raises RecordingError for what is no manifest, or one of another schema version."""
    raw = _object(text, where)
    version, status = raw.pop("schema_version", None), raw.pop("status", None)
    if version != SCHEMA_VERSION:
        mend = f"this release reads version {SCHEMA_VERSION}: record anew, or take the release that made it"
        raise RecordingError(f"schema_version {version!r}", where, mend)
    if status not in get_args(Status):
        raise RecordingError(f"status {status!r}", where, _MEND)
    answers = raw.pop("answers", None)
    if not isinstance(answers, list):
        raise RecordingError("no list of answers", where, _MEND)
    made = tuple(filled(Answer, each, where) for each in answers)
    return filled(Manifest, {**_ADDED, **raw, "answers": made}, where), status


_MEND = "the manifest is damaged: restore it, or record anew"


def _object(text: str | bytes, where: str) -> dict[str, Any]:
    try:
        raw = strict_loads(text)
    except (ValueError, RecursionError) as error:
        raise RecordingError(f"not JSON: {error}", where, _MEND) from error
    if not isinstance(raw, dict):
        raise RecordingError(f"not a JSON object but a {type(raw).__name__}", where, _MEND)
    return raw


def filled(kind: type[T], raw: object, where: str) -> T:
    """`kind` of the object `raw`, which must have its very fields, each of its type. Raises RecordingError."""
    hints = get_type_hints(kind)
    given = raw if isinstance(raw, dict) else {}
    if given.keys() != hints.keys():
        names = ", ".join(sorted(given.keys() ^ hints.keys()))
        raise RecordingError(f"fields missing or unknown: {names}", where, _MEND)
    values = {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
    for name, value in values.items():
        if not _fits(value, hints[name]):
            raise RecordingError(f"{name} is {value!r}", where, _MEND)
    return kind(**values)


def _fits(value: object, hint: Any) -> bool:  # noqa: ANN401 - any type that a field has
    """Whether a JSON value, its lists made tuples, is of the type that a field is said to have."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin is UnionType:
        return any(_fits(value, part) for part in parts)
    if origin is tuple:
        return isinstance(value, tuple) and all(_fits(each, parts[0]) for each in value)
    if origin is Mapping:
        return isinstance(value, dict) and all(_fits(each, parts[1]) for each in value.values())
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, hint) and (hint is bool or not isinstance(value, bool))
