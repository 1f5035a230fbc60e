"""Prompts become tokens, by the target's own chat template; what cannot be asked is refused before any long work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from drafter_audit.errors import AuditError, InputsError, UsageError
from drafter_audit.prompts.prompt import Prompt, PromptSet, TokenPrompt

Tokenizer: TypeAlias = Any
"""A tokenizer of transformers, whose classes tell a type checker nothing."""

SWITCHES = ("enable_thinking", "thinking")
"""What templates call the switch: Qwen3, GLM-4.5, Hunyuan and SmolLM3 the first; DeepSeek-V3.1, Kimi-K2.5 and
Granite 3.2 the second. A template does not see a variable that it does not name."""


def render(
    prompt_set: PromptSet,
    tokenizer: Tokenizer,
    *,
    thinking: bool | None,
    raw: bool,
    vocab_size: int,
    max_positions: int | None,
    max_new_tokens: int,
    lookahead: int = 0,
) -> tuple[TokenPrompt, ...]:
    """The tokens of each prompt, in order.

    Messages pass the tokenizer's chat template, which opens the assistant's turn; with `raw` their text is tokenized as
    it is, special tokens as the tokenizer adds them. `token_ids` are taken as they are. `tokenizer` may be None where
    all prompts are such. `thinking` overrides what rows say; None with a silent row leaves it to the template.

    Raises UsageError for `raw` or a tokenizer's lack that the options contradict, a switch that the template has not,
    messages that it refuses; InputsError for ids outside `vocab_size`, and for prompts which, with `max_new_tokens`
    and `lookahead`, need more than `max_positions` (None: no limit is known).
    """
    if raw and thinking is not None:
        raise UsageError(
            "--raw passes no chat template, so there is no thinking to switch", "--thinking", "leave one out"
        )
    way = _Raw(tokenizer) if raw else _Chat(tokenizer, thinking)
    made = tuple(TokenPrompt(p.id, p.category, _ids(p, way)) for p in prompt_set.prompts)
    _check_ids(made, vocab_size, prompt_set.name)
    if max_positions is not None:
        _check_lengths(made, max_positions, max_new_tokens, lookahead, prompt_set.name)
    return made


def _ids(prompt: Prompt, way: _Raw | _Chat) -> tuple[int, ...]:
    if prompt.token_ids is not None:
        return prompt.token_ids
    if way.tokenizer is None:
        mend = "name a target with a tokenizer, or give rows of token_ids"
        raise UsageError("text needs a tokenizer, and the target has none", _at(prompt), mend)
    ids = tuple(int(i) for i in way.ids(prompt))
    if not ids:
        raise UsageError("the tokenizer makes no token of it", _at(prompt), "write more, or take the row out")
    return ids


@dataclass(frozen=True)
class _Raw:
    tokenizer: Tokenizer

    def ids(self, prompt: Prompt) -> Sequence[int]:
        if prompt.thinking is not None:
            raise UsageError("the row says thinking, which --raw cannot switch", _at(prompt), "take it out of the row")
        if len(prompt.messages) > 1:
            what = f"--raw takes one text, and the row has {len(prompt.messages)} messages"
            raise UsageError(what, _at(prompt), "join them in a prompt, or leave --raw out")
        ids: Sequence[int] = self.tokenizer.encode(prompt.messages[0]["content"])
        return ids


@dataclass(frozen=True)
class _Chat:
    tokenizer: Tokenizer
    thinking: bool | None

    def ids(self, prompt: Prompt) -> Sequence[int]:
        thinking = prompt.thinking if self.thinking is None else self.thinking
        ids = self._apply(prompt, thinking)
        if thinking is not None and ids == self._apply(prompt, not thinking):
            what = f"thinking is switched {'on' if thinking else 'off'}, and the chat template has no switch for it"
            raise UsageError(what, _at(prompt), "leave out --thinking and --no-thinking, and thinking in the row")
        return ids

    def _apply(self, prompt: Prompt, thinking: bool | None) -> Sequence[int]:
        if not getattr(self.tokenizer, "chat_template", None):
            raise UsageError("the tokenizer has no chat template", _at(prompt), "pass --raw to give it the bare text")
        switches = {} if thinking is None else dict.fromkeys(SWITCHES, thinking)
        messages = [dict(message) for message in prompt.messages]
        try:
            ids: Sequence[int] = self.tokenizer.apply_chat_template(
                messages, add_generation_prompt=True, tokenize=True, return_dict=False, **switches
            )
        except AuditError:
            raise
        except Exception as error:  # a template's: of any type
            what = f"the chat template refuses it: {str(error).strip() or type(error).__name__}"
            raise UsageError(what, _at(prompt), "write messages as the target's model card shows them") from error
        return ids


def _at(prompt: Prompt) -> str:
    return f"prompt {prompt.id!r}"


def _check_ids(prompts: Sequence[TokenPrompt], vocab_size: int, name: str) -> None:
    for prompt in prompts:
        wrong = next((i for i in prompt.ids if not 0 <= i < vocab_size), None)
        if wrong is not None:
            what = f"token {wrong} is outside the target's vocabulary of {vocab_size}"
            raise InputsError(what, f"{name}, prompt {prompt.id!r}", "give ids and a tokenizer of this target")


def _check_lengths(prompts: Sequence[TokenPrompt], limit: int, new: int, lookahead: int, name: str) -> None:
    long = [prompt for prompt in prompts if len(prompt.ids) + new + lookahead > limit]
    if long:
        first, after = long[0], f"{new} new" + (f" and {lookahead} of look-ahead" if lookahead else "")
        what = f"{len(first.ids)} tokens and {after} do not fit the target's {limit} positions"
        others = f" and {len(long) - 1} more" if len(long) > 1 else ""
        mend = "take them out" if limit <= lookahead + len(first.ids) else "lower --max-new-tokens, or take them out"
        raise InputsError(what, f"{name}, prompt {first.id!r}{others}", mend)
