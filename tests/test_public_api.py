"""What `import drafter_audit` offers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import drafter_audit
from tests.checkpoints import write_peer


def test_all_is_sorted_complete_and_importable() -> None:
    assert list(drafter_audit.__all__) == sorted(drafter_audit.__all__)
    assert all(getattr(drafter_audit, name) is not None for name in drafter_audit.__all__)
    assert dir(drafter_audit) == sorted(drafter_audit.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = drafter_audit.no_such_name  # type: ignore[attr-defined]


def test_results_become_json(tmp_path: Path) -> None:
    refs = [write_peer(tmp_path / name, name) for name in ("specforge_eagle3", "modelopt_eagle3")]
    spec = drafter_audit.open_drafter(refs[0], target=write_peer(tmp_path / "target", "tiny_llama"))
    assert json.loads(json.dumps(spec.to_dict(), allow_nan=False))["aux_layers"]["boundaries"] == [2, 4, 5]
    comparison = drafter_audit.compare(refs)
    assert set(json.loads(json.dumps(comparison.to_dict(), allow_nan=False))) == {
        "drafters",
        "differences",
        "conclusions",
        "hub",
    }
