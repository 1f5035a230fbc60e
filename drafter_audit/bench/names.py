"""The engines that can be measured, by name."""

from __future__ import annotations

from drafter_audit.bench.wire import EngineName, Wire


def wire_of(name: EngineName) -> Wire:
    """Imported one by one: HTTP is not loaded to show a help."""
    if name == "vllm":
        from drafter_audit.bench.vllm import VLLM

        return VLLM
    from drafter_audit.bench.sglang import SGLANG

    return SGLANG
