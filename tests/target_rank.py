"""One rank of a command that runs targets, as torchrun starts it: `-m tests.target_rank run FAULT REF...`.

Rank 0 alone writes, into each REF: its greedy tokens and states, and how many weights it holds. FAULT is what befalls
rank 1 before it joins the others, or "none".
"""

from __future__ import annotations

import os
import resource
import signal
import time
from dataclasses import replace
from pathlib import Path

import click
import torch
from safetensors.torch import save_file

from drafter_audit.cli import main
from drafter_audit.cli.options import output_options
from drafter_audit.cli.target_options import TargetOptions, target_options
from drafter_audit.errors import EXIT_CHECK_FAILED, AuditError
from drafter_audit.ranks import Rank
from drafter_audit.report.document import Document, Table
from drafter_audit.report.sink import emit, tell

PROMPT, NEW, BOUNDARIES = list(range(9, 26)), 8, (0, 1, 2, 3, 4)
LONG = PROMPT * 500
TIMEOUT_S = 5.0  # of a collective
RESULT = "from-ranks.safetensors"


@click.command()
@click.argument("fault")
@click.argument("refs", nargs=-1)
@target_options
def run(fault: str, refs: tuple[str, ...], target: TargetOptions) -> None:
    torch.set_num_threads(1)
    if fault == "late" and Rank.here().rank == 1:
        _asleep()
    for ref in refs:
        loaded = replace(target, rank_timeout=TIMEOUT_S).load(ref)
        if loaded.ranks.rank == 1:
            FAULTS[fault]()
        made = loaded.greedy(LONG if fault == "short_of_memory" else PROMPT, NEW, BOUNDARIES)
        if loaded.ranks.first:
            held = sum(getattr(each, "_local_tensor", each).numel() for each in loaded.model.parameters())
            save_file({"tokens": made.tokens, "states": made.states, "held": torch.tensor(held)}, Path(ref, RESULT))


@click.command()
@target_options
@output_options
@click.pass_context
def judge(context: click.Context, target: TargetOptions, style: str, output: str | None) -> None:
    """A check that fails, on every rank, while the first one still writes."""
    loaded = target.load()
    if loaded.ranks.first:
        time.sleep(3)
    emit(Document((), Table((), ())), {"ranks": loaded.ranks.size}, style=style, output=output, command=context.obj)
    tell("judged")
    context.exit(EXIT_CHECK_FAILED)


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
    for command in (run, judge):  # here alone: a test that imports this module sees the command line as it is
        main.cli.add_command(command)
    main.run()
