"""Prompts and models, as an engine is told them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from drafter_audit.bench.wire import Question, Served
from drafter_audit.drafter.spec import DrafterSpec
from drafter_audit.errors import UsageError
from drafter_audit.prompts.prompt import Prompt, PromptSet
from drafter_audit.sources.reference import parse_reference

_METHODS: dict[str, Literal["eagle3", "eagle"]] = {
    **dict.fromkeys(("eagle3", "eagle3_mla", "eagle3_noaux"), "eagle3"),
    "eagle1": "eagle",
}


@dataclass(frozen=True)
class Answering:
    """What every prompt is asked with."""

    max_new_tokens: int
    temperature: float
    seed: int
    raw: bool = False
    thinking: bool | None = None


def questions_of(prompts: PromptSet, how: Answering) -> tuple[Question, ...]:
    """Raises UsageError for a row that `raw` cannot ask, and for no rows."""
    if how.raw and how.thinking is not None:
        raise UsageError(
            "--raw passes no chat template, so there is no thinking to switch", "--thinking", "leave one out"
        )
    return tuple(_question(prompt, how) for prompt in prompts.prompts)


def token_question(id: str, category: str | None, ids: Sequence[int], how: Answering) -> Question:
    return Question(id, category, how.max_new_tokens, how.temperature, how.seed, token_ids=tuple(ids))


def _question(prompt: Prompt, how: Answering) -> Question:
    if prompt.token_ids is not None:
        return token_question(prompt.id, prompt.category, prompt.token_ids, how)
    common = (prompt.id, prompt.category, how.max_new_tokens, how.temperature, how.seed)
    if not how.raw:
        thinking = prompt.thinking if how.thinking is None else how.thinking
        return Question(*common, messages=prompt.messages, thinking=thinking)
    if len(prompt.messages) > 1 or prompt.thinking is not None:
        what = "--raw takes one text and no thinking, and the row has more"
        raise UsageError(what, f"prompt {prompt.id!r}", "write a plain prompt, or leave --raw out")
    return Question(*common, text=prompt.messages[0]["content"])


def served(ref: str) -> Served:
    """A reference as an engine takes it: a folder by its full path, else a repository. Raises BadReferenceError."""
    found = parse_reference(ref)
    return Served(str(Path(found.name).resolve()) if found.kind == "local" else found.name, found.revision)


def method_of(spec: DrafterSpec) -> Literal["eagle3", "eagle"]:
    """The engines' algorithm for its kind. Raises UsageError for a kind that this command starts no server with."""
    method = _METHODS.get(spec.kind.name)
    if method is None:
        mend = "start the engine by hand, and attach to it with --url"
        raise UsageError(f"no server is started with a drafter of kind {spec.kind.name}", spec.ref, mend)
    return method
