"""No published drafter is called faulty without a reason: every bundled record and every config that was seen.

No network, no weights: their config.json, and their target's where it is bundled.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from drafter_audit.audit.lint import Lint, lint
from drafter_audit.facts import registry
from tests.test_catalogue import PUBLISHED

DRAFTERS = [
    name for name in registry.names() if (record := registry.load(name)).role == "drafter" and record.config_origin
]

NOT_READ = {"NO-WEIGHTS", "TARGET-UNREAD"}  # these say what was not looked at

_TIED = "AngelSlim's config says tie_word_embeddings true beside 32000 draft tokens; SGLang 0.5.23 llama_eagle3.py:303"

FAULTS = {
    "angelslim-qwen3-1.7b_eagle3": {"HEAD-TIED": _TIED},
    "angelslim-qwen3-4b_eagle3": {"HEAD-TIED": _TIED},
}
"""Known faults: record, then code and why."""

DOUBTS = {
    # [2, 30, 58] is written for both meanings by drafters of one target (sgl-project/sglang#25454); the layers of
    # [1, 17, 33] on 36 and of [4, 20, 40] are the default of neither
    "IDS-AMBIG": {
        "aq-medai-kimi-k2-instruct-eagle3",
        "aq-medai-kimi-k25-eagle3",
        "k-l-lambda-kimi-k2.5-eagle3",
        "lmsys-eagle3-gpt-oss-120b-bf16",
        "zjxia-step-3.5-flash-eagle3-specforge-draft",
    },
    # drafters with plain rope for targets with YaRN: trained so, or shortened on the way; their authors do not say
    "ROPE-DIFF": {
        "aq-medai-kimi-k2-instruct-eagle3",
        "aq-medai-kimi-k25-eagle3",
        "lmsys-eagle3-gpt-oss-120b-bf16",
        "nm-testing-for_testing_gptoss20b_spec_eagle3",
    },
}
"""Warnings that state a doubt which no file of the drafter's removes, by code: all records that have it."""

CONFIG_FAULTS = {
    "AngelSlim/Qwen3-4B_eagle3": {"KIND-UNKNOWN": "only sizes of its config were seen"},
    "specforge:configs/qwen3-30B-A3B-eagle3.1.json": {"NORM-OUTPUT-SF": "its meaning changed: SpecForge#879"},
    "specforge:configs/qwen3.6-27b-dspark.json": {"CONFIG-NULL": "target_hidden_size is null"},
}
"""The same for configs alone, without a target: there explicit ids of a nested list are open as a rule."""


def faults(found: Lint) -> set[str]:
    """Codes of errors and warnings, but for what was not read."""
    return {finding.code for finding in found.findings if finding.severity != "info"} - NOT_READ


@pytest.mark.parametrize("name", DRAFTERS)
def test_a_bundled_drafter_has_its_known_faults_only(name: str) -> None:
    doubts = {code for code, names in DOUBTS.items() if name in names}
    assert faults(lint(name)) == doubts | set(FAULTS.get(name, {}))


@pytest.mark.parametrize("name", DRAFTERS)
def test_no_bundled_drafter_has_an_error(name: str) -> None:
    assert [finding.code for finding in lint(name).findings if finding.severity == "error"] == []


def test_every_name_in_the_tables_is_bundled() -> None:
    assert set(FAULTS).union(*DOUBTS.values()) <= set(DRAFTERS)


@pytest.mark.parametrize("row", [pytest.param(row, id=row["id"]) for row in PUBLISHED])
def test_a_published_config_has_its_known_faults_only(tmp_path: Path, row: dict[str, Any]) -> None:
    (tmp_path / "config.json").write_text(json.dumps(row["config"]), encoding="utf-8")
    assert faults(lint(str(tmp_path))) - {"IDS-AMBIG"} <= set(CONFIG_FAULTS.get(row["id"], {}))


def test_every_config_in_the_table_was_seen() -> None:
    assert set(CONFIG_FAULTS) <= {row["id"] for row in PUBLISHED}
