"""Cases of audit/rules/targets.py."""

from __future__ import annotations

from pathlib import Path

from drafter_audit.audit.lint import Lint, lint
from tests.checkpoints import read_peer, write_checkpoint, write_peer
from tests.findings.case import Build, Case
from tests.findings.drafters import checkpoint, kimi

_CONFIG, _TENSORS, _ = read_peer("speculators_eagle3")
_VERIFIER = {**_CONFIG["speculators_config"], "verifier": {"name_or_path": "moonshotai/Kimi-K2-Instruct"}}


def _target_heads(size: int) -> Build:
    """A drafter with heads of 32 for a target with heads of `size`."""

    def build(folder: Path) -> Lint:
        config, tensors, _ = read_peer("tiny_llama")
        target = write_checkpoint(folder / "target", {**config, "head_dim": size}, tensors)
        return lint(write_peer(folder / "drafter", "specforge_eagle3"), target=target)

    return build


CASES = (
    Case("TARGET-UNKNOWN", fires=kimi(target=None), silent=kimi()),
    # A folder of its author's against a target whose record is bundled.
    Case(
        "TARGET-UNREAD",
        fires=checkpoint(_CONFIG, _TENSORS),
        silent=checkpoint({**_CONFIG, "speculators_config": _VERIFIER}, _TENSORS),
    ),
    Case("VOCAB-MISMATCH", fires=kimi(left_out=["t2d"], vocab_size=163842), silent=kimi()),
    Case("HEAD-DIM-TARGET", fires=_target_heads(16), silent=_target_heads(32)),
    # Latent attention has no size to compare.
    Case("HEAD-DIM-TARGET", fires=_target_heads(16), silent=kimi()),
)
