"""The processes that torchrun starts to run one target together, and how they end when one of them cannot go on."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, redirect_stdout
from datetime import timedelta
from typing import NoReturn, TypeVar

import torch
import torch.distributed as dist
from safetensors import SafetensorError
from torch import Tensor

from drafter_audit.errors import (
    EXIT_CHECK_FAILED,
    EXIT_NOT_MEASURED,
    EXIT_OK,
    AuditError,
    CannotRunError,
    RankError,
    lacks_memory,
)
from drafter_audit.ranks import Rank

TIMEOUT_S = 1800.0
"""How long a rank waits for the others: longer than ranks part while they load a target of terabytes from one disk."""

Value = TypeVar("Value")

_GONE = ("Connection closed by peer", "Connection reset", "Broken pipe", "Socket closed", "unhandled system error")
_LATE = ("Timed out", "timed out", "timeout")


class Ranks(Rank):
    """The processes that run one target, as this one sees them."""

    def start(self, timeout_s: float = TIMEOUT_S) -> None:
        """Meets the other ranks: over NCCL on GPUs, gloo on CPUs. A collective that waits longer than `timeout_s` ends
        this rank. Raises RankError where they do not meet."""
        if self.size == 1 or dist.is_initialized():
            return
        gpu = torch.cuda.is_available()
        device = torch.device("cuda", self.local) if gpu else None
        if device is not None:
            torch.cuda.set_device(device)
        with failures("torchrun"):
            wait = timedelta(seconds=timeout_s)
            dist.init_process_group("nccl" if gpu else "gloo", timeout=wait, device_id=device)

    def same(self, tensor: Tensor, device: torch.device) -> Tensor:
        """Rank 0's `tensor`, on every rank, on the CPU; `device` is where ranks exchange. Raises RankError."""
        if self.size == 1:
            return tensor.cpu()
        shared = tensor.to(device).contiguous()
        with failures("torchrun"):
            dist.broadcast(shared, src=0)
            return shared.cpu()

    def told(self, value: Value | None) -> Value | None:
        """Rank 0's `value`, on every rank: of the others each gives None, and waits. Raises RankError."""
        if self.size == 1:
            return value
        shared = [value]
        with failures("torchrun"):
            dist.broadcast_object_list(shared, src=0)
        return shared[0]


ALONE = Ranks()


def run_ranks(main: Callable[[], int]) -> NoReturn:
    """Runs `main` as one rank, and ends the process with the exit code that it returns, 3 where it raises.

    Rank 0 alone has a stdout. A rank that failed ends at once, without the farewell that would wait for the others;
    torchrun then ends them. That a check failed is no failure of a rank: rank 0 alone says so, when it has written.
    """
    first = Ranks.here().first
    try:
        with nullcontext(sys.stdout) if first else open(os.devnull, "w") as stdout, redirect_stdout(stdout):
            code = main()
    except Exception:  # a fault of the program's own: its traceback is the reason
        sys.excepthook(*sys.exc_info())
        _end(EXIT_NOT_MEASURED)
    if code not in (EXIT_OK, EXIT_CHECK_FAILED):
        _end(code)
    if dist.is_initialized():
        dist.destroy_process_group()
    sys.exit(code if first else EXIT_OK)


def _end(code: int) -> NoReturn:
    sys.stderr.flush()
    sys.stdout.flush()
    os._exit(code)


@contextmanager
def failures(where: str) -> Iterator[None]:
    """What torch raises inside for too little memory, or for ranks that are gone or late, leaves as an AuditError."""
    try:
        yield
    except (torch.OutOfMemoryError, MemoryError, RuntimeError, OSError, SafetensorError) as error:
        told = _told(error, where)
        if told is None:
            raise
        raise told from error


def _told(error: Exception, where: str) -> AuditError | None:
    """The failure in our words, None for one that is none of these."""
    text = str(error)
    if isinstance(error, torch.OutOfMemoryError) or lacks_memory(error):
        mend = "spread it over more devices (--device-map auto, torchrun), offload it, or quantise it"
        return CannotRunError("too little memory", where, mend)
    if isinstance(error, OSError | SafetensorError):  # of a file
        return None
    if not dist.is_available() or not (dist.is_initialized() or isinstance(error, dist.DistError)):  # or not yet met
        return None
    if any(words in text for words in _LATE):
        mend = "look for the first reason among the ranks' lines, or give them more time"
        return RankError("another rank did not answer in time", where, mend)
    if isinstance(error, dist.DistError) or any(words in text for words in _GONE):
        return RankError("another rank is gone", where, "its own line, or the system's log, says why")
    return None
