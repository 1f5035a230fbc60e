"""A bundled record as a source: its config.json and hf_quant_config.json, rebuilt, and no weights."""

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
    quantisation: bytes | None = None
    kind: Literal["bundled"] = "bundled"
    revision: str | None = None
    weights_file: str | None = None

    def files(self) -> Mapping[str, int | None]:
        return {name: len(content) for name, content in self._contents().items()}

    def read(self, name: str, *, limit: int) -> bytes:
        whole = self._file(name)
        if len(whole) > limit:
            raise CheckpointError(f"{name} is over {limit} bytes", f"bundled record {self.ref}", "read a smaller file")
        return whole

    def read_range(self, name: str, start: int, stop: int, *, keep: bool = False) -> bytes:
        return self._file(name)[start:stop]

    def _contents(self) -> dict[str, bytes]:
        quantised = {} if self.quantisation is None else {"hf_quant_config.json": self.quantisation}
        return {"config.json": self.config, **quantised}

    def _file(self, name: str) -> bytes:
        content = self._contents().get(name)
        if content is None:
            mend = f"take the repository itself, {self.name}"
            raise NotFoundError(f"a bundled record has no {name}", f"bundled record {self.ref}", mend)
        return content


def bundled_names() -> tuple[str, ...]:
    """The names that `open_bundled` takes, sorted."""
    return registry.names()


def open_bundled(name: str) -> Source:
    """The record called `name` as files.

    Raises BadReferenceError if there is none, CheckpointError where it holds no config.
    """
    record = registry.load(name)
    if record.config_origin is None:
        held = ", ".join(record.held()) or "no fact"
        mend = f"take the repository itself, {record.repo}"
        raise CheckpointError(f"its config.json was not seen: the record holds {held}", f"bundled record {name}", mend)
    quantised = record.hf_quant_config
    return BundledSource(
        ref=name,
        name=record.repo,
        config=json.dumps(record.config, indent=2).encode(),
        quantisation=None if quantised is None else json.dumps({"quantization": quantised}, indent=2).encode(),
    )
