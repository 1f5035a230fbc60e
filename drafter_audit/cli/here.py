"""Which drafters a command means that names none."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from drafter_audit.facts.registry import Record


def default_refs() -> tuple[str, ...]:
    """The drafter in the current folder, else the project file's, else the bundled drafters that can be counted.

    How many bundled drafters are left out, and why, is said on stderr.
    """
    from drafter_audit.facts import project, registry

    here = Path.cwd()
    if (here / "config.json").is_file():
        return (".",)
    weights = [path.name for path in here.glob("*.safetensors")]
    if weights:
        return tuple(weights) if len(weights) == 1 else (".",)
    listed = project.in_folder(here)
    if listed is not None and listed.drafters:
        return tuple(entry.reference or str(here) for entry in listed.drafters)
    return _countable(tuple(record for record in map(registry.load, registry.names()) if record.role == "drafter"))


def _countable(drafters: tuple[Record, ...]) -> tuple[str, ...]:
    """The names of those whose config implies a count."""
    from drafter_audit.drafter.open import open_drafter

    with_config = [record.name for record in drafters if record.config_origin is not None]
    specs = [open_drafter(name) for name in with_config]
    counted = tuple(spec.ref for spec in specs if spec.parameters.counted)
    kinds = Counter(spec.kind.name for spec in specs if not spec.parameters.counted)
    reasons = [
        f"{number} of kind {kind}, whose config as seen implies no count" for kind, number in sorted(kinds.items())
    ]
    reasons = [f"{len(drafters) - len(with_config)} without a config", *reasons]
    click.echo(f"counting {len(counted)} of {len(drafters)} bundled drafters, not: {'; '.join(reasons)}", err=True)
    return counted
