"""Stands in for the Python of an engine's environment: it leaves the files that vLLM's worker left, from
tests/data/engines/extracted, in the worker's order. It is called as the worker is, `stand_in.py WORKER JOB`.

STAND_IN says what goes wrong: `loading` (it dies as vLLM does), `midway` (it is killed behind the first answer),
`silence` (nothing comes), `other` (another prompt's answer), `short` (states of the prompt alone). In STAND_IN_CHILD's
file stands the process that it starts and never ends, in a session of its own.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

KEPT = Path(__file__).parents[1] / "data" / "engines" / "extracted"


def main(job_file: Path) -> None:
    wrong, child = os.environ.get("STAND_IN", ""), os.environ.get("STAND_IN_CHILD")
    if child:
        Path(child).write_text(str(subprocess.Popen(["sleep", "600"], start_new_session=True).pid), encoding="utf-8")
    if wrong == "loading":
        print("(EngineCore pid=7) ERROR 12-01 torch.OutOfMemoryError: CUDA out of memory.", flush=True)
        raise SystemExit("RuntimeError: Engine core initialization failed. See root cause above.")
    if wrong == "silence":
        print("Loading weights", flush=True)
        time.sleep(600)
    folder = job_file.parent
    _placed(KEPT / "engine.json", folder / "engine.json")
    for prompt in json.loads(job_file.read_text(encoding="utf-8"))["prompts"]:
        taken = 1 - prompt["index"] if wrong == "other" else prompt["index"]
        states = f"{prompt['index']:05}.states.safetensors"
        shutil.copy(KEPT / f"{taken:05}.states.safetensors", folder / states)
        if wrong == "short":
            _cut(folder / states, len(prompt["ids"]))
        _placed(KEPT / f"{taken:05}.safetensors", folder / f"{prompt['index']:05}.safetensors")
        if wrong == "midway":
            os.kill(os.getpid(), signal.SIGKILL)


def _placed(kept: Path, path: Path) -> None:
    """Whole or not at all."""
    part = path.with_suffix(".part")
    shutil.copy(kept, part)
    part.replace(path)


def _cut(path: Path, rows: int) -> None:
    """As a vLLM does that does not know `include_output_tokens`."""
    from safetensors.numpy import load_file, save_file

    save_file({name: tensor[:rows].copy() for name, tensor in load_file(path).items()}, path)


if __name__ == "__main__":
    main(Path(sys.argv[2]))
