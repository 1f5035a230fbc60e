"""Placeholder until its rules are read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from drafter_audit.drafter.spec import DrafterSpec
from drafter_audit.drafter.wiring import Wiring
from drafter_audit.engines.base import Effect, Release, Rule

RULES: tuple[Rule, ...] = ()


@dataclass(frozen=True)
class _Engine:
    name: str = "tensorrt-llm"
    oldest: str = "1.0.0"
    newest: str = "1.2.1"
    rules: tuple[Rule, ...] = RULES

    def runners(self, version: str) -> tuple[str | None, ...]:
        return (None,)

    def effect(self, spec: DrafterSpec, release: Release) -> Effect:
        return Effect(None, None)

    def edit(self, spec: DrafterSpec, release: Release, wanted: Wiring) -> Mapping[str, Any]:
        return {}


TENSORRT_LLM = _Engine()
