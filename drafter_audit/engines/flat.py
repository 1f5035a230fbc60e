"""Settings of the decoder layers that lie in a section of config.json, for engines that look at the top level alone."""

from __future__ import annotations

from typing import Any

from drafter_audit.drafter.config_view import ConfigView

ROPE = ("rope_theta", "rope_scaling", "rope_parameters")


def to_lift(config: ConfigView) -> dict[str, Any]:
    """The keys that have to stand at the top level too; empty where they do. Rope is left out: engines read its two
    layouts differently, so each writes its own."""
    return {
        key: value
        for key, value in config.layer.items()
        if key not in ROPE and value is not None and config.raw.get(key) is None
    }
