"""One prompt's file: safetensors, with a checksum of each tensor, so that what is read can be checked on its own.

Its metadata is one JSON text under one key: the library writes several keys in no fixed order, and the same answer must
give the same bytes.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from drafter_audit.checkpoint.header import LENGTH_BYTES, Header, header_end, parse_header
from drafter_audit.checkpoint.strict_json import strict_loads
from drafter_audit.errors import HeaderError, RecordingError
from drafter_audit.recording.manifest import Answer, filled
from drafter_audit.recording.recording import RecordedPrompt
from drafter_audit.recording.whole_file import whole_file

TABLES = {
    "tokens": torch.int64,
    "top_ids": torch.int32,
    "top_logits": torch.float32,
    "logsumexp": torch.float32,
    "gaps": torch.float32,
}
"""What is stored beside the states, and in which type: ids in 32 bits, which halves their table."""

_NORMED = "state.last_normed"
_KEY = "recording"
_FACTS = ("id", "category", "prompt_length", "answer_length", "boundaries", "capped", "degenerate")
_MEND = "delete that file and run the command that made the recording again"


def write_prompt(path: Path, prompt: RecordedPrompt) -> None:
    """The file of `prompt` at `path`, whole or not at all. Raises AuditError where the disk refuses."""
    tensors = {name: getattr(prompt, name).to(dtype).contiguous() for name, dtype in TABLES.items()}
    states = zip(prompt.boundaries, prompt.states, strict=True)
    tensors |= {_name(boundary): state.contiguous() for boundary, state in states}
    if prompt.last_normed is not None:
        tensors[_NORMED] = prompt.last_normed.contiguous()
    facts: dict[str, Any] = {name: getattr(prompt, name) for name in _FACTS}
    facts["crc32"] = {name: _checksum(tensor) for name, tensor in tensors.items()}
    with whole_file(path) as part:
        save_file(tensors, part, {_KEY: json.dumps(facts)})


def read_prompt(path: Path, boundaries: Sequence[int] | None = None) -> RecordedPrompt:
    """What `write_prompt` was given; with `boundaries` those states alone, in that order.

    Raises RecordingError for a boundary that is not there, and for a damaged file.
    """
    try:
        with safe_open(path, framework="pt") as file:
            answer, checksums = _facts(file.metadata() or {}, path)
            asked = _asked(answer, boundaries, path)
            tables = {name: _checked(file, name, checksums, path) for name in TABLES}
            states = _states(file, asked, checksums, path)
            behind = _NORMED in checksums and max(answer.boundaries) in asked  # boundary L, where it is there
            normed = _checked(file, _NORMED, checksums, path) if behind else None
    except (OSError, SafetensorError) as error:
        raise RecordingError(f"it cannot be read: {error}", str(path), _MEND) from error
    tables["top_ids"] = tables["top_ids"].long()
    facts: dict[str, Any] = {name: getattr(answer, name) for name in _FACTS}
    return RecordedPrompt(**{**facts, "boundaries": asked, "states": states, "last_normed": normed, **tables})


def describe_file(path: Path) -> Answer:
    """What the manifest says of the file at `path`, from its header alone. Raises RecordingError for a damaged one."""
    header = _header(path)
    answer, _ = _facts(header.metadata, path)
    _check_lengths(header, answer, path)
    return answer


def _name(boundary: int) -> str:
    return f"state.{boundary}"


def _checksum(tensor: Tensor) -> int:
    return zlib.crc32(tensor.reshape(-1).view(torch.uint8).numpy().data)


def _facts(metadata: Mapping[str, str], path: Path) -> tuple[Answer, dict[str, int]]:
    """What the file says of itself, and the checksum of each tensor."""
    try:
        facts = strict_loads(metadata[_KEY])
        checksums = dict(facts.pop("crc32"))
    except (KeyError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise RecordingError("a file that is no part of a recording", str(path), _MEND) from error
    return filled(Answer, {"file": path.name, "nbytes": path.stat().st_size, **facts}, str(path)), checksums


def _asked(answer: Answer, boundaries: Sequence[int] | None, path: Path) -> tuple[int, ...]:
    asked = answer.boundaries if boundaries is None else tuple(boundaries)
    missing = [str(boundary) for boundary in asked if boundary not in answer.boundaries]
    if missing:
        told = f"boundary {', '.join(missing)} was not recorded, only {', '.join(map(str, answer.boundaries))}"
        raise RecordingError(told, str(path), "record again with those boundaries")
    return asked


def _checked(file: Any, name: str, checksums: Mapping[str, int], path: Path) -> Tensor:  # noqa: ANN401 - untyped
    tensor: Tensor = file.get_tensor(name)
    if _checksum(tensor) != checksums.get(name):
        raise RecordingError(f"damaged: {name} is not what was written", str(path), _MEND)
    return tensor


def _states(file: Any, asked: Sequence[int], checksums: Mapping[str, int], path: Path) -> Tensor:  # noqa: ANN401
    """[boundaries, rows, hidden], filled one by one: no second copy of them all is made."""
    states = torch.empty(0)
    for slot, boundary in enumerate(asked):
        state = _checked(file, _name(boundary), checksums, path)
        if not slot:
            states = state.new_empty((len(asked), *state.shape))
        states[slot] = state
    return states


def _header(path: Path) -> Header:
    try:
        nbytes = path.stat().st_size
        with path.open("rb") as file:
            head = file.read(LENGTH_BYTES)
            end = header_end(head, nbytes, str(path))
            return parse_header(head + file.read(end - len(head)), nbytes, str(path))
    except OSError as error:
        raise RecordingError(f"it cannot be read: {error.strerror}", str(path), _MEND) from error
    except HeaderError as error:
        raise RecordingError(error.what, error.where, _MEND) from error


def _check_lengths(header: Header, answer: Answer, path: Path) -> None:
    """The tensors are those that the answer has, each as long as it must be."""
    shapes = {entry.name: entry.shape for entry in header.entries}
    ahead = (shapes.get("gaps") or (0,))[0] - answer.answer_length
    text = answer.prompt_length + answer.answer_length
    rows = {"tokens": text + ahead, "gaps": answer.answer_length + ahead}
    rows |= dict.fromkeys(("top_ids", "top_logits", "logsumexp"), answer.answer_length)
    rows |= dict.fromkeys((*map(_name, answer.boundaries), *(shapes.keys() & {_NORMED})), text - 1)
    found = {name: shape[0] if shape else None for name, shape in shapes.items()}
    if found != rows or ahead < 0:
        wrong = sorted(name for name in rows.keys() | found.keys() if rows.get(name) != found.get(name))
        raise RecordingError(f"tensors missing or of another length: {', '.join(wrong)}", str(path), _MEND)
