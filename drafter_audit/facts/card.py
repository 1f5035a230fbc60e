"""A model card as facts: what its metadata and its text say of target, training and accept_len.

A card is prose by strangers. What it does not say plainly, or says twice and differently, is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import accumulate, islice

from drafter_audit.facts import markdown
from drafter_audit.facts.card_tables import accept_lens
from drafter_audit.facts.markdown import Paragraph, Table
from drafter_audit.facts.records import Facts, Training

FROM_METADATA = "model card, metadata"
FROM_TEXT = "model card, read from text"

_MAX_FRONT_MATTER = 1 << 16
_MAX_DEPTH = 50
_MOST_CLAIMS = 1000  # no card that was read by a person comes near
_REPO = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}", re.ASCII)
_NAMED_TARGET = re.compile(
    r"(?:--model-path[ =]|\bvllm serve |\b(?:verifier|target model|base model)\b[\s:*`\"'\[]{1,8})"
    r"[\"'`]?([A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95})(?![\w/-])",
    re.ASCII | re.IGNORECASE,
)
_DRAFTER_NAME = re.compile(r"eagle-?3|draft|speculator|dflash|dspark|medusa", re.IGNORECASE)
_PLACEHOLDER = re.compile(r"(?:path|models?|checkpoints?|your|outputs?|data|org|user(?:name)?)/", re.IGNORECASE)

_COUNT = re.compile(
    r"(?<![\w.,-])(\d{1,3}(?:,\d{3}){1,3}|\d{1,10}(?:\.\d{1,4})?) ?(thousand|million|billion|[kmb])?\b\+?"
    r"(?:[ -](?!(?:steps?|epochs?|tokens?|gpus?|nodes?|hours?|days?|on|with|per|in|from|and|of)\b)"
    r"[a-z][a-z-]{0,30}){0,4}?"
    r"[ -](?:samples|examples|conversations|dialogues|dialogs|instances)\b",
    re.IGNORECASE,
)
_SCALE = {"": 1, "k": 10**3, "thousand": 10**3, "m": 10**6, "million": 10**6, "b": 10**9, "billion": 10**9}
_CUE = re.compile(
    r"\b(?:(train(?:ed|ing|s)?|fine-?tuned)|eval\w*|benchmark\w*|held-?out|validation|tested|judge|drawn|measured)\b",
    re.IGNORECASE,
)
_SHARE = re.compile(r"(?<![\w-])(?:each|every|per)(?![\w-])", re.IGNORECASE)
_SENTENCE_END = re.compile(r"(?<=[.!?]) ")

_LABELLED = re.compile(r"(?:training )?data(?: ?sets?)? ?(?:used)? ?: ?(\S.{0,119})", re.IGNORECASE)
_NAME = r"[A-Za-z0-9][\w./+-]{2,80}"
_DATASET = re.compile(
    rf"\b(?:from|on|with|using|of) (?:the |our |an? )?(?:regenerated )?"
    rf"({_NAME}(?:(?:,| and| \+|, and) {_NAME}){{0,4}}(?:,? and some [a-z]{{3,20}})?) (?:data ?sets?|data|corpus)\b"
)
_PROPER = re.compile(r"[A-Z0-9_/]|[a-z]-[a-z]")
_GENERIC = {"high-quality", "open-source", "in-house", "multi-turn", "large-scale", "same", "training", "this", "SFT"}


def read_card(text: str) -> Facts:
    """What a card (a README.md) says of its drafter; a card that says nothing gives empty Facts, never an error.

    Only the first 256 Ki characters are read; `unread` says what of the card could not be. Sources are "model card,
    metadata" and "model card, read from text", the latter with a remark where the text says too much to take.
    """
    front, body = markdown.split_front_matter(text[: markdown.MAX_CHARACTERS])
    metadata, unread = _metadata(front)
    if len(text) > markdown.MAX_CHARACTERS:
        unread = f"the model card was read up to its character {markdown.MAX_CHARACTERS:,} only"
    blocks = list(markdown.blocks(body))
    target, target_source = _target(metadata.get("base_model", []), body)
    return Facts(
        target=target,
        target_source=target_source,
        training=_training(metadata.get("datasets", []), [block for block in blocks if isinstance(block, Paragraph)]),
        accept_len=accept_lens([block for block in blocks if isinstance(block, Table)], body, FROM_TEXT),
        unread=unread,
    )


def _metadata(front: str) -> tuple[dict[str, list[str]], str | None]:
    """The front matter's top-level strings and lists of strings, as lists; and why it could not be read."""
    if not front.strip():
        return {}, None
    if len(front) > _MAX_FRONT_MATTER or _depth(front) > _MAX_DEPTH:
        return {}, "the model card's metadata is too long or too deeply nested to be read"
    import yaml  # type: ignore[import-untyped]

    try:
        # The base loader makes strings of all scalars and follows no merge keys, which can grow without bound.
        raw = yaml.load(front, Loader=yaml.BaseLoader)
    except (yaml.YAMLError, RecursionError, ValueError, OverflowError):  # the last two are int()'s and chr()'s own
        return {}, "the model card's metadata is not YAML"
    items = raw.items() if isinstance(raw, dict) else ()
    return {key: _strings(value) for key, value in items if isinstance(key, str)}, None


def _depth(front: str) -> int:
    """How deep brackets stand in each other, those in quotes too: the scanner takes time that grows with its square."""
    return max(accumulate((character in "[{") - (character in "]}") for character in front))


def _strings(value: object) -> list[str]:
    values = value if isinstance(value, list) else [value]
    return [item.strip() for item in values if isinstance(item, str) and item.strip()]


def _target(base_models: list[str], body: str) -> tuple[str | None, str | None]:
    named = _targets(base_models)
    if named:
        return (named.pop(), FROM_METADATA) if len(named) == 1 else (None, None)
    guessed = _targets([match[1].rstrip(".") for match in _NAMED_TARGET.finditer(body)])
    return (guessed.pop(), FROM_TEXT) if len(guessed) == 1 else (None, None)


def _targets(repos: list[str]) -> set[str]:
    # A fine-tuned or quantized drafter names the drafter it came from: that is no target.
    return {
        repo
        for repo in repos
        if _REPO.fullmatch(repo) and not _DRAFTER_NAME.search(repo) and not _PLACEHOLDER.match(repo)
    }


def _training(datasets: list[str], paragraphs: list[Paragraph]) -> Training | None:
    counts, remark, near = _samples(paragraphs)
    told = _dataset(near, paragraphs)
    dataset = ", ".join(datasets)[:200] or told
    if dataset is None and not counts and not remark:
        return None
    samples = counts.pop() if len(counts) == 1 else None
    source = FROM_TEXT + remark if remark or samples is not None or not datasets else FROM_METADATA
    if datasets and source != FROM_METADATA:
        source = f"{FROM_METADATA}; samples: {source}"
    return Training(dataset, samples, source)


def _samples(paragraphs: list[Paragraph]) -> tuple[set[int], str, str]:
    """The numbers of training samples told, a remark if none can be taken, and the sentence of the first."""
    claims = (claim for paragraph in paragraphs for claim in _claims(paragraph))
    found = list(islice(claims, _MOST_CLAIMS + 1))
    if len(found) > _MOST_CLAIMS:
        return set(), f" (more than {_MOST_CLAIMS} sample counts, none taken)", ""
    # A sentence on training outweighs one that just tells of samples.
    sure = [claim for claim in found if claim[0]] or found
    whole = {count for _, count, is_share, _ in sure if not is_share}
    near = sure[0][3] if sure else ""
    if len(whole) > 1:
        return set(), f" ({len(whole)} different sample counts, none taken)", near
    if sure and any(is_share for _, _, is_share, _ in sure):
        return set(), " (sample counts are of parts, none taken)", near
    return whole, "", near


def _claims(paragraph: Paragraph) -> Iterator[tuple[bool, int, bool, str]]:
    """Per sample count that is not of an evaluation: is it said of training, the count, is it of a part, where."""
    for sentence in _SENTENCE_END.split(paragraph.text):
        for match in _COUNT.finditer(sentence):
            cue = _cue(sentence, match.start(), match.end()) or _CUE.search(paragraph.heading)
            if cue is None or cue[1]:
                yield cue is not None, _number(match), _is_share(sentence, match), sentence


def _is_share(sentence: str, count: re.Match[str]) -> bool:
    """Whether a count is of each part; the word must stand near, and whole: "Open-PerfectBlend" holds a "Per"."""
    near, whole = count.end() + 12, count.end() + 24
    return any(share.start() < near for share in _SHARE.finditer(sentence, max(0, count.start() - 40), whole))


def _cue(sentence: str, start: int, stop: int) -> re.Match[str] | None:
    """The word that says what a count is of: the last one within 200 characters before it, else the first after."""
    before = list(_CUE.finditer(sentence, max(0, start - 200), start))
    return before[-1] if before else _CUE.search(sentence, stop, stop + 200)


def _number(match: re.Match[str]) -> int:
    return round(float(match[1].replace(",", "")) * _SCALE[(match[2] or "").lower()])


def _dataset(near: str, paragraphs: list[Paragraph]) -> str | None:
    """The data set named in the sentence `near`, else on a line of its own, else in a sentence on training."""
    for match in _DATASET.finditer(near):
        if _is_proper(match[1]):
            return match[1]
    for paragraph in paragraphs:
        if label := _LABELLED.match(paragraph.text):
            return _SENTENCE_END.split(label[1])[0].rstrip(".")
    for paragraph in paragraphs:
        for match in _DATASET.finditer(paragraph.text):
            cue = _cue(paragraph.text, match.start(), match.end())
            if cue and cue[1] and _is_proper(match[1]):
                return match[1]
    return None


def _is_proper(name: str) -> bool:
    return bool(_PROPER.search(name)) and name.split()[0] not in _GENERIC
