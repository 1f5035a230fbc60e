"""The live loop in one process, over two ranks and over a device map with disk: the same tokens and the same rounds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from drafter_audit.model.target.load import load_target
from tests.live_pairs import NARROW
from tests.live_rank import RESULT, decoded
from tests.test_target_ranks import START_S, half_on_disk, torchrun
from tests.tiny_targets import write_family

SPLIT = ("llama", "deepseek_v3")


def test_two_ranks_decode_what_one_process_does(tmp_path: Path) -> None:
    for name in SPLIT:
        write_family(name, tmp_path / name / "target", vocab_size=NARROW, pad_token_id=None)
    folders = (str(tmp_path / name) for name in SPLIT)
    code, stdout, stderr, _ = torchrun(*folders, module="tests.live_rank", limit=5 * START_S)
    assert (code, stdout) == (0, ""), stderr
    for name in SPLIT:
        found = json.loads((tmp_path / name / RESULT).read_text())
        assert found == decoded(tmp_path / name, load_target(str(tmp_path / name / "target")))
        assert sum(sum(rounds) for rounds in found[1]) > 0


@pytest.mark.parametrize("name", ["llama", "gemma3"])
def test_a_device_map_with_disk_decodes_what_one_device_does(name: str, tmp_path: Path) -> None:
    ref = write_family(name, tmp_path / "target", vocab_size=NARROW, pad_token_id=None)
    expected = decoded(tmp_path, load_target(ref))
    disk = load_target(ref, device_map=half_on_disk("model"), offload_folder=str(tmp_path / "offload"))
    assert decoded(tmp_path, disk) == expected
