"""Which drafters a command means that names none."""

from __future__ import annotations

from pathlib import Path


def default_refs() -> tuple[str, ...]:
    """The drafter in the current folder, else the project file's, else all bundled drafters."""
    from drafter_audit.facts import project, registry

    here = Path.cwd()
    if (here / "config.json").is_file():
        return (".",)
    weights = [path.name for path in [*here.glob("*.safetensors")] or here.glob("pytorch_model*.bin")]
    if weights:
        return tuple(weights) if len(weights) == 1 else (".",)
    listed = project.in_folder(here)
    if listed is not None and listed.drafters:
        return tuple(entry.reference or str(here) for entry in listed.drafters)
    return tuple(name for name in registry.names() if registry.load(name).role == "drafter")
