"""Who listens on a port of this machine: what a server that was started by somebody else runs with."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_SHOWN = ("NCCL_", "SGLANG_", "SIMULATE_ACC", "VLLM_", "CUDA_", "TORCH_", "GLOO_", "UCX_", "OMP_", "HIP_", "ROCR_")
_SECRET = ("KEY", "TOKEN", "SECRET", "PASSWORD")
_SECRET_PARTS = frozenset(_SECRET)


@dataclass(frozen=True)
class Listener:
    args: tuple[str, ...]
    env: Mapping[str, str]


def listener(port: int, engine: str) -> Listener | None:
    """The process behind `port` where it can be seen and its command line names `engine`; else None."""
    import psutil

    try:
        pids = [c.pid for c in psutil.net_connections("tcp") if c.status == psutil.CONN_LISTEN and c.laddr.port == port]
        for process in (psutil.Process(pid) for pid in pids if pid is not None):
            args = tuple(process.cmdline())
            env = process.environ()
            if env and len(args) > 1 and any(engine in arg for arg in args):  # else it has written over them
                return Listener(args, env)
    except (psutil.Error, OSError):  # another user's
        return None
    return None


def telling(env: Mapping[str, str]) -> dict[str, str]:
    """The variables that decide how an engine runs, without secrets."""
    return {
        name: value
        for name, value in sorted(env.items())
        if name.startswith(_SHOWN) and not any(word in name for word in _SECRET)
    }


def without_secrets(args: Sequence[str]) -> tuple[str, ...]:
    """A command line with what its secret options hold left out, such as --api-key, which both engines take.

    >>> without_secrets(["--api-key", "a", "--admin_api_key=b", "--tokenizer", "c"])
    ('--api-key', '***', '--admin_api_key=***', '--tokenizer', 'c')
    """
    shown, hidden = [], False
    for arg in args:
        is_option = arg.startswith("--")
        name, has_value, _ = arg.partition("=")
        secret = is_option and not _SECRET_PARTS.isdisjoint(re.split("[-_]", name.upper()))
        shown.append(f"{name}=***" if secret and has_value else "***" if hidden and not is_option else arg)
        hidden = not has_value if secret else hidden and not is_option
    return tuple(shown)
