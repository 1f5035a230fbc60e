"""Device maps: what transformers and accelerate take in silence, or fail at when all is loaded, is refused before."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from drafter_audit.errors import UsageError
from drafter_audit.model.target.load import load_target
from tests.tiny_targets import FAMILIES, LAYERS, write_family

TENSORS = 9 * LAYERS + 3  # of a Llama: four projections, three of the MLP and two norms; embedding, final norm, head

REFUSED: dict[str, tuple[dict[str, str], str]] = {
    "the head has no place": ({"model": "cpu"}, f"no place for 1 of {TENSORS} tensors: lm_head.weight"),
    "one layer alone": ({"model.layers.3": "cpu"}, f"no place for {TENSORS - 9} of {TENSORS} tensors: model.embed"),
    "a slip of the pen": (
        {"model": "cpu", "lm_haed": "cpu"},
        "what the target does not have: lm_haed, --device-map, its parts are model.embed_tokens, model.layers, "
        "model.norm, model.rotary_emb, lm_head",
    ),
    "a layer too many": ({"": "cpu", f"model.layers.{LAYERS}": "cpu"}, f"does not have: model.layers.{LAYERS}"),
    "a part of what is named": ({"": "cpu", "model.layers.3": "disk"}, "parts of what it names too: model.layers.3"),
    "no part of what is alike": ({"model.layers.1": "cpu", "lm_head": "cpu"}, f"no place for {TENSORS - 10} of"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_map_that_leaves_something_open_is_refused(case: str, tmp_path: Path) -> None:
    device_map, says = REFUSED[case]
    with pytest.raises(UsageError, match=re.escape(says)):
        load_target(write_family("llama", tmp_path), device_map=device_map, offload_folder=str(tmp_path / "offload"))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_whole_map_is_taken(family: str, tmp_path: Path) -> None:
    target = load_target(write_family(family, tmp_path), device_map={"": "cpu"})
    assert {each.device.type for each in target.model.parameters()} == {"cpu"}


def test_all_of_it_on_disk_needs_a_map(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no device 'disk'"):
        load_target(write_family("llama", tmp_path), device_map="disk", offload_folder=str(tmp_path / "offload"))


def test_a_folder_for_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="for what a device map leaves on disk, --offload-folder, add --device-map"):
        load_target(write_family("llama", tmp_path), offload_folder=str(tmp_path / "offload"))
