"""A shard index against the headers of its shards: every way to disagree, and none where they agree."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from drafter_audit.audit.finding import Finding
from drafter_audit.audit.rules import find
from drafter_audit.cli.main import main
from drafter_audit.drafter.open import open_drafter
from tests.shards import BYTES, FIRST, INDEX, SECOND, STORED, halves, index_of, write_shards


def faults(folder: Path) -> dict[str, Finding]:
    findings = find(open_drafter(str(folder)))
    return {finding.code: finding for finding in findings if finding.code.startswith("INDEX-")}


@pytest.mark.parametrize("total_size", [BYTES, float(BYTES), None])
def test_a_sound_index_yields_nothing(tmp_path, total_size):
    assert faults(write_shards(tmp_path, halves(), index_of(halves(), total_size))) == {}


def test_an_index_without_metadata_yields_nothing(tmp_path):
    assert faults(write_shards(tmp_path, halves(), {"weight_map": index_of(halves())["weight_map"]})) == {}


def test_a_sound_index_of_pickled_shards_yields_nothing(tmp_path):
    shards = halves("pytorch_model-00001-of-00002.bin", "pytorch_model-00002-of-00002.bin")
    assert faults(write_shards(tmp_path, shards, index_of(shards), "pytorch_model.bin.index.json")) == {}


def test_a_listed_tensor_in_no_file(tmp_path):
    index = index_of(halves())
    index["weight_map"] |= {"model.layers.7.weight": SECOND, "model.layers.8.weight": SECOND}
    (finding,) = faults(write_shards(tmp_path, halves(), index)).values()
    assert (finding.code, finding.severity, finding.file, finding.key) == (
        "INDEX-ABSENT", "error", INDEX, "model.layers.7.weight",
    )  # fmt: skip
    assert finding.what == f"the index lists what no file holds: model.layers.7.weight ({SECOND}) and 1 more"
    assert finding.evidence["count"] == 2


def test_a_tensor_in_another_shard_than_listed(tmp_path):
    index = index_of(halves())
    index["weight_map"]["fc.weight"] = SECOND
    folder = write_shards(tmp_path, halves(), index)
    (finding,) = faults(folder).values()
    assert (finding.code, finding.severity, finding.key) == ("INDEX-MISPLACED", "warning", "fc.weight")
    assert finding.evidence["first"] == [f"fc.weight ({SECOND}, lies in {FIRST})"]
    assert open_drafter(str(folder)).parameters.stored == 1_190_948_864


def test_a_stored_tensor_that_is_not_listed(tmp_path):
    index = index_of(halves())
    del index["weight_map"]["norm.weight"]
    folder = write_shards(tmp_path, halves(), index)
    (finding,) = faults(folder).values()
    assert (finding.code, finding.severity, finding.key) == ("INDEX-UNLISTED", "warning", "norm.weight")
    assert open_drafter(str(folder)).parameters.stored == 1_190_948_864


def test_a_shard_that_is_not_listed(tmp_path):
    third = {"model-00003-of-00003.safetensors": {"x": ("BF16", (2,))}, "adapter.safetensors": {"y": ("BF16", (2,))}}
    (finding,) = faults(write_shards(tmp_path, {**halves(), **third}, index_of(halves()))).values()
    assert (finding.code, finding.key) == ("INDEX-UNLISTED", "model-00003-of-00003.safetensors")
    assert finding.evidence["kind"] == "unread"


@pytest.mark.parametrize("listed", [FIRST, SECOND, None])
def test_a_tensor_in_two_shards(tmp_path, listed):
    shards = halves()
    shards[SECOND] = {**shards[SECOND], "fc.weight": STORED["fc.weight"]}
    index = index_of(halves())
    index["weight_map"].pop("fc.weight")
    index["weight_map"] |= {"fc.weight": listed} if listed else {}
    folder = write_shards(tmp_path, shards, index)
    found = faults(folder)
    assert found.keys() == {"INDEX-DUPLICATE"} | ({"INDEX-UNLISTED"} if listed is None else set())
    assert found["INDEX-DUPLICATE"].evidence["first"] == [f"fc.weight ({FIRST}, {SECOND})"]
    spec = open_drafter(str(folder))
    assert spec.table is not None
    assert spec.table["fc.weight"].file == (listed or FIRST)
    assert spec.parameters.stored == 1_190_948_864


@pytest.mark.parametrize("total_size", [1, BYTES + 1, "2.2 GB", True, [BYTES]])
def test_a_wrong_total_is_told_and_not_used(tmp_path, total_size):
    folder = write_shards(tmp_path, halves(), index_of(halves(), total_size))
    (finding,) = faults(folder).values()
    assert (finding.code, finding.severity, finding.key) == ("INDEX-TOTAL", "info", "metadata.total_size")
    shown = total_size if isinstance(total_size, int) else f"no whole number but a {type(total_size).__name__}"
    assert finding.evidence == {"total_size": shown, "stored_bytes": BYTES}
    assert open_drafter(str(folder)).parameters.stored == 1_190_948_864


def test_the_total_of_shared_weights_counts_them_once(tmp_path):
    """As transformers' shard_checkpoint adds up: the weight of `1` is that of `0`."""
    source = Path(__file__).parent / "data" / "pickled"
    (tmp_path / "pytorch_model.bin").write_bytes((source / "module.bin").read_bytes())
    expected = json.loads((source / "expected.json").read_text())["module.bin"]
    total = sum(len(told["values"]) // 2 for told in expected.values())
    shared = len(expected["1.weight"]["values"]) // 2
    for size, codes in ((total, []), (total - shared, []), (total - 1, ["INDEX-TOTAL"])):
        index = {"metadata": {"total_size": size}, "weight_map": dict.fromkeys(expected, "pytorch_model.bin")}
        write_shards(tmp_path, {}, index, "pytorch_model.bin.index.json")
        assert list(faults(tmp_path)) == codes


def test_params_and_compare_show_them(tmp_path, capsys):
    index = index_of(halves(), 1)
    index["weight_map"]["ghost.weight"] = FIRST
    ref = str(write_shards(tmp_path, halves(), index))
    for command in (["params", ref], ["compare", ref, ref]):
        assert main([*command, "--format", "json"]) == 0
        printed = json.loads(capsys.readouterr().out)
        codes = [finding["code"] for finding in printed["drafters"][0]["findings"]]
        assert {"INDEX-ABSENT", "INDEX-TOTAL"} <= set(codes)
