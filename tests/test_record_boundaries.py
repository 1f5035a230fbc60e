"""A recording keeps every boundary that its drafters may read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from drafter_audit import open_drafter
from drafter_audit.errors import UsageError
from drafter_audit.recording.boundaries import boundaries_kept


def drafter(folder: Path, **config: object) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"architectures": ["LlamaForCausalLMEagle3"]} | config))
    return str(folder)


def kept(said: str, layers: int, *refs: str) -> tuple[int, ...]:
    return boundaries_kept(said, [open_drafter(ref) for ref in refs], layers)


def around(*boundaries: int) -> tuple[int, ...]:
    return tuple(sorted({0, *boundaries}))


@pytest.mark.parametrize("key", ["eagle_aux_hidden_state_layer_ids", "eagle_layer_ids"])
def test_ids_in_both_readings_and_what_lies_beside(tmp_path: Path, key: str) -> None:
    ref = drafter(tmp_path, eagle_config={key: [2, 30, 58]})
    assert kept("default", 61, ref) == around(1, 2, 3, 4, 29, 30, 31, 32, 57, 58, 59, 60)


def test_ids_at_the_edges_stay_within_the_target(tmp_path: Path) -> None:
    assert kept("default", 8, drafter(tmp_path, eagle_aux_hidden_state_layer_ids=[0, 8])) == around(0, 1, 2, 7, 8)


def test_a_drafter_without_ids_reads_the_usual_ones(tmp_path: Path) -> None:
    usual = around(1, 2, 3, 15, 16, 17, 28, 29, 30)
    assert kept("default", 32, drafter(tmp_path)) == usual
    assert kept("default", 32) == usual
    assert kept("all", 32) == usual


def test_several_drafters_together(tmp_path: Path) -> None:
    one = drafter(tmp_path / "one", eagle_config={"eagle_aux_hidden_state_layer_ids": [4]})
    two = drafter(tmp_path / "two", eagle_config={"eagle_aux_hidden_state_layer_ids": [20]})
    assert kept("default", 32, one, two) == around(3, 4, 5, 6, 19, 20, 21, 22)


def test_a_bundled_drafter_of_the_last_state() -> None:
    """EAGLE-1 reads the state after the last layer, and no others."""
    ref = Path(__file__).parent / "oracles" / "vllm_eagle1"
    assert kept("default", 8, str(ref)) == around(7, 8)


def test_a_list_is_sorted_and_named_once() -> None:
    assert kept("4,0,4,2", 8) == (0, 2, 4)


@pytest.mark.parametrize(("said", "told"), [("", "no list"), ("0;1", "no list"), ("0,9", "0..8"), ("-1", "0..8")])
def test_what_is_no_list(said: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        kept(said, 8)


def test_what_is_no_drafter(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(
        json.dumps({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_hidden_layers": 4})
    )
    with pytest.raises(UsageError, match="kind lm, no drafter"):
        kept("default", 8, str(tmp_path))
