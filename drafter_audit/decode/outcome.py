"""Runs become results: what was counted, with what it was counted, and how to read it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict

from drafter_audit.decode.live import LiveRun
from drafter_audit.decode.replay import ReplayRun
from drafter_audit.decode.result import DecodeResult, DrafterFacts, PromptFacts, Provenance, TargetFacts
from drafter_audit.decode.settings import Settings
from drafter_audit.decode.ties import tie_below
from drafter_audit.drafter.spec import DrafterSpec
from drafter_audit.drafter.target import named_target
from drafter_audit.errors import AuditError
from drafter_audit.measure.acceptance import Acceptance, PromptCounts
from drafter_audit.measure.costs import Costs
from drafter_audit.measure.shape import Shape
from drafter_audit.model.target.model import TargetModel
from drafter_audit.prompts.prompt import PromptSet


def replayed_with(run: ReplayRun) -> Provenance:
    """What a replay was made with: all but the drafter is the recording's."""
    told = run.manifest
    return Provenance(
        mode="replay",
        drafter=_drafter(run.spec),
        target=TargetFacts(told.target, told.revision, told.dtype, told.quantization),
        prompts=PromptFacts(told.prompts_name, told.prompts_sha256, len(run.prompts)),
        temperature=told.temperature,
        rule=run.rule,
        seed=told.seed,
        raw=told.raw,
        thinking=told.thinking,
        tie_epsilon=None if run.sampled or run.lacks else tie_below(told.dtype),
        as_tokens=told.tokenizer_sha256 is None,
    )


def ran_with(
    spec: DrafterSpec,
    target: TargetModel,
    prompts: PromptSet,
    asked: Settings,
    *,
    raw: bool = False,
    thinking: bool | None = None,
) -> Provenance:
    """What a live run was made with."""
    return Provenance(
        mode="live",
        drafter=_drafter(spec),
        target=TargetFacts(target.ref, target.revision, target.dtype, named_target(target.ref).quantization),
        prompts=PromptFacts(prompts.name, prompts.sha256, len(prompts.prompts)),
        temperature=asked.temperature,
        rule="argmax_draft" if asked.temperature else "greedy",
        seed=asked.seed,
        raw=raw,
        thinking=thinking,
        tie_epsilon=None if asked.temperature else tie_below(target.dtype),
        as_tokens=not prompts.needs_tokenizer,
    )


def replay_result(run: ReplayRun) -> DecodeResult:
    """Raises AuditError where no answer took a round."""
    return DecodeResult(
        replayed_with(run),
        pooled(run.counts(), run.shape, raw=run.manifest.raw),
        coverage=run.coverage,
        ties=run.ties(),
        notes=tuple(replay_notes(run)),
    )


def live_result(
    run: LiveRun, provenance: Provenance, what_if: Sequence[float] = (), notes: Sequence[str] = ()
) -> DecodeResult:
    """Raises AuditError where no answer took a round, UsageError for a `what_if` out of reach."""
    acceptance = pooled(run.counts, run.shape, raw=provenance.raw)
    epsilon = run.lossless.epsilon if run.lossless else 0.0
    return DecodeResult(
        provenance,
        acceptance,
        coverage=run.coverage,
        lossless=run.lossless,
        ties=tuple(parting for parting in run.partings if parting.gap < epsilon),
        mismatches=tuple(parting for parting in run.partings if parting.gap >= epsilon),
        costs=Costs(acceptance, run.timing) if run.timing else None,
        what_if=tuple(what_if),
        notes=tuple(notes),
    )


def pooled(counts: Sequence[PromptCounts], shape: Shape, *, raw: bool = False) -> Acceptance:
    """Of all rounds. Raises AuditError where no answer took one, which bare text brings about in a chat model."""
    if raw and counts and not any(each.rounds for each in counts):
        what, where = "no round was run, so there is no accept_len", "bare text that the target ends at once"
        raise AuditError(what, where, "leave --raw out, so that it passes the chat template, or give other prompts")
    return Acceptance.pooled(counts, **asdict(shape))


def replay_notes(run: ReplayRun) -> Iterator[str]:
    """How the figures of a replay are to be read."""
    told, named = run.manifest, run.spec.target.ref
    if run.lacks:
        yield from run.lacks
    elif run.sampled:
        yield (
            f"the recording was sampled at temperature {told.temperature:g}: with the drafter's likeliest tokens as "
            "drafts, the counts are exact in distribution, those of one draw of the target's answers"
        )
    elif told.dtype == run.dtype == "float32":
        yield "exact: under greedy decoding the live loop counts the same, but for ties"
    else:
        yield (
            f"recorded in {told.dtype}, replayed in {run.dtype}: the live loop rounds otherwise and may count a little "
            "otherwise; where both are float32 it counts the same, but for ties"
        )
    yield from (*told.notes, *run.notes)
    close = run.close_drafts()
    if close:
        below, kind = tie_below(run.dtype), "drafts" if run.shape.is_chain else "trees"
        yield f"the drafter chose {close:,} of its {kind} by less than {below:g}: there rounding may decide too"
    if named is not None and named != told.target:
        yield f"the drafter's files name {named} as its target, the recording is of {told.target}"


def _drafter(spec: DrafterSpec) -> DrafterFacts:
    return DrafterFacts(spec.ref, spec.revision, spec.training.samples if spec.training else None)
