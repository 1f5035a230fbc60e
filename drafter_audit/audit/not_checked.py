"""How much of the target was known, and what that left open: nothing that was not looked at passes in silence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from drafter_audit.drafter.spec import DrafterSpec
from drafter_audit.drafter.target import LEVELS, Level
from drafter_audit.engines.base import Served

# What each level is needed for.
_NEEDS: Mapping[Level, tuple[str, ...]] = MappingProxyType(
    {
        "target_config": (
            "layer ids against the target's layer count, which may also tell which reading of them is meant",
            "the boundaries that engines take where no ids are declared",
            "rope and maximum positions against the target's",
            "vocabulary, hidden size and heads against the target's",
            "rules of engines that depend on the target's family: its id convention, its embedding's scale",
        ),
        "target_headers": ("rows and width of the target's embedding and head, by what is really stored",),
        "target_rows": (
            "whether embedding and head are the target's, trained or random: roles are by the trainer's rule alone",
            "whether token ids mean the same: only rows that agree prove one tokenizer",
        ),
    }
)
_OF_IDS = _NEEDS["target_config"][:2]  # only of kinds that read states of layers


def level_of(spec: DrafterSpec) -> Level:
    """The level that was really reached."""
    if any(one.closeness is not None for one in spec.evidence):
        return "target_rows"
    if spec.target_tables:
        return "target_headers"
    return "drafter" if spec.target.read_from is None else "target_config"


def not_checked(spec: DrafterSpec, served: Sequence[Served], asked: Level) -> tuple[str, ...]:
    """A sentence for each thing that could not be checked, those of the target first. `served` are named engines.

    Of what is no drafter nothing is set against a target.
    """
    of_target = _of_target(spec, asked) if spec.is_drafter else ()
    return tuple(dict.fromkeys((*of_target, *_of_drafter(spec), *_of_engines(spec, served))))


def _of_target(spec: DrafterSpec, asked: Level) -> Iterator[str]:
    """One sentence for each level that was not reached."""
    reached = LEVELS.index(level_of(spec))
    for level in LEVELS[reached + 1 :]:
        things = [each for each in _NEEDS[level] if spec.kind.traits.reads_aux or each not in _OF_IDS]
        yield f"{'; '.join(things)} ({_why(spec, level, asked)})"


def _why(spec: DrafterSpec, level: Level, asked: Level) -> str:
    """Why a level was not reached."""
    if LEVELS.index(level) > LEVELS.index(asked):
        return f"--level {asked} stops before it"
    target = spec.target
    if level == "target_config":
        return target.unread or "no file says which target this drafter is for: name it with --target"
    if target.read_from is None:
        return "without the target's config no more of it is read"
    if target.said_by != "--target":
        return "headers and rows are read of a target named with --target only"
    return (spec.headers_none if level == "target_headers" else _why_no_rows(spec)) or "nothing was found to compare"


def _why_no_rows(spec: DrafterSpec) -> str | None:
    reasons = [one.reason for one in spec.evidence if one.reason]
    return spec.evidence_none or spec.headers_none or (reasons[0] if reasons else None)


def _of_drafter(spec: DrafterSpec) -> Iterator[str]:
    table = spec.table
    if table is None:
        yield "names, shapes and dtypes of the drafter's tensors, and norms against their flags (no weights were read)"
        return
    if spec.clues.packing.companions:
        yield "the values of packed weights (they are counted, not unpacked)"
    if spec.values is not None:
        yield from spec.values.not_checked


def _of_engines(spec: DrafterSpec, served: Sequence[Served]) -> Iterator[str]:
    unknown = [one.release for one in served if one.effect.wiring is None and one.effect.loads is None]
    if unknown:
        names = ", ".join(dict.fromkeys(f"{release.engine}@{release.version}" for release in unknown))
        yield f"what {names} would do with it (no rules are known for a checkpoint of kind {spec.kind.name})"
