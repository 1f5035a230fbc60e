"""Stand-ins for engines, started as the tool starts an engine, or as a user does who attaches to it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import URLError

from drafter_audit.bench.launching import free_port
from drafter_audit.facts.pair import folder_of
from tests.engine_stand_in import Decoder, Plan

SCRIPT = Path(__file__).with_name("engine_stand_in.py")
PROMPTS = ([1, 2, 3], [4, 5, 6, 7], [8])
TARGET, DRAFTER = str(folder_of("tiny-target")), str(folder_of("tiny"))
WARM_UP = 8  # tokens of the request that comes first


def engine_python(folder: Path) -> str:
    """What stands for the Python of an engine's environment: it runs the stand-in with whatever it is given."""
    path = folder / "engine-python"
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{SCRIPT}" "$@"\n')
    path.chmod(0o755)
    return str(path)


def prompt_file(folder: Path, *, chat: bool = False, count: int = len(PROMPTS)) -> str:
    rows = [{"id": f"p{n}", "token_ids": ids} for n, ids in enumerate(PROMPTS[:count])]
    if chat:
        rows = [{"id": f"p{n}", "prompt": "Say it."} for n in range(len(PROMPTS))]
    path = folder / ("chat.jsonl" if chat else "tokens.jsonl")
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return str(path)


def launch(folder: Path, engine: str, plan: dict[str, Any], *more: str, chat: bool = False) -> list[str]:
    """The words of `bench --launch` on the stand-in."""
    return [
        *("bench", "tiny", "--target", "tiny-target", "--engine", engine, "--launch"),
        *("--engine-python", engine_python(folder), "--logs", str(folder / "logs")),
        *("--prompts", prompt_file(folder, chat=chat), "--env", f"STAND_IN={json.dumps(plan)}"),
        *("--format", "json", *more),
    ]


@contextmanager
def serving(engine: str, plan: dict[str, Any], *more: str, steps: int = 3, **env: str) -> Iterator[str]:
    """The URL of a server that somebody else started."""
    port = free_port()
    asked = arguments(engine, steps)
    process = subprocess.Popen(
        [sys.executable, str(SCRIPT), *asked, "--port", str(port), *more],
        env={**os.environ, "STAND_IN": json.dumps(plan), **env},
        stdout=subprocess.DEVNULL,
    )
    try:
        _wait(f"http://127.0.0.1:{port}/health", process)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def arguments(engine: str, steps: int) -> list[str]:
    if engine == "vllm":
        drafting = {"method": "eagle3", "model": DRAFTER, "num_speculative_tokens": steps}
        config = ["--speculative-config", json.dumps(drafting)] if steps else []
        return ["-m", "vllm.entrypoints.openai.api_server", "--model", TARGET, *config]
    drafting = [
        *("--speculative-algorithm", "EAGLE3", "--speculative-draft-model-path", DRAFTER),
        *("--speculative-num-steps", str(steps), "--speculative-eagle-topk", "1"),
        *("--speculative-num-draft-tokens", str(steps + 1)),
    ]
    return ["-m", "sglang.launch_server", "--model-path", TARGET, *(drafting if steps else [])]


def expected(plan: dict[str, Any], steps: int, cap: int = 256, earlier: int = 0) -> dict[str, Any]:
    """What the stand-in's rounds add up to, those `earlier` and the warm-up's apart: recounted without a server."""
    decoder = Decoder(Plan(**{**plan, "verify_ms": 0.0, "draft_ms": 0.0}), steps)
    for cap_before in (*[WARM_UP] * earlier, WARM_UP):
        list(decoder.answer(list(PROMPTS[0]), cap_before))
    last = [list(decoder.answer(list(ids), cap))[-1] for ids in PROMPTS]
    histogram = [sum(piece.histogram[j] for piece in last) for j in range(steps + 1)]
    rounds, accepted = sum(histogram), sum(j * n for j, n in enumerate(histogram))
    tokens = sum(len(piece.so_far) for piece in last)
    return {"rounds": rounds, "accepted": accepted, "histogram": histogram, "tokens": tokens}


def _wait(url: str, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + 20
    while True:
        try:
            urllib.request.urlopen(url, timeout=5).close()
            return
        except (URLError, ConnectionError):
            assert process.poll() is None, "the stand-in ended"
            assert time.monotonic() < until, "the stand-in is not up"
            time.sleep(0.02)
