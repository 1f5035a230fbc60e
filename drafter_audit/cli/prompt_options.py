"""Options of the commands that let a target answer prompts."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import click

if TYPE_CHECKING:
    from drafter_audit.model.target.tokenizer import TargetTokenizer
    from drafter_audit.prompts.prompt import PromptSet, TokenPrompt

Command = TypeVar("Command", bound=Callable[..., object])


class Answering(Protocol):
    """A target that answers: one that runs here, or that an engine runs."""

    @property
    def vocab_size(self) -> int: ...
    @property
    def max_positions(self) -> int | None: ...
    @property
    def notes(self) -> tuple[str, ...]: ...


Who = TypeVar("Who", bound=Answering)


def prompt_options(command: Command) -> Command:
    """--prompts, --raw, --thinking: the arguments `prompts`, `raw`, `thinking`."""
    for option in (_THINKING, _RAW, _PROMPTS):
        command = option(command)
    return command


def answer_options(command: Command) -> Command:
    """--max-new-tokens, --temperature, --seed."""
    for option in (_SEED, _TEMPERATURE, _MAX_NEW_TOKENS):
        command = option(command)
    return command


@dataclass(frozen=True)
class Asked(Generic[Who]):
    """What a target is asked: `given` are the tokens of `prompts`. `tokenizer` is None where all of them are ids."""

    prompts: PromptSet
    target: Who
    tokenizer: TargetTokenizer | None
    given: tuple[TokenPrompt, ...]

    @property
    def notes(self) -> tuple[str, ...]:
        """What of the prompts, the tokenizer and the target a reader of the result must know."""
        return (*self.prompts.notes, *(self.tokenizer.notes if self.tokenizer else ()), *self.target.notes)


def asked_of(
    load: Callable[[str], Who],
    ref: str,
    prompts: PromptSet,
    *,
    thinking: bool | None,
    raw: bool,
    trusted: bool,
    max_new_tokens: int,
    lookahead: int,
) -> Asked[Who]:
    """The target `ref` as `load` gives it, and its prompts, checked. Code of its repository runs where it is `trusted`.
    Raises what these raise."""
    from drafter_audit.model.target.tokenizer import load_tokenizer
    from drafter_audit.prompts.render import render

    tokenizer = load_tokenizer(ref, trust_remote_code=trusted) if prompts.needs_tokenizer else None
    target = load(ref)
    given = render(
        prompts,
        None if tokenizer is None else tokenizer.tokenizer,
        thinking=thinking,
        raw=raw,
        vocab_size=target.vocab_size,
        max_positions=target.max_positions,
        max_new_tokens=max_new_tokens,
        lookahead=lookahead,
    )
    return Asked(prompts, target, tokenizer, given)


def _finite(context: click.Context, param: click.Parameter, value: float) -> float:
    """Click's own range lets NaN and infinity pass."""
    if not math.isfinite(value):
        raise click.BadParameter(f"{value} is no number to divide by.", context, param)
    return value


_PROMPTS = click.option(
    "--prompts",
    metavar="FILE",
    default="pack",
    show_default="the bundled pack",
    type=click.Path(),
    help="A JSONL file of prompts, messages, turns or token_ids, or hf://datasets/org/name[@revision][/file.jsonl].",
)
_RAW = click.option("--raw", is_flag=True, help="Give the target the bare text, without its chat template.")
_THINKING = click.option(
    "--thinking/--no-thinking",
    default=None,
    help="Switch thinking on or off in the chat template, over what rows say.  [default: as the template has it]",
)
_MAX_NEW_TOKENS = click.option(
    "--max-new-tokens",
    metavar="N",
    type=click.IntRange(min=1),
    default=256,
    show_default=True,
    help="Cut an answer off after N tokens; where most are, nothing is measured.",
)
_TEMPERATURE = click.option(
    "--temperature",
    metavar="T",
    type=click.FloatRange(min=0),
    default=0.0,
    show_default=True,
    callback=_finite,
    help="Sample the target's answers at T; at 0 they are its likeliest tokens.",
)
_SEED = click.option(
    "--seed",
    metavar="N",
    type=click.IntRange(min=0, max=2**63 - 1),
    default=0,
    show_default=True,
    help="Where sampling starts from.",
)
