"""Which drafters a command means that names none."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from drafter_audit.facts.registry import Record


@dataclass(frozen=True)
class Meant:
    """The references meant, and what has to be said about those that are not among them."""

    refs: tuple[str, ...]
    note: str | None = None


def default_refs() -> Meant:
    """The drafter in the current folder, else the project file's, else the bundled drafters that can be counted."""
    from drafter_audit.facts import registry

    here = _refs_here()
    if here:
        return Meant(here)
    return _countable(tuple(record for record in map(registry.load, registry.names()) if record.role == "drafter"))


def named_or_here(refs: tuple[str, ...]) -> tuple[str, ...]:
    """The references given, else the drafters of the current folder. Raises UsageError where it has none."""
    from drafter_audit.errors import UsageError

    found = refs or _refs_here()
    if not found:
        raise UsageError("no DRAFTER is named, and this folder has none", "drafter-audit lint", "name one")
    return found


def _refs_here() -> tuple[str, ...]:
    """The drafter in the current folder, else those that the project file lists."""
    from drafter_audit.facts import project

    here = project.working_folder()
    if (here / "config.json").is_file():
        return (".",)
    weights = [path.name for path in [*here.glob("*.safetensors")] or here.glob("pytorch_model*.bin")]
    if weights:
        return tuple(weights) if len(weights) == 1 else (".",)
    listed = project.in_folder(here)
    return tuple(entry.path or "." for entry in listed.drafters) if listed is not None else ()


def _countable(drafters: tuple[Record, ...]) -> Meant:
    """The bundled drafters whose config implies a count; the note says how many others there are, and why."""
    from drafter_audit.drafter.open import open_drafter

    specs = [open_drafter(record.name) for record in drafters if record.config_origin is not None]
    counted = tuple(spec.ref for spec in specs if spec.parameters.counted)
    kinds = Counter(spec.kind.name for spec in specs if not spec.parameters.counted)
    reasons = [f"{len(drafters) - len(specs)} have no config here"]
    reasons += [f"{number} of kind {kind} have one that implies no count" for kind, number in sorted(kinds.items())]
    return Meant(counted, f"counted {len(counted)} of {len(drafters)} bundled drafters: {', '.join(reasons)}")
