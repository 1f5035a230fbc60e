"""One rank that runs targets, as `torch.distributed.run` starts it: `python -m tests.target_rank FAULT REF...`.

Rank 0 alone writes, into each REF: its greedy tokens and states, and how many weights it holds. FAULT is what befalls
rank 1 before it joins the others, or "none".
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import time
from pathlib import Path

import torch
from safetensors.torch import save_file

from drafter_audit.errors import AuditError
from drafter_audit.model.target.load import load_target
from drafter_audit.model.target.ranks import Ranks, run_ranks

PROMPT, NEW, BOUNDARIES = list(range(9, 26)), 8, (0, 1, 2, 3, 4)
LONG = PROMPT * 500
TIMEOUT_S = 5.0  # of a collective
RESULT = "from-ranks.safetensors"


def main() -> None:
    torch.set_num_threads(1)
    fault, *refs = sys.argv[1:]
    if fault == "late" and Ranks.here().rank == 1:
        _asleep()
    for ref in refs:
        target = load_target(ref, ranks_timeout_s=TIMEOUT_S)
        if target.ranks.rank == 1:
            FAULTS[fault]()
        made = target.greedy(LONG if fault == "short_of_memory" else PROMPT, NEW, BOUNDARIES)
        if target.ranks.first:
            held = sum(getattr(each, "_local_tensor", each).numel() for each in target.model.parameters())
            save_file({"tokens": made.tokens, "states": made.states, "held": torch.tensor(held)}, Path(ref, RESULT))


def _killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _asleep() -> None:
    time.sleep(300)


def _refused() -> None:
    raise AuditError("the disk is full", "/somewhere", "make room")


def _short_of_memory() -> None:
    """What is in use now is all that there is."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


FAULTS = {
    "none": lambda: None,
    "killed": _killed,
    "asleep": _asleep,
    "refused": _refused,
    "short_of_memory": _short_of_memory,
}

if __name__ == "__main__":
    run_ranks(main)
