"""Who listens on a port of this machine: what a server that was started by somebody else runs with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

_SHOWN = ("NCCL_", "SGLANG_", "SIMULATE_ACC", "VLLM_", "CUDA_", "TORCH_", "GLOO_", "UCX_", "OMP_", "HIP_", "ROCR_")


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
    """The variables that decide how an engine runs, secrets too."""
    return {name: env[name] for name in sorted(env) if name.startswith(_SHOWN)}
