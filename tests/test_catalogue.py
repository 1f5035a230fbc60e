"""Every kind and dialect that is known of, and what has been reported of their shapes: a config and a header each.

`tests/data/catalogue/README.md` tells the format. Expected values come from the source that each entry names.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from drafter_audit.audit.finding import Finding
from drafter_audit.audit.rules import find
from drafter_audit.drafter.clues import Clues
from drafter_audit.drafter.config_view import ConfigView
from drafter_audit.drafter.dialects import DIALECTS, detect_dialect
from drafter_audit.drafter.kinds import KINDS, detect_kind
from drafter_audit.drafter.open import open_drafter
from drafter_audit.drafter.spec import DrafterSpec
from drafter_audit.errors import ShardIndexError
from tests.checkpoints import Tensors
from tests.hub import write_sparse

Entry = dict[str, Any]
FOLDER = Path(__file__).parent / "data" / "catalogue"


def entries(file: str) -> list[Entry]:
    rows: list[Entry] = json.loads((FOLDER / file).read_text())
    return rows


PUBLISHED = entries("published.json")
CASES = [*entries("kinds.json"), *entries("reports.json")]


def named(rows: list[Entry]) -> list[Any]:
    return [pytest.param(row, id=row["id"]) for row in rows]


def tensors_of(entry: Entry) -> Tensors:
    """`"fc.weight": "BF16 64x192"` as dtype and shape."""
    parts = {name: text.split() for name, text in entry["tensors"].items()}
    return {name: (dtype, tuple(map(int, shape.split("x")))) for name, (dtype, shape) in parts.items()}


def opened(folder: Path, entry: Entry) -> DrafterSpec:
    """The entry as files, opened; with its target's config where it names one."""
    place = folder / "checkpoint" / entry.get("folder", "")
    place.mkdir(parents=True)
    (place / "config.json").write_text(json.dumps(entry["config"]))
    if entry["tensors"] is not None:
        write_sparse(place / "model.safetensors", tensors_of(entry), entry.get("metadata"))
    if "target" not in entry:
        return open_drafter(str(place))
    target = folder / "target"
    target.mkdir()
    (target / "config.json").write_text(json.dumps(entry["target"]))
    return open_drafter(str(place), target=str(target))


@pytest.mark.parametrize("row", named(PUBLISHED))
def test_published_configs(row: Entry) -> None:
    clues = Clues(ConfigView(row["config"], "config.json"), None, {})
    assert (detect_kind(clues).name, detect_dialect(clues).name) == (row["kind"], row["dialect"])


@pytest.mark.parametrize("entry", named(CASES))
def test_kind_and_dialect(tmp_path: Path, entry: Entry) -> None:
    spec = opened(tmp_path, entry)
    assert (spec.kind.name, spec.dialect.name) == (entry["kind"], entry["dialect"]), spec.kind.reason
    assert entry.get("reason", "") in spec.kind.reason
    assert spec.architecture.num_aux_hidden_states == entry.get("aux", spec.architecture.num_aux_hidden_states)


@pytest.mark.parametrize("entry", named([entry for entry in CASES if "errors" in entry]))
def test_findings(tmp_path: Path, entry: Entry) -> None:
    findings = find(opened(tmp_path, entry))
    codes = [finding.code for finding in findings]
    assert [finding.code for finding in findings if finding.severity == "error"] == entry["errors"]
    assert set(entry.get("findings", [])) <= set(codes)
    assert not set(entry.get("absent", [])) & set(codes)
    for finding in findings:
        check_finding(finding, entry)


def check_finding(finding: Finding, entry: Entry) -> None:
    expected = entry.get("evidence", {}).get(finding.code, {})
    assert {key: finding.evidence.get(key) for key in expected} == expected
    assert entry.get("what", {}).get(finding.code, "") in finding.what
    assert finding.fix_set == entry.get("fix", {}).get(finding.code, finding.fix_set)


@pytest.mark.parametrize("entry", named([entry for entry in CASES if "parameters" in entry]))
def test_parameters(tmp_path: Path, entry: Entry) -> None:
    """Each count is a sum of products of the entry's shapes, or was published."""
    counted = opened(tmp_path, entry).parameters
    assert {role: getattr(counted, role) for role in entry["parameters"]} == entry["parameters"]
    assert counted.stored == counted.trainable + counted.frozen + counted.unknown


@pytest.mark.parametrize("entry", named([entry for entry in CASES if "published" in entry]))
def test_rounded_published_figures(tmp_path: Path, entry: Entry) -> None:
    """`[0.24, 1e9, 2]`: 0.24 billion, as rounded to two decimals, or cut off after them."""
    counted = opened(tmp_path, entry).parameters
    found = {"trainable": counted.trainable, "stored": counted.stored, "bytes": counted.nbytes or 0}
    for name, (value, unit, decimals) in entry["published"].items():
        assert 0 <= abs(found[name] / unit - value) < 10.0**-decimals


def test_every_kind_and_dialect_has_an_entry() -> None:
    rows = [*PUBLISHED, *CASES]
    assert {row["kind"] for row in rows} == set(KINDS)
    assert {row["dialect"] for row in rows} == set(DIALECTS) - {"gguf"}  # a file format: test_gguf.py


@pytest.mark.parametrize("row", named([*PUBLISHED, *CASES]))
def test_every_entry_names_its_source(row: Entry) -> None:
    assert row["source"].startswith("https://")


def test_an_absent_shard_beside_a_consolidated_file(tmp_path: Path) -> None:
    """F-10, NVIDIA/Model-Optimizer#1417: shards 2 of 2 and consolidated.safetensors are there, shard 1 is not."""
    mistral = {
        "tok_embeddings.weight": ("BF16", (512, 64)),
        "layers.0.attention.wq.weight": ("BF16", (128, 64)),
        "output.weight": ("BF16", (512, 64)),
    }
    (tmp_path / "config.json").write_text('{"architectures": ["MistralForCausalLM"]}')
    shards = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": shards}))
    write_sparse(tmp_path / "model-00002-of-00002.safetensors", {"b": ("BF16", (2,))})
    write_sparse(tmp_path / "consolidated.safetensors", mistral)
    with pytest.raises(ShardIndexError) as failure:
        open_drafter(str(tmp_path))
    assert "model-00001-of-00002.safetensors" in str(failure.value)
    assert "consolidated.safetensors" in str(failure.value)
    spec = open_drafter(str(tmp_path / "consolidated.safetensors"))
    assert (spec.kind.name, spec.parameters.stored) == ("lm", 2 * 512 * 64 + 128 * 64)


def test_what_was_opened_is_told(tmp_path: Path) -> None:
    """F-14, verl-project/verl-SpeCo#15: a reference must not fall through to something else, unsaid."""
    spec = opened(tmp_path, CASES[0])
    told = spec.to_dict()
    assert (told["source"], told["name"], told["revision"]) == ("local", str(tmp_path / "checkpoint"), None)
