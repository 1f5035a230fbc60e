"""A recording made from the command line: prompts read and rendered, the target loaded, its answers kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from drafter_audit.cli.prompt_options import Answers, asked_of
from drafter_audit.cli.target_options import TargetOptions, target_of

if TYPE_CHECKING:
    from drafter_audit.model.target.model import TargetModel
    from drafter_audit.prompts.prompt import TokenPrompt


@dataclass(frozen=True)
class States:
    """What --boundaries says; for how many tokens every boundary is kept; how far each answer is looked beyond."""

    boundaries: str
    all_tokens: int
    lookahead: int


@dataclass(frozen=True)
class Recorded:
    """The target that answered, and what it was given."""

    target: TargetModel
    given: tuple[TokenPrompt, ...]


def recorded(
    drafters: Sequence[str],
    folder: Path,
    target: TargetOptions,
    answers: Answers,
    states: States,
    command: Sequence[str],
) -> Recorded:
    """The target answers the prompts into `folder`, or goes on with what an earlier run left there.

    `drafters` say which states to keep, and name the target where `target` does not. Raises AuditError.
    """
    from drafter_audit.cli.progress import watch_prompts
    from drafter_audit.drafter.open import open_drafter
    from drafter_audit.prompts.read import read_prompts
    from drafter_audit.recording.boundaries import boundaries_kept
    from drafter_audit.recording.make import Origin, Settings, record
    from drafter_audit.recording.size import largest
    from drafter_audit.recording.store import check_folder
    from drafter_audit.report.numbers import size
    from drafter_audit.report.sink import tell

    prompt_set = read_prompts(answers.prompts)
    how = {
        "max_new_tokens": answers.max_new_tokens,
        "temperature": answers.temperature,
        "seed": answers.seed,
        "all_tokens": states.all_tokens,
        "lookahead": states.lookahead,
    }
    check_folder(folder, prompts_sha256=prompt_set.sha256, thinking=answers.thinking, raw=answers.raw, **how)
    specs = [open_drafter(ref) for ref in drafters]
    asked = asked_of(target, target.ref or target_of(specs), prompt_set, answers, states.lookahead)
    tokenizer, given = asked.tokenizer, asked.given
    settings = Settings(boundaries_kept(states.boundaries, specs, asked.sizes.num_layers), **how)  # type: ignore[arg-type]
    model = target.load(asked.sizes.ref)
    origin = Origin(
        prompts_name=prompt_set.name,
        prompts_sha256=prompt_set.sha256,
        thinking=answers.thinking,
        raw=answers.raw,
        tokenizer_sha256=None if tokenizer is None else tokenizer.sha256,
        template_sha256=None if tokenizer is None or answers.raw else tokenizer.template_sha256,
        notes=asked.notes,
        command=("drafter-audit", *command),
    )
    tell(f"the recording takes up to {size(largest(model, given, settings))}, where every answer hits the cap")
    with watch_prompts("Recording", len(given)) as watch:
        record(model, given, folder, settings, origin, watch)
    return Recorded(model, given)
