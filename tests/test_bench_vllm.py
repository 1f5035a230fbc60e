"""vLLM itself, on a CPU: what `bench` and `sweep` read from its server is what its own counters were, kept beside.

The environment: engines_run/README.md. `make test-vllm` runs it.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from drafter_audit.cli.main import main
from tests.engines_run.vllm_counters import SETTINGS
from tests.engines_run.vllm_pair import KEPT, MAX_NEW_TOKENS, STEPS

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif("VLLM_PYTHON" not in os.environ, reason="VLLM_PYTHON names no Python that has vLLM's CPU build"),
]

RECORD: dict[str, Any] = json.loads(KEPT.read_text(encoding="utf-8"))
REQUESTS: list[dict[str, Any]] = RECORD["as_saved"]["requests"]
ARGS = "--dtype float32 --enforce-eager --max-num-seqs 1 --no-enable-prefix-caching"


def words(folder: Path, command: str, *more: str) -> list[str]:
    prompts = folder / "prompts.jsonl"
    rows = [{"id": each["id"], "token_ids": each["prompt"]} for each in REQUESTS]
    prompts.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    # Its own process for the engine, as users have it; nothing of this project on its path.
    settings = {**SETTINGS, "VLLM_ENABLE_V1_MULTIPROCESSING": "1", "PYTHONPATH": ""}
    return [
        *(command, "tiny", "--target", "tiny-target", "--engine", "vllm", "--engine-python", os.environ["VLLM_PYTHON"]),
        *("--prompts", str(prompts), "--max-new-tokens", str(MAX_NEW_TOKENS), "--format", "json"),
        *(word for name, value in settings.items() for word in ("--env", f"{name}={value}")),
        *more,
    ]


@pytest.mark.parametrize("more", ["", " --per-request-spec-decode-metrics summary"], ids=["counters", "per request"])
def test_bench_counts_what_vllm_counted(more, tmp_path, capsys) -> None:
    """Request by request: rounds, accepted drafts and tokens; by position, over all."""
    launch = ("--launch", "--logs", str(tmp_path), "--steps", str(STEPS), "--engine-args", ARGS + more)
    assert main(words(tmp_path, "bench", *launch)) == 0
    told = json.loads(capsys.readouterr().out)
    ours = {each["id"]: (each["rounds"], each["accepted"], each["tokens"]) for each in told["per_prompt"]}
    assert ours == {each["id"]: (each["drafts"], each["accepted"], len(each["tokens"])) for each in REQUESTS}
    assert told["per_position_counts"] == [sum(each["per_position"][i] for each in REQUESTS) for i in range(STEPS)]
    assert told["engine"]["not_verified"] == []


def test_a_sweep_over_its_servers(tmp_path, capsys) -> None:
    out = ("--out", str(tmp_path / "night"), "--steps", "1,3", "--engine-args", ARGS)
    assert main(words(tmp_path, "sweep", *out)) == 0
    told = json.loads(capsys.readouterr().out)
    assert [row["status"] for row in (*told["plain"], *told["rows"])] == ["done"] * 3
    rounds, accepted = (sum(each[name] for each in REQUESTS) for name in ("drafts", "accepted"))
    assert (told["rows"][1]["rounds"], told["rows"][1]["accepted"]) == (rounds, accepted)
    assert told["rows"][0]["accept_len"] < told["rows"][1]["accept_len"]
    assert told["break_even_accept_len"] > 0
