"""The reference pair under vLLM's CPU build: with the drafter's config as saved, and as `lint --write-config` mends it.

    VLLM_PYTHON=/path/to/python python -m tests.engines_run.vllm_pair

writes tests/data/engines/vllm-0.32.0-cpu-tiny.json anew, which tests hold our own counts to.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PAIR = ROOT / "reference_models" / "tiny"
TARGET, DRAFTER = PAIR / "target", PAIR / "drafter"
PROMPTS = ROOT / "tests" / "data" / "prompts" / "held_out.jsonl"
ENGINE = "vllm@0.32.0"
KEPT = ROOT / "tests" / "data" / "engines" / "vllm-0.32.0-cpu-tiny.json"
COUNT, STEPS, MAX_NEW_TOKENS = 16, 3, 64


def run(vllm_python: str, folder: Path) -> dict[str, Any]:
    """Serves the pair twice and tells what was counted; `folder` is for files on the way. Raises CalledProcessError."""
    mended = folder / "mended"
    lint = ["lint", str(DRAFTER), "--target", str(TARGET), "--engine", ENGINE, "--write-config", str(mended)]
    _done([sys.executable, "-m", "drafter_audit", *lint, "--fail-on", "never"])
    prompts = folder / "prompts.jsonl"
    prompts.write_text("".join(f"{json.dumps(row)}\n" for row in token_rows()), encoding="utf-8")
    return {
        "pair": fingerprints(),
        "as_saved": _served(vllm_python, DRAFTER, prompts, folder / "as_saved.json"),
        "mended": _served(vllm_python, mended, prompts, folder / "mended.json"),
    }


def token_rows() -> list[dict[str, Any]]:
    """Held-out prompts in turn with a thought and without, evenly from all categories, by the target's own template."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(TARGET)
    rows = [json.loads(line) for line in PROMPTS.read_text(encoding="utf-8").splitlines()]
    chosen = [rows[place * len(rows) // COUNT] for place in range(COUNT)]
    return [
        {
            "id": row["id"],
            "token_ids": tokenizer.apply_chat_template(
                row["messages"], add_generation_prompt=True, return_dict=False, enable_thinking=place % 2 == 0
            ),
        }
        for place, row in enumerate(chosen)
    ]


def fingerprints() -> dict[str, str]:
    """The sha256 of the pair's weights: counts of another pair are other counts."""
    files = {"target": TARGET / "model.safetensors", "drafter": DRAFTER / "model.safetensors"}
    return {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files.items()}


def _served(vllm_python: str, drafter: Path, prompts: Path, out: Path) -> dict[str, Any]:
    script = Path(__file__).with_name("vllm_counters.py")
    _done(
        [vllm_python, str(script), str(TARGET), str(drafter), str(prompts), str(STEPS), str(MAX_NEW_TOKENS), str(out)]
    )
    served: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    return served


def _done(command: list[str]) -> None:
    finished = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if finished.returncode:
        raise SystemExit(f"{' '.join(command)}\nexit code {finished.returncode}\n{finished.stderr[-4000:]}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        record = run(os.environ["VLLM_PYTHON"], Path(folder))
    KEPT.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
