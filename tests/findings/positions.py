"""Cases of audit/rules/positions.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from drafter_audit.audit.lint import Lint, lint
from tests.checkpoints import read_peer, write_checkpoint
from tests.findings.case import Build, Case
from tests.whole import write_config

YARN = {"rope_type": "yarn", "factor": 32.0, "original_max_position_embeddings": 4096}


def llama(config: dict[str, Any] | None = None, target: dict[str, Any] | None = None) -> Build:
    """SpecForge's drafter on its target, each with other settings; the target is a config.json alone."""

    def build(folder: Path) -> Lint:
        return lint(_drafter(folder, "specforge_eagle3", config), target=_target(folder, "tiny_llama", target))

    return build


def latent(config: dict[str, Any]) -> Build:
    """ModelOpt's latent-attention drafter on its target."""

    def build(folder: Path) -> Lint:
        return lint(_drafter(folder, "modelopt_eagle3_kimik2", config), target=_target(folder, "tiny_dsv3", None))

    return build


def _drafter(folder: Path, peer: str, changed: dict[str, Any] | None) -> str:
    config, tensors, metadata = read_peer(peer)
    return write_checkpoint(folder / peer, {**config, **(changed or {})}, tensors, metadata)


def _target(folder: Path, peer: str, changed: dict[str, Any] | None) -> str:
    config, _, _ = read_peer(peer)
    return write_config(folder / peer, {**config, **(changed or {})})


THETA_5 = {"rope_parameters": {"rope_type": "default", "rope_theta": 5e6}}
THETA_4 = {"rope_parameters": None, "rope_scaling": None, "rope_theta": 5e6}

CASES = (
    # transformers 5 moves the base: the same one in both layouts is no difference (NVIDIA-NeMo/Automodel#2920)
    Case("ROPE-DIFF", fires=llama(target=THETA_5), silent=llama(THETA_4, THETA_5)),
    # added at export (NVIDIA/Model-Optimizer#917), against YaRN with its own defaults spelled out
    Case(
        "ROPE-DIFF",
        fires=llama({"rope_parameters": {**YARN, "rope_theta": 1e4}}),
        silent=llama(
            {"rope_parameters": {**YARN, "rope_theta": 1e4, "beta_fast": 32, "beta_slow": 1}},
            {"rope_parameters": {**YARN, "rope_theta": 1e4}},
        ),
    ),
    # a quarter of each head is turned (vllm-project/speculators#738); transformers 4 and 5 keep it in two places
    Case(
        "ROPE-DIFF",
        fires=llama(target={"partial_rotary_factor": 0.25}),
        silent=llama(
            {"partial_rotary_factor": 0.25},
            {"rope_parameters": {"rope_theta": 1e4, "rope_type": "default", "partial_rotary_factor": 0.25}},
        ),
    ),
    Case(
        "ROPE-UNSUPPORTED",
        fires=llama({"rope_parameters": {**YARN, "rope_type": "yarn2", "rope_theta": 1e4}}),
        silent=llama({"rope_parameters": {"rope_type": "mrope", "mrope_section": [4, 6, 6], "rope_theta": 1e4}}),
    ),
    Case("ROPE-INTERLEAVED", fires=latent({"rope_interleave": False}), silent=latent({"rope_interleave": True})),
)
