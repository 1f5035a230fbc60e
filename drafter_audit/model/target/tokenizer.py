"""A target's tokenizer, by transformers, and hashes by which a recording knows it again."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256

from drafter_audit.errors import AuditError, CannotRunError
from drafter_audit.model.target.parts import Untyped
from drafter_audit.sources.base import Source
from drafter_audit.sources.open import open_source
from drafter_audit.sources.reference import parse_reference

FILES = ("tokenizer.json", "tokenizer.model", "tiktoken.model", "tekken.json", "vocab.json", "merges.txt", "vocab.txt")
"""What the tokens are read from, by family; tokenizer.json alone for most."""

_LIMIT = 64 * 2**20  # bytes; the largest published tokenizer.json, of 262,144 tokens, takes 33 MB


@dataclass(frozen=True)
class TargetTokenizer:
    """`sha256` is over the files that hold the tokens, `template_sha256` over the chat template, None without one.

    `notes` says what makes the same prompt other tokens on another day.
    """

    tokenizer: Untyped
    sha256: str
    template_sha256: str | None
    notes: tuple[str, ...] = ()


def load_tokenizer(ref: str, *, trust_remote_code: bool = False) -> TargetTokenizer | None:
    """The tokenizer of the target `ref`, of the commit that a branch resolves to; None where it ships none.

    Code from a repository runs only with `trust_remote_code`. Raises CannotRunError where transformers does not load
    it, and what opening a reference raises.
    """
    source = open_source(ref)
    held = [name for name in FILES if name in source.files()]
    if not held:
        return None
    tokenizer = _load(ref, source, trust_remote_code)
    template = _template(tokenizer)
    return TargetTokenizer(
        tokenizer,
        _digest(source, held),
        None if template is None else sha256(template.encode()).hexdigest(),
        tuple(_notes(template or "")),
    )


def _load(ref: str, source: Source, trust_remote_code: bool) -> Untyped:
    from transformers import AutoTokenizer

    at = {} if source.revision is None else {"revision": source.revision, "subfolder": parse_reference(ref).path}
    try:
        loaded = AutoTokenizer.from_pretrained(source.name, trust_remote_code=trust_remote_code, **at)
    except AuditError:
        raise
    except Exception as error:  # a library's, or code of the repository's: of any type
        why = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        mend = "see that its tokenizer files are whole, or pass --trust-remote-code to run the repository's own code"
        raise CannotRunError(f"transformers does not load the tokenizer: {why}", ref, mend) from error
    loaded.model_max_length = sys.maxsize  # long texts are refused by prompts/limits, in our words and not in two
    return loaded


def _template(tokenizer: Untyped) -> str | None:
    """The template that a chat passes: of several that one named default, as transformers takes it."""
    template = getattr(tokenizer, "chat_template", None)
    found = template.get("default") if isinstance(template, dict) else template
    return None if found is None else str(found)


def _digest(source: Source, names: list[str]) -> str:
    digest = sha256()
    for name in names:
        data = source.read(name, limit=_LIMIT)
        digest.update(f"{name} {len(data)}\n".encode() + data)
    return digest.hexdigest()


def _notes(template: str) -> Iterator[str]:
    if "strftime_now" in template:
        yield "the chat template writes the day's date: a prompt is other tokens on another day"
