"""Two prompts answered by vLLM's CPU build, with the states that it extracts, as the worker leaves them:

    VLLM_PYTHON=/path/to/python python -m tests.engines_run.vllm_extraction

writes tests/data/engines/extracted/ anew, on which the reader of such files is tested.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from drafter_audit.prompts.prompt import TokenPrompt
from drafter_audit.recording.answer import Settings
from drafter_audit.recording.engine.job import Engine
from drafter_audit.recording.engine.make import WORKER, Served
from drafter_audit.recording.engine.target import served_target
from tests.engines_run.vllm_pair import ROOT, TARGET, token_rows

KEPT = ROOT / "tests" / "data" / "engines" / "extracted"
SETTINGS = Settings((0, 2, 6, 9, 12), max_new_tokens=24, lookahead=4, top=16)
PLACES = (5, 8)
"""Of the 16 held-out prompts that the pair was served: one's answer ends, one's is cut."""


def served(engine: Engine) -> Served:
    rows = token_rows()
    prompts = [TokenPrompt(rows[place]["id"], None, tuple(rows[place]["token_ids"])) for place in PLACES]
    return Served(served_target(str(TARGET)), prompts, SETTINGS, engine)


def main() -> None:
    python = os.environ["VLLM_PYTHON"]
    asked = served(Engine(python))
    with tempfile.TemporaryDirectory() as folder:
        job = Path(folder) / "job.json"
        asked.job([0] * len(asked.prompts)).write(job)
        with subprocess.Popen([python, str(WORKER), str(job)], stdin=subprocess.PIPE) as worker:  # ends if it closes
            if worker.wait():
                raise SystemExit(f"vLLM ended with {worker.returncode}")
        KEPT.mkdir(exist_ok=True)
        for path in (*job.parent.glob("*.safetensors"), job.parent / "engine.json"):
            shutil.copy(path, KEPT)


if __name__ == "__main__":
    main()
