"""The question the tool was built for, over HTTP at real size, from the command line.

"How does our drafter compare with AQ-MedAI/Kimi-K2-Instruct-eagle3? That one says 1B and ours is 2B-ish." The published
repository lies on the stand-in of the Hub with its real config, shapes and card facts; ours is a folder.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.checkpoints import EMBEDDING, KIMI_CONFIG, LEFTOVER, kimi_tensors, write_checkpoint
from tests.hub import Hub, write_sparse

AQ = "AQ-MedAI/Kimi-K2-Instruct-eagle3"

# The card's facts and layout, in our own words.
CARD = """\
---
license: mit
---
## Overview

Measured with bs=8, steps=3, topk=1, num_draft_tokens=4.

The drafter was trained on **1.4 million high-quality samples** from the **Open-PerfectBlend** dataset.

## Performance

**Average Token Acceptance Lengths (MLA):**

| Benchmark | Average Acceptance Length |
| :--- | :--- |
| **HumanEval** (Code) | **3.372** |
| **GSM8K** (Math) | **3.165** |
| **Math500** (Complex Math) | **3.490** |

```
pip install sglang==0.5.6
```
"""

OURS = """\
[[drafter]]
target = "moonshotai/Kimi-K2.5"
  [drafter.training]
  dataset = "synthetic, 9 categories"
  samples = 37000
  [[drafter.accept_len]]
  value = 2.1
  steps = 2
  topk = 1
  num_draft_tokens = 3
  engine = "sglang"
  [drafter.throughput]
  tokens_per_s = 94.0
  plain_tokens_per_s = 88.8
"""

Story = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def story(hub: Hub, tmp_path: Path) -> Story:
    """`story(*options)`: drafter-audit compare AQ ./ours in a new process, from the folder that holds ./ours."""
    weights = write_sparse(tmp_path / "aq.safetensors", kimi_tensors(), {"format": "pt"})
    files = {"config.json": json.dumps(KIMI_CONFIG).encode(), "README.md": CARD.encode(), "model.safetensors": weights,
             "training_state.pt": b"optimizer"}  # fmt: skip
    hub.add_repo(AQ, files=files)
    write_checkpoint(tmp_path / "ours", KIMI_CONFIG, {**kimi_tensors(), **EMBEDDING, **LEFTOVER})
    (tmp_path / "ours" / "drafter-audit.toml").write_text(OURS)

    def run(*options: str) -> subprocess.CompletedProcess[str]:
        root = Path(__file__).parent.parent
        command = [sys.executable, "-W", "error", "-m", "drafter_audit", "compare", AQ, "./ours", *options]
        env = {**hub.env, "PYTHONPATH": str(root)}
        return subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False, timeout=60)

    return run


@pytest.fixture
def answer(story: Story) -> dict[str, Any]:
    done = story("--format", "json")
    assert (done.returncode, done.stderr) == (0, "")
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def test_the_answer(answer: dict[str, Any]) -> None:
    conclusions = {conclusion["code"]: conclusion["numbers"] for conclusion in answer["conclusions"]}
    assert conclusions["same_architecture"]["same"] is True
    size = conclusions["size_difference"]
    assert (size["stored"], size["not_trainable"], size["trainable"]) == (1_403_781_120, 1_403_781_120, 0)
    assert conclusions["samples_ratio"]["ratio"] == pytest.approx(37.8, abs=0.05)
    gap = conclusions["accept_len_gap"]
    assert (gap["ours"], gap["theirs_low"], gap["theirs_high"]) == (2.1, 3.165, 3.490)
    assert (gap["bounded_low"], gap["bounded_high"]) == (pytest.approx(2.443, abs=5e-4), 3.0)
    what_if = conclusions["what_if"]
    assert what_if["tokens_per_s_low"] == pytest.approx(109.4, abs=0.05)
    assert what_if["tokens_per_s_high"] == pytest.approx(134.3, abs=0.05)
    assert what_if["break_even"] == pytest.approx(1.984, abs=5e-4)
    assert conclusions["not_comparable"]["reasons"] == ["steps", "target", "quantization"]
    assert conclusions["largest_difference"]["field"] == "training.samples"


def test_each_fact_shows_its_source(answer: dict[str, Any]) -> None:
    aq, ours = answer["drafters"]
    assert (aq["source"], ours["source"]) == ("hub", "local")
    assert len(aq["revision"]) == 40
    assert aq["training"] == {
        "dataset": "Open-PerfectBlend",
        "samples": 1_400_000,
        "source": "model card, read from text",
    }
    assert ours["training"]["source"].endswith("drafter-audit.toml")
    assert (aq["target"]["ref"], aq["target"]["num_layers"], aq["target"]["quantization"]) == (
        "moonshotai/Kimi-K2-Instruct",
        61,
        "fp8",
    )
    assert (ours["target"]["ref"], ours["target"]["quantization"]) == (
        "moonshotai/Kimi-K2.5",
        "compressed-tensors int4",
    )
    card = [row for row in aq["accept_len"] if row["source"] == "model card, read from text"]
    assert [(row["benchmark"], row["value"]) for row in card] == [
        ("HumanEval", 3.372),
        ("GSM8K", 3.165),
        ("Math500", 3.490),
    ]
    assert {(row["steps"], row["topk"], row["num_draft_tokens"]) for row in card} == {(3, 1, 4)}
    others = [row for row in aq["accept_len"] if row["publisher"] == "SpecBundle"]
    assert len(others) == 35
    assert any(row["value"] == 2.3897 and row["benchmark"] == "mtbench" for row in others)


def test_weights_stay_where_they_are(answer: dict[str, Any], hub: Hub) -> None:
    """2.4 GB on the Hub, of which a header's worth leaves it."""
    ranged = [
        request for request in hub.requests if request.path.endswith("model.safetensors") and request.method == "GET"
    ]
    assert ranged
    assert all(request.range for request in ranged)
    assert sum(request.sent for request in hub.requests) < 200_000
    assert answer["hub"]["requests"] == len(hub.requests)
    assert 0 < answer["hub"]["bytes"] < 200_000


def test_the_table_ends_in_the_answer(story: Story) -> None:
    done = story()
    assert (done.returncode, done.stderr) == (0, "")
    conclusions = " ".join(done.stdout[done.stdout.index("Conclusions") :].split())
    for said in ("Same architecture", "1,403,781,120 parameters more", "none of the difference is trainable",
                 "37.8 times", "[2.443, 3.000]", "109.4–134.3 tok/s", "1.984", "steps, target, quantisation differ",
                 "is in training samples, by a factor of 37.8"):  # fmt: skip
        assert said in conclusions


def test_exit_code_tells_of_differences(story: Story) -> None:
    assert story("--exit-code").returncode == 1
