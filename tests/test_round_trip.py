"""`--write-config` on each peer's own checkpoint, under each engine and each reading of its ids: the way back."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from drafter_audit.audit.compare import compare
from drafter_audit.audit.lint import Lint, lint
from drafter_audit.audit.written_config import config_for
from drafter_audit.cli.main import main
from drafter_audit.drafter.boundaries import Reading
from drafter_audit.drafter.open import open_drafter
from drafter_audit.engines.base import Served
from drafter_audit.errors import UsageError
from tests.checkpoints import write_peer

TARGETS = {
    "specforge_eagle3": "tiny_llama",
    "speculators_eagle3": "tiny_llama",
    "modelopt_eagle3": "tiny_llama",
    "modelopt_eagle3_kimik2": "tiny_dsv3",
}
ENGINES = (
    *("sglang@0.5.3", "sglang@0.5.11", "sglang@0.5.23"),
    *("vllm@0.10.2", "vllm@0.20.0", "vllm@0.33.0"),
    *("tensorrt-llm@1.0.0", "tensorrt-llm@1.4.0rc1", "llama.cpp@11312"),
)
READINGS: tuple[Reading | None, ...] = (None, "output_of_layer", "boundary")


def knobs(served: Served) -> set[str]:
    return {difference.knob for difference in served.differs}


def unmended(served: Served) -> set[str]:
    return {difference.knob for difference in served.differs if not difference.mended}


def state(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {file.name: (file.stat().st_mtime_ns, file.read_bytes()) for file in sorted(folder.iterdir())}


def errors(result: Lint) -> set[str]:
    return {finding.code for finding in result.findings if finding.severity == "error"}


@pytest.mark.parametrize("reading", READINGS)
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("peer", TARGETS)
def test_the_way_back(tmp_path: Path, peer: str, engine: str, reading: Reading | None) -> None:
    ref, target = write_peer(tmp_path / "d", peer), write_peer(tmp_path / "t", TARGETS[peer])
    options: dict[str, Any] = {"target": target, "engines": [engine], "level": "target_config"}
    if reading is not None and open_drafter(ref).aux_layers.declared is None:
        with pytest.raises(UsageError):
            lint(ref, reading=reading, **options)
        return
    before = lint(ref, reading=reading, **options)
    kept, out = state(tmp_path / "d"), tmp_path / "out"
    left = config_for(before, str(out)).left
    said = [] if reading is None else ["--reading", reading]
    command = ["lint", ref, "--target", target, "--engine", engine, "--level", "target_config", *said]
    assert main([*command, "--write-config", str(out), "--fail-on", "never"]) == 0

    after = lint(str(out), **options)
    assert after.spec.aux_layers.boundaries == before.spec.aux_layers.boundaries
    for old, new in zip(before.engines, after.engines, strict=True):
        assert knobs(new) <= unmended(old)
        assert all(any(knob in sentence for sentence in left) for knob in knobs(new))
        assert len(new.effect.refusals) <= len(old.effect.refusals)
    assert errors(after) - {"ENGINE-FAULT"} <= errors(before)
    faults = {text for served in after.engines for _, text in served.effect.faults}
    assert all(any(text in sentence for sentence in left) for text in faults)
    expected = 1 if errors(after) else 0
    assert main(["lint", str(out), "--target", target, "--engine", engine, "--level", "target_config"]) == expected

    assert state(tmp_path / "d") == kept
    assert os.readlink(out / "model.safetensors") == str((tmp_path / "d" / "model.safetensors").resolve())
    assert json.loads((out / "config.json").read_text())
    if reading is None:
        assert [one.field for one in compare([ref, str(out)], target=target).differences] == []
