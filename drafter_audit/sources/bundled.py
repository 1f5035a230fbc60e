"""A bundled record as a source: its config.json, rebuilt, and no weights."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from drafter_audit.errors import CheckpointError, NotFoundError
from drafter_audit.facts import registry
from drafter_audit.sources.base import Source


@dataclass(frozen=True)
class BundledSource:
    """The files of one record; `name` is the repository it describes, so that both are told as one."""

    ref: str
    name: str
    config: bytes
    kind: Literal["bundled"] = "bundled"
    revision: str | None = None
    weights_file: str | None = None

    def files(self) -> Mapping[str, int | None]:
        return {"config.json": len(self.config)}

    def read(self, name: str, *, limit: int) -> bytes:
        whole = self._file(name)
        if len(whole) > limit:
            raise CheckpointError(f"{name} is over {limit} bytes", f"bundled record {self.ref}", "read a smaller file")
        return whole

    def read_range(self, name: str, start: int, stop: int, *, keep: bool = False) -> bytes:
        return self._file(name)[start:stop]

    def _file(self, name: str) -> bytes:
        if name != "config.json":
            mend = f"take the repository itself, {self.name}"
            raise NotFoundError(f"a bundled record has no {name}", f"bundled record {self.ref}", mend)
        return self.config


def bundled_names() -> tuple[str, ...]:
    """The names that `open_bundled` takes, sorted."""
    return registry.names()


def open_bundled(name: str) -> Source:
    """The record called `name` as files. Raises BadReferenceError if there is none."""
    record = registry.load(name)
    return BundledSource(ref=name, name=record.repo, config=json.dumps(record.config, indent=2).encode())
