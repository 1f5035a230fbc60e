"""Cases of audit/rules/files.py."""

from __future__ import annotations

import json
from pathlib import Path

from drafter_audit.audit.lint import Lint, lint
from tests.checkpoints import KIMI_CONFIG, kimi_tensors
from tests.findings.case import Build, Case
from tests.hub import write_sparse
from tests.hub.torch_files import write_torch_file


def _files(*names: str) -> Build:
    """Kimi's drafter, its weights once in each file."""

    def build(folder: Path) -> Lint:
        (folder / "config.json").write_text(json.dumps(KIMI_CONFIG))
        for name in names:
            write = write_sparse if name.endswith(".safetensors") else write_torch_file
            write(folder / name, kimi_tensors())
        return lint(str(folder))

    return build


CASES = (
    Case("WEIGHTS-PICKLED", fires=_files("pytorch_model.bin"), silent=_files("model.safetensors")),
    # What a trainer leaves beside the weights is none.
    Case(
        "WEIGHTS-IGNORED",
        fires=_files("model.safetensors", "pytorch_model.bin"),
        silent=_files("model.safetensors", "optimizer.pt", "training_args.bin"),
    ),
)
