"""Prompts become tokens, by the target's own chat template; what cannot be asked is refused before any long work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from drafter_audit.errors import AuditError, UsageError
from drafter_audit.prompts.limits import check_prompts
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
    messages that it refuses; InputsError as `check_prompts`.
    """
    if raw and thinking is not None:
        raise UsageError(
            "--raw passes no chat template, so there is no thinking to switch", "--thinking", "leave one out"
        )
    way = _Raw(tokenizer) if raw else _Chat(tokenizer, thinking)
    made = tuple(TokenPrompt(p.id, p.category, _ids(p, way)) for p in prompt_set.prompts)
    check_prompts(
        made,
        prompt_set.name,
        vocab_size=vocab_size,
        max_positions=max_positions,
        max_new_tokens=max_new_tokens,
        lookahead=lookahead,
    )
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
