"""Prompts, as a file says them and as tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Prompt:
    """One prompt: `messages` of a chat, or `token_ids` taken as they are. `turns` after the first wait for answers.

    `thinking` is what the row says of it, None where it says nothing.
    """

    id: str
    category: str | None
    messages: tuple[Mapping[str, str], ...] = ()
    later_turns: tuple[str, ...] = ()
    token_ids: tuple[int, ...] | None = None
    thinking: bool | None = None


@dataclass(frozen=True)
class PromptSet:
    """`sha256` is over the bytes of the JSONL file. `notes` say what of it is not used as it stands."""

    name: str
    sha256: str
    prompts: tuple[Prompt, ...]
    notes: tuple[str, ...] = ()

    @property
    def needs_tokenizer(self) -> bool:
        """Whether any of them is text."""
        return any(prompt.token_ids is None for prompt in self.prompts)


@dataclass(frozen=True)
class TokenPrompt:
    """What the target is given."""

    id: str
    category: str | None
    ids: tuple[int, ...]
