"""A drafter's tokenizer and its target's, as far as two local folders hold them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from drafter_audit.checkpoint.config import parse_config
from drafter_audit.drafter.config_view import ConfigView
from drafter_audit.errors import AuditError, ConfigError
from drafter_audit.sources.base import Source
from drafter_audit.sources.open import open_source
from drafter_audit.sources.reference import parse_reference

if TYPE_CHECKING:
    from drafter_audit.drafter.spec import DrafterSpec

_FILES = ("tokenizer.json", "tokenizer_config.json")  # the first that both have is compared
_LIMIT = 64 * 1024 * 1024  # bytes; the largest published tokenizer.json, of 262,144 tokens, takes 33 MB


@dataclass(frozen=True)
class Tokenizer:
    """`vocab` and `added`: token to id. tokenizer_config.json holds the added tokens alone."""

    file: str
    vocab: Mapping[str, int]
    added: Mapping[str, int]

    def to_dict(self) -> dict[str, Any]:
        return {"file": self.file, "tokens": len(self.vocab), "added_tokens": len(self.added)}


def read_tokenizers(spec: DrafterSpec) -> tuple[Tokenizer, Tokenizer] | str:
    """The drafter's and the target's, by the file that both ship; why they were not compared, where they were not.

    Two files of the same bytes are read as two empty tokenizers. A file that is unusable is no failure of the audit.
    """
    found = _folders(spec)
    if isinstance(found, str):
        return found
    ours, theirs, name = found
    try:
        one, other = ours.read(name, limit=_LIMIT), theirs.read(name, limit=_LIMIT)
        if one == other:
            return Tokenizer(name, {}, {}), Tokenizer(name, {}, {})
        return _parse(one, name, ours.name), _parse(other, name, theirs.name)
    except AuditError as error:
        return f"the tokenizers were not compared: {error}"


def _folders(spec: DrafterSpec) -> tuple[Source, Source, str] | str:
    """The two folders and the file to compare; what is on the Hub is not fetched for it."""
    ref = spec.target.ref
    if spec.source != "local" or spec.target.said_by != "--target" or ref is None or _kind(ref) != "local":
        return "the tokenizers were not compared: that takes the drafter and its target (--target) as local folders"
    theirs = open_source(ref)
    both = spec.origin.files().keys() & theirs.files().keys()
    name = next((name for name in _FILES if name in both), None)
    if name is None:
        return f"the tokenizers were not compared: not both folders hold {' or '.join(_FILES)}"
    return spec.origin, theirs, name


def _kind(ref: str) -> str:
    return parse_reference(ref).kind


def _parse(data: bytes, name: str, folder: str) -> Tokenizer:
    where = f"{folder}: {name}"
    raw = parse_config(data, where)
    if name == "tokenizer.json":
        return Tokenizer(name, _vocab(raw, where), _added(raw.get("added_tokens", []), where))
    decoder = ConfigView(raw, where).section("added_tokens_decoder")
    view = ConfigView(decoder, f"{where}: added_tokens_decoder")
    entries = [{**view.section(key), "id": int(key)} for key in decoder if key.isdecimal()]
    return Tokenizer(name, {}, _added(entries, where))


def _vocab(raw: Mapping[str, Any], where: str) -> Mapping[str, int]:
    """Of BPE and WordPiece a table of ids, of Unigram a list of tokens with their scores."""
    model = raw.get("model")
    vocab = model.get("vocab") if isinstance(model, Mapping) else None
    if isinstance(vocab, list):
        vocab = {str(entry[0]) if isinstance(entry, list) else str(entry): i for i, entry in enumerate(vocab)}
    if not isinstance(vocab, Mapping) or not all(map(_is_id, vocab.values())):
        raise ConfigError("model.vocab is no table of ids", where, "save the tokenizer anew")
    return vocab


def _added(entries: object, where: str) -> Mapping[str, int]:
    listed = entries if isinstance(entries, list) else []
    if listed is not entries or not all(isinstance(entry, Mapping) and _is_id(entry.get("id")) for entry in listed):
        raise ConfigError("added_tokens is no list of objects with an id", where, "save the tokenizer anew")
    return {str(entry.get("content")): entry["id"] for entry in listed}


def _is_id(value: object) -> bool:
    return isinstance(value, int)
