"""Options of the commands that let a target answer prompts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING

import click

from drafter_audit.cli.options import Finite, gathered

if TYPE_CHECKING:
    from drafter_audit.decode.settings import Settings
    from drafter_audit.measure.shape import Shape
    from drafter_audit.model.target.sizes import TargetSizes
    from drafter_audit.model.target.tokenizer import TargetTokenizer
    from drafter_audit.prompts.prompt import PromptSet, TokenPrompt


@dataclass(frozen=True)
class Answers:
    """What the options ask for. `thinking` is None where it is left to rows and template."""

    prompts: str
    raw: bool
    thinking: bool | None
    max_new_tokens: int
    temperature: float
    seed: int

    def settings(self, shape: Shape, *, plain: bool = True) -> Settings:
        """Those of the live loop, for rounds of that shape."""
        from drafter_audit.decode.settings import Settings

        return Settings(
            max_new_tokens=self.max_new_tokens,
            temperature=self.temperature,
            seed=self.seed,
            plain=plain,
            **asdict(shape),
        )


OF_ANSWERS = tuple(each.name for each in fields(Answers))


def answer_options(command: Callable[..., object]) -> Callable[..., object]:
    """--prompts, how they become tokens, and how they are answered, as one argument `answers: Answers`."""
    return gathered(command, Answers, "answers", _OPTIONS)


@dataclass(frozen=True)
class Asked:
    """What a target is asked, none of whose weights is read yet: `given` are the tokens of `prompts`. `tokenizer` is
    None where all of them are ids."""

    sizes: TargetSizes
    prompts: PromptSet
    tokenizer: TargetTokenizer | None
    given: tuple[TokenPrompt, ...]

    @property
    def notes(self) -> tuple[str, ...]:
        """What of the prompts and the tokenizer a reader of the result must know."""
        return (*self.prompts.notes, *(self.tokenizer.notes if self.tokenizer else ()))

    def hashes(self, *, raw: bool) -> dict[str, str | None]:
        """Of what made the tokens, as a recording's manifest names them; None of what had no part in it."""
        tokenizer = self.tokenizer
        return {
            "tokenizer_sha256": None if tokenizer is None else tokenizer.sha256,
            "template_sha256": None if tokenizer is None or raw else tokenizer.template_sha256,
        }


def asked_of(
    sizes: TargetSizes, prompts: PromptSet, answers: Answers, lookahead: int, *, trust_remote_code: bool
) -> Asked:
    """The prompts as tokens of the target of these `sizes`, checked to fit it. Raises what these raise."""
    from drafter_audit.model.target.tokenizer import load_tokenizer
    from drafter_audit.prompts.render import render

    tokenizer = load_tokenizer(sizes.ref, trust_remote_code=trust_remote_code) if prompts.needs_tokenizer else None
    given = render(
        prompts,
        None if tokenizer is None else tokenizer.tokenizer,
        thinking=answers.thinking,
        raw=answers.raw,
        vocab_size=sizes.vocab_size,
        max_positions=sizes.max_positions,
        max_new_tokens=answers.max_new_tokens,
        lookahead=lookahead,
    )
    return Asked(sizes, prompts, tokenizer, given)


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
    type=Finite(min=0),
    default=0.0,
    show_default=True,
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
_OPTIONS = (_PROMPTS, _RAW, _THINKING, _MAX_NEW_TOKENS, _TEMPERATURE, _SEED)
