"""Cases of audit/rules/taps.py."""

from __future__ import annotations

from pathlib import Path

from drafter_audit.audit.lint import Lint, lint
from tests.checkpoints import read_peer, write_checkpoint, write_peer
from tests.findings.case import Build, Case

LAYERS = 8  # of tiny_llama


def _speculators(*ids: int) -> Build:
    """speculators stores boundaries."""

    def build(folder: Path) -> Lint:
        config, tensors, metadata = read_peer("speculators_eagle3")
        config["eagle_aux_hidden_state_layer_ids"] = list(ids)
        ref = write_checkpoint(folder / "drafter", config, tensors, metadata)
        return lint(ref, target=write_peer(folder / "target", "tiny_llama"))

    return build


def _modelopt(*ids: int) -> Build:
    """ModelOpt stores outputs of layers."""

    def build(folder: Path) -> Lint:
        config, tensors, metadata = read_peer("modelopt_eagle3")
        config["eagle_config"]["eagle_aux_hidden_state_layer_ids"] = list(ids)
        ref = write_checkpoint(folder / "drafter", config, tensors, metadata)
        return lint(ref, target=write_peer(folder / "target", "tiny_llama"))

    return build


CASES = (
    Case("IDS-EMBEDDING", fires=_speculators(0, 4, 5), silent=_speculators(1, 4, 5)),
    # 0 is the first layer's output where ids are outputs of layers, and -1 the embedding's
    Case("IDS-EMBEDDING", fires=_modelopt(-1, 3, 4), silent=_modelopt(0, 3, 4)),
    Case("IDS-LAST", fires=_speculators(2, 4, LAYERS), silent=_speculators(2, 4, LAYERS - 1)),
)
