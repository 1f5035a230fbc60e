"""What vLLM counts while it serves a target with its EAGLE-3 drafter, one request after another, greedy, on a CPU.

    python vllm_counters.py TARGET DRAFTER PROMPTS STEPS MAX_NEW_TOKENS OUT

Run with the Python of an environment that has vLLM's CPU build and nothing of this project: README.md beside this file.
TARGET and DRAFTER are folders, PROMPTS a JSONL file of `{"id": ..., "token_ids": [...]}`, OUT the JSON that is written.
A request is alone in the engine, so what the engine's counters gain by it is its own.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

SETTINGS = {
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GB
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # else the counters live in another process
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_TARGET_DEVICE": "cpu",
}
PREFIX = "vllm:spec_decode_"
COUNTERS = {"drafts": "num_drafts", "drafted": "num_draft_tokens", "accepted": "num_accepted_tokens"}
PER_POSITION = "num_accepted_tokens_per_pos"


def engine(target: Path, drafter: Path, steps: int) -> Any:
    from vllm import LLM

    return LLM(
        model=str(target),
        skip_tokenizer_init=True,
        dtype="float32",
        enforce_eager=True,
        enable_prefix_caching=False,
        max_num_seqs=1,
        disable_log_stats=False,
        speculative_config={"method": "eagle3", "model": str(drafter), "num_speculative_tokens": steps},
    )


def counters(llm: Any) -> dict[str, Any]:
    """The engine's counters since it started."""
    told = {metric.name.removeprefix(PREFIX): metric for metric in llm.get_metrics()}
    counted = {ours: told[theirs].value for ours, theirs in COUNTERS.items()}
    return {**counted, "per_position": list(told[PER_POSITION].values)}


def gained(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    positions = zip(before["per_position"], after["per_position"], strict=True)
    return {**{key: after[key] - before[key] for key in COUNTERS}, "per_position": [b - a for a, b in positions]}


def end_ids(target: Path) -> list[int]:
    """The tokens at which an answer ends."""
    ends = json.loads((target / "config.json").read_text(encoding="utf-8"))["eos_token_id"]
    return ends if isinstance(ends, list) else [ends]


def serve(llm: Any, rows: list[dict[str, Any]], ends: list[int], max_new_tokens: int) -> list[dict[str, Any]]:
    """Each request's prompt and answer in tokens, and its share of the counters."""
    from vllm import SamplingParams

    greedy = SamplingParams(
        temperature=0, max_tokens=max_new_tokens, ignore_eos=True, stop_token_ids=ends, detokenize=False
    )
    served, before = [], counters(llm)
    for row in rows:
        prompt = row["token_ids"]
        answer = llm.generate([{"prompt_token_ids": prompt}], greedy, use_tqdm=False)[0].outputs[0]
        after = counters(llm)
        tokens = {"prompt": prompt, "tokens": list(answer.token_ids)}
        served.append({"id": row["id"], **tokens, **gained(before, after)})
        before = after
    return served


def main(target: Path, drafter: Path, prompts: Path, steps: int, max_new_tokens: int, out: Path) -> None:
    os.environ.update(SETTINGS)
    import torch
    import vllm

    rows = [json.loads(line) for line in prompts.read_text(encoding="utf-8").splitlines()]
    requests = serve(engine(target, drafter, steps), rows, end_ids(target), max_new_tokens)
    versions = {"vllm": vllm.__version__, "torch": torch.__version__, "python": platform.python_version()}
    settings = {"method": "eagle3", "dtype": "float32", "steps": steps, "max_new_tokens": max_new_tokens}
    out.write_text(json.dumps({"versions": versions, **settings, "requests": requests}), encoding="utf-8")


if __name__ == "__main__":
    _, target, drafter, prompts, steps, max_new_tokens, out = sys.argv
    main(Path(target), Path(drafter), Path(prompts), int(steps), int(max_new_tokens), Path(out))
