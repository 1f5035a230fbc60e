"""Recordings that are killed: `python -m tests.recorder REF PROMPTS FOLDER TEMPERATURE`.

For each place in a run a child process is killed there, with SIGKILL, and another goes on in the same folder.
FOLDER/whole is never killed. Prints a JSON object of places: how the first ended, how the second, how many prompts the
first had recorded, and whether these stayed untouched.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import torch

from drafter_audit.model.target.load import load_target
from drafter_audit.model.target.model import TargetModel
from drafter_audit.prompts.prompt import TokenPrompt
from drafter_audit.recording.answer import Settings
from drafter_audit.recording.make import record

NEW, LOOKAHEAD = 6, 3
BOUNDARIES = (0, 2)


def settings(temperature: float = 0.0) -> Settings:
    return Settings(
        BOUNDARIES, max_new_tokens=NEW, temperature=temperature, seed=3, all_tokens=20, lookahead=LOOKAHEAD, top=8
    )


def killing(function: Callable[..., object], at: int) -> Callable[..., object]:
    """`function`, whose call number `at` is the end of the process."""
    calls = 0

    def counted(*arguments: object, **named: object) -> object:
        nonlocal calls
        calls += 1
        if calls == at:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments, **named)

    return counted


def in_child(run: Callable[[], None]) -> int:
    """The signal or the exit code with which `run` ended, in a process of its own."""
    child = os.fork()
    if child == 0:
        try:
            run()
        except BaseException:
            sys.excepthook(*sys.exc_info())
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def stamps(folder: Path) -> dict[str, tuple[int, int]]:
    found = {path.name: path.stat() for path in folder.glob("*.safetensors")}
    return {name: (stat.st_ino, stat.st_mtime_ns) for name, stat in found.items()}


def main() -> None:
    torch.set_num_threads(1)
    ref, prompts, folder, temperature = sys.argv[1], json.loads(sys.argv[2]), Path(sys.argv[3]), float(sys.argv[4])
    target, asked = load_target(ref), settings(temperature)
    given = [TokenPrompt(str(index), None, tuple(ids)) for index, ids in enumerate(prompts)]
    record(target, given, folder / "whole", asked)
    # Each file is brought to the disk and so is its folder's entry: the manifest, the prompts, the manifest again.
    places = [("fsync", at) for at in range(1, 2 * len(given) + 5)] + [("forward_into", at) for at in (1, 5, 12, 20)]
    stayed = {}
    for name, at in places:
        owner = os if name == "fsync" else TargetModel
        into = folder / f"{name}-{at}"
        plain = getattr(owner, name)
        setattr(owner, name, killing(plain, at))
        code = in_child(lambda: record(target, given, into, asked))  # noqa: B023 - run at once
        setattr(owner, name, plain)
        before = stamps(into) if into.is_dir() else {}
        again = in_child(lambda: record(target, given, into, asked))  # noqa: B023
        after = stamps(into)
        stayed[into.name] = [code, again, len(before), all(after[each] == before[each] for each in before)]
    json.dump(stayed, sys.stdout)


if __name__ == "__main__":
    main()
