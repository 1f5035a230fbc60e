"""Cases of audit/rules/exports.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from drafter_audit.audit.lint import Lint, lint
from tests.checkpoints import read_peer, write_checkpoint
from tests.findings.case import Build, Case

ORACLES = Path(__file__).parents[1] / "oracles"


def _peer(name: str, config: dict[str, Any] | None = None, *, called: str = "drafter", drop: str = "") -> Build:
    """A peer's drafter with other settings, in a folder of that name, without one tensor."""

    def build(folder: Path) -> Lint:
        said, tensors, metadata = read_peer(name)
        kept = {tensor: entry for tensor, entry in tensors.items() if tensor != drop}
        return lint(write_checkpoint(folder / called, {**said, **(config or {})}, kept, metadata))

    return build


def _one_state(slots: int) -> Build:
    """A drafter whose fc reads `slots` states of its own width."""

    def build(folder: Path) -> Lint:
        config, tensors, metadata = read_peer("specforge_eagle3")
        tensors["fc.weight"] = ("F32", (64, slots * 64))
        return lint(write_checkpoint(folder, {**config, "num_aux_hidden_states": slots}, tensors, metadata))

    return build


CASES = (
    Case(
        "NORM-OUTPUT-SF",
        fires=_peer("specforge_eagle3", {"norm_output": True}),
        silent=_peer("specforge_eagle3"),
    ),
    Case(
        "NORM-OUTPUT-SF",
        fires=_peer("specforge_eagle3", {"norm_output": False}),
        silent=_peer("speculators_eagle3", {"norm_output": False}),
    ),
    # speculators has meant one thing by it from the start
    Case(
        "NORM-OUTPUT-SF",
        fires=_peer("specforge_eagle3", {"norm_output": True}),
        silent=_peer("speculators_eagle3", {"norm_output": True}),
    ),
    Case(
        "MODELOPT-2NORM",
        fires=_peer("modelopt_eagle3"),
        silent=_peer("modelopt_eagle3", drop="layers.0.input_layernorm.weight"),
    ),
    Case(
        "MODELOPT-2NORM",
        fires=_peer("modelopt_eagle3_kimik2"),
        silent=_peer("modelopt_eagle3_kimik2", drop="layers.0.input_layernorm.weight"),
    ),
    Case(
        "MODELOPT-NO-STATES",
        fires=lambda folder: lint(str(ORACLES / "modelopt_no_states")),
        silent=lambda folder: lint(str(ORACLES / "modelopt_plain")),
    ),
    Case(
        "MODELOPT-VLLM",
        fires=_peer("modelopt_eagle3", {"norm_before_residual": True}),
        silent=_peer("modelopt_eagle3", {"norm_before_residual": False}),
    ),
    # speculators' trainer does it
    Case(
        "MODELOPT-VLLM",
        fires=_peer("modelopt_eagle3", {"norm_before_residual": True}),
        silent=_peer("speculators_eagle3", {"norm_before_residual": True}),
    ),
    Case("FC-SKIP", fires=_one_state(1), silent=_one_state(2)),
    Case(
        "FEATURE-NAME",
        fires=_peer("specforge_eagle3", called="tiny-eagle3.1"),
        silent=_peer("specforge_eagle3", called="eagle3-llama-3.1-8b"),
    ),
    Case(
        "FEATURE-NAME",
        fires=_peer("specforge_eagle3", called="tiny-p-eagle"),
        silent=_peer("specforge_eagle3", {"norm_output": True}, called="tiny-eagle-3.1"),
    ),
    Case(
        "NAME-DETECT",
        fires=_peer("specforge_eagle3", called="eagle-llama-eagle3"),
        silent=_peer("specforge_eagle3", called="EAGLE3-LLaMA3.1-Instruct-8B"),
    ),
    # a config of speculators' names the method itself
    Case(
        "NAME-DETECT",
        fires=_peer("specforge_eagle3", called="tiny-EAGLE-3"),
        silent=_peer("speculators_eagle3", called="tiny-EAGLE-3"),
    ),
)
