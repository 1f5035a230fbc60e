"""A measurement of an engine as the command line asks for it: drafter, target, prompts, and what is known of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from drafter_audit.bench.believe import Expected
    from drafter_audit.bench.questions import Answering
    from drafter_audit.bench.run import Asked
    from drafter_audit.cli.prompt_options import Answers
    from drafter_audit.decode.result import PromptFacts, Provenance
    from drafter_audit.drafter.spec import DrafterSpec
    from drafter_audit.measure.shape import Shape
    from drafter_audit.recording.recording import Recording


@dataclass(frozen=True)
class Plan:
    """Who is measured, and what is asked; `most_steps` are those that a recording looks ahead."""

    spec: DrafterSpec
    target: str
    asked: Asked
    most_steps: int | None = None

    def expected(
        self, shape: Shape | None, target: str | None = None, drafter: str | None = None, *, plain: bool = False
    ) -> Expected:
        """Without `plain` rounds of `shape`, None where any will do. `target` and `drafter` are what the server calls
        them, where that is another name."""
        from drafter_audit.bench.believe import Expected
        from drafter_audit.bench.questions import served
        from drafter_audit.bench.wire import Served

        return Expected(
            Served(target) if target else served(self.target),
            Served(drafter) if drafter else served(self.spec.ref),
            shape,
            plain,
            self.most_steps,
        )

    def watched(self, watch: Callable[[int], None]) -> Asked:
        return replace(self.asked, watch=watch)


def planned(drafter: str, target: str | None, answers: Answers, what_if: tuple[float, ...] = ()) -> Plan:
    """All that can be refused before a server is asked, is. Raises AuditError."""
    from drafter_audit.bench.questions import Answering, questions_of
    from drafter_audit.bench.run import Asked
    from drafter_audit.decode.result import PromptFacts
    from drafter_audit.prompts.read import read_prompts

    spec, ref = _opened(drafter, target)
    prompts = read_prompts(answers.prompts)
    how = Answering(answers.max_new_tokens, answers.temperature, answers.seed, answers.raw, answers.thinking)
    questions = questions_of(prompts, how)
    facts = PromptFacts(prompts.name, prompts.sha256, len(questions))
    provenance = _provenance(spec, ref, target, facts, how, as_tokens=not prompts.needs_tokenizer)
    return Plan(spec, ref, Asked(questions, provenance, what_if, prompts.notes))


def planned_on(recording: Recording, drafter: str, target: str | None, what_if: tuple[float, ...] = ()) -> Plan:
    """The prompts of a recording, as the tokens that its target was given."""
    from drafter_audit.bench.questions import Answering, token_question
    from drafter_audit.bench.run import Asked
    from drafter_audit.decode.result import PromptFacts

    spec, ref = _opened(drafter, target or recording.manifest.target)
    told = recording.manifest
    how = Answering(told.max_new_tokens, told.temperature, told.seed)
    questions = tuple(
        token_question(each.id, each.category, each.tokens[: each.prompt_length].tolist(), how)
        for each in recording.prompts(())
    )
    facts = PromptFacts(told.prompts_name, told.prompts_sha256, len(questions))
    provenance = replace(
        _provenance(spec, ref, target, facts, how, as_tokens=told.tokenizer_sha256 is None),
        raw=told.raw,
        thinking=told.thinking,
    )
    return Plan(spec, ref, Asked(questions, provenance, what_if, told.notes), told.lookahead)


def _opened(drafter: str, target: str | None) -> tuple[DrafterSpec, str]:
    from drafter_audit.cli.target_options import target_of
    from drafter_audit.drafter.open import open_drafter

    spec = open_drafter(drafter)
    return spec, target or target_of([spec])


def _provenance(
    spec: DrafterSpec, ref: str, named: str | None, prompts: PromptFacts, how: Answering, *, as_tokens: bool
) -> Provenance:
    """`named` is the target where the user names it. Its dtype is the server's to tell."""
    from drafter_audit.bench.questions import served
    from drafter_audit.decode.result import DrafterFacts, Provenance, TargetFacts
    from drafter_audit.drafter.target import named_target

    described = named_target(named) if named else spec.target
    return Provenance(
        mode="engine",
        drafter=DrafterFacts(spec.ref, spec.revision, spec.training.samples if spec.training else None),
        target=TargetFacts(ref, served(ref).revision, None, described.quantization),
        prompts=prompts,
        temperature=how.temperature,
        rule="argmax_draft" if how.temperature else "greedy",
        seed=how.seed,
        raw=how.raw,
        thinking=how.thinking,
        as_tokens=as_tokens,
    )
