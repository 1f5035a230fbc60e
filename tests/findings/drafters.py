"""Drafters for cases: Kimi's at real size and peers' own, each with one thing changed."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from drafter_audit.audit.lint import Lint, lint
from tests.checkpoints import KIMI_CONFIG, Tensors, kimi_tensors, read_peer, write_checkpoint
from tests.findings.case import Build
from tests.rows import Array, cut_peer

KIMI_TARGET = "moonshotai-kimi-k2-instruct"  # 61 layers, hidden 7168, 163840 tokens
TOKENS, HIDDEN = 163840, 7168


def kimi(
    *, target: str | None = KIMI_TARGET, left_out: Iterable[str] = (), added: Tensors | None = None, **config: Any
) -> Build:
    """Kimi's drafter without the tensors `left_out`, with those `added` (or in another shape), and keys of its config
    changed."""
    tensors = {name: entry for name, entry in kimi_tensors().items() if name not in set(left_out)}
    return checkpoint({**KIMI_CONFIG, **config}, {**tensors, **(added or {})}, target=target)


def ids(*layer_ids: int) -> dict[str, Any]:
    """An eagle_config with those layer ids."""
    return {"eagle_aux_hidden_state_layer_ids": list(layer_ids)}


def peer(name: str, *, added: Tensors | None = None, nested: str | None = None, **config: Any) -> Build:
    """The drafter that a peer wrote, with keys of its config, or of its section `nested`, changed; None removes one."""
    raw, tensors, _ = read_peer(name)
    section = raw if nested is None else raw[nested]
    section |= config
    for key in [key for key, value in config.items() if value is None]:
        del section[key]
    return checkpoint(raw, {**tensors, **(added or {})})


def checkpoint(config: dict[str, Any], tensors: Tensors, *, target: str | None = None) -> Build:
    return lambda folder: lint(write_checkpoint(folder / "drafter", config, tensors), target=target)


def renamed(tensors: Tensors, old: str, new: str) -> Tensors:
    """`tensors` with the prefix `old` of each name replaced."""
    return {new + name.removeprefix(old) if name.startswith(old) else name: entry for name, entry in tensors.items()}


def pair(name: str = "specforge_eagle3", **changed: Array) -> Build:
    """A peer's drafter over 64 tokens beside its target, whose rows are compared; tables `changed`, dots as `__`."""

    def build(folder: Path) -> Lint:
        return lint(cut_peer(folder / "drafter", name, **changed), target=cut_peer(folder / "target", "tiny_llama"))

    return build
