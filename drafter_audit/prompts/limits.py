"""Whether tokens can be given to a target: asked once, of every prompt, before any long work."""

from __future__ import annotations

from collections.abc import Sequence

from drafter_audit.errors import InputsError
from drafter_audit.prompts.prompt import TokenPrompt


def check_prompts(
    prompts: Sequence[TokenPrompt],
    where: str,
    *,
    vocab_size: int,
    max_positions: int | None,
    max_new_tokens: int,
    lookahead: int = 0,
) -> None:
    """Raises InputsError where there is no prompt, for one without tokens or with ids outside `vocab_size`, and where
    one with `max_new_tokens` and `lookahead` needs more than `max_positions` (None: no limit is known)."""
    if not prompts:
        raise InputsError("no prompts", where, "give at least one")
    for prompt in prompts:
        _check_ids(prompt, vocab_size, f"{where}, prompt {prompt.id!r}")
    if max_positions is not None:
        _check_lengths(prompts, max_positions, max_new_tokens, lookahead, where)


def _check_ids(prompt: TokenPrompt, vocab_size: int, where: str) -> None:
    if not prompt.ids:
        raise InputsError("no tokens", where, "leave it out")
    wrong = next((i for i in prompt.ids if not 0 <= i < vocab_size), None)
    if wrong is not None:
        what = f"token {wrong} is outside the target's vocabulary of {vocab_size}"
        raise InputsError(what, where, "give ids and a tokenizer of this target")


def _check_lengths(prompts: Sequence[TokenPrompt], limit: int, new: int, lookahead: int, where: str) -> None:
    long = [prompt for prompt in prompts if len(prompt.ids) + new + lookahead > limit]
    if long:
        first, after = long[0], f"{new} new" + (f" and {lookahead} of look-ahead" if lookahead else "")
        what = f"{len(first.ids)} tokens and {after} do not fit the target's {limit} positions"
        others = f" and {len(long) - 1} more" if len(long) > 1 else ""
        mend = "take them out" if limit <= lookahead + len(first.ids) else "lower --max-new-tokens, or take them out"
        raise InputsError(what, f"{where}, prompt {first.id!r}{others}", mend)
