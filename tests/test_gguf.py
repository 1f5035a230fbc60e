"""GGUF headers, against a drafter that llama.cpp's own package wrote and read (tests/data/gguf/make.py.txt)."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from drafter_audit.audit.compare import compare
from drafter_audit.audit.rules import find
from drafter_audit.checkpoint.gguf import _TYPES, read_gguf
from drafter_audit.drafter.open import open_drafter
from drafter_audit.errors import CheckpointError, HeaderError
from drafter_audit.sources.open import open_source
from tests.checkpoints import write_peer

FOLDER = Path(__file__).parent / "data" / "gguf"
EXPECTED: dict[str, Any] = json.loads((FOLDER / "expected.json").read_text())
WHOLE = (FOLDER / "drafter.gguf").read_bytes()


def written(folder: Path, data: bytes, name: str = "drafter.gguf") -> str:
    (folder / name).write_bytes(data)
    return str(folder / name)


def test_tensors_are_those_that_its_own_reader_finds() -> None:
    header = read_gguf(open_source(str(FOLDER / "drafter.gguf")), "drafter.gguf")
    found = {
        name: {"dtype": dtype, "shape": list(shape), "start": start, "nbytes": nbytes}
        for name, dtype, shape, start, nbytes, _ in header.entries
    }
    assert found == EXPECTED["tensors"]
    assert json.loads(header.metadata["eagle3.target_layers"]) == [2, 4, 5]
    assert json.loads(header.metadata["tokenizer.ggml.tokens"]) == {"length": 96}


def test_types_are_those_of_its_own_package() -> None:
    never_stored = {9}  # Q8_1 exists in memory only
    theirs = {int(kind): tuple(sizes) for kind, sizes in EXPECTED["types"].items() if int(kind) not in never_stored}
    assert theirs == _TYPES


@pytest.mark.parametrize("ref", [str(FOLDER / "drafter.gguf"), None], ids=["file", "folder"])
def test_a_drafter_is_told_and_counted(tmp_path: Path, ref: str | None) -> None:
    if ref is None:
        written(tmp_path, WHOLE)
    spec = open_drafter(ref or str(tmp_path))
    assert (spec.kind.name, spec.dialect.name) == ("eagle3", "gguf")
    assert (spec.aux_layers.declared, spec.aux_layers.boundaries) == ((2, 4, 5), (2, 4, 5))
    body = 32 * 96 + 64 * 64 + 2 * 32 * 64 + 32 * 64 + 3 * 64 * 32 + 4 * 32
    counted = spec.parameters
    assert (counted.trainable, counted.unknown, counted.buffers) == (body, 48 * 32, 48)
    assert (counted.config_implied, counted.borrowed) == (body + 48 * 32, 96 * 32)
    assert counted.nbytes == sum(tensor["nbytes"] for tensor in EXPECTED["tensors"].values())
    assert [finding.code for finding in find(spec)] == ["TARGET-UNKNOWN"]


def test_values_are_not_compared(tmp_path: Path) -> None:
    ref = written(tmp_path, WHOLE)
    with pytest.raises(CheckpointError, match="GGUF"):
        compare([ref, ref], weights=True)
    target = write_peer(tmp_path / "target", "tiny_llama")
    assert "GGUF" in (open_drafter(ref, target=target).evidence_none or "")


@pytest.mark.parametrize("end", [0, 3, 4, 8, 23, 24, 100, 700, 1500, len(WHOLE) - 1])
def test_a_file_that_was_cut(tmp_path: Path, end: int) -> None:
    with pytest.raises(HeaderError) as failure:
        open_drafter(written(tmp_path, WHOLE[:end]))
    assert "drafter.gguf" in str(failure.value)


HEAD = struct.pack("<4sIQQ", b"GGUF", 3, 0, 1) + struct.pack("<Q", 1) + b"k"


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"GGML" + bytes(40), "does not begin with GGUF"),
        (struct.pack("<4sIQQ", b"GGUF", 1, 0, 0), "version 1"),
        (struct.pack(">4sIQQ", b"GGUF", 3, 0, 0), "little endian"),
        (HEAD + struct.pack("<I", 99), "unknown type 99"),
        (HEAD + struct.pack("<IQ", 8, 2**63), "are claimed"),
        (HEAD + struct.pack("<IIQ", 9, 0, 2**62), "an array of"),
        (HEAD + struct.pack("<IIQ", 9, 8, 2**62), "cut short"),
        (HEAD + struct.pack("<IIQIQIQIQIQ", 9, 9, 1, 9, 1, 9, 1, 9, 1, 9, 1), "unknown type 9"),
    ],
    ids=["magic", "version", "big endian", "value type", "string", "array", "array of strings", "deep arrays"],
)
def test_a_file_that_is_wrong(tmp_path: Path, data: bytes, said: str) -> None:
    with pytest.raises(HeaderError, match=said):
        open_drafter(written(tmp_path, data))


def test_every_flipped_byte_of_a_header_is_read_or_refused(tmp_path: Path) -> None:
    end = min(tensor["start"] for tensor in EXPECTED["tensors"].values())
    for at in range(0, end, 7):
        ref = written(tmp_path, WHOLE[:at] + bytes([WHOLE[at] ^ 0xFF]) + WHOLE[at + 1 :])
        try:
            read_gguf(open_source(ref), "drafter.gguf")
        except HeaderError:
            continue


def test_two_files_are_a_choice(tmp_path: Path) -> None:
    written(tmp_path, WHOLE, "a-F16.gguf")
    written(tmp_path, WHOLE, "a-Q8.gguf")
    with pytest.raises(CheckpointError, match=r"2 GGUF files .* name one"):
        open_drafter(str(tmp_path))


def test_a_header_above_one_read_is_followed(tmp_path: Path) -> None:
    """A tokenizer of 2.5 MB before the tensors: 40,000 tokens of 64 characters."""
    text = b"x" * 64
    tokens = struct.pack("<IIQ", 9, 8, 40_000) + (struct.pack("<Q", 64) + text) * 40_000
    key = b"tokenizer.ggml.tokens"
    tensor = struct.pack("<Q", 1) + b"w" + struct.pack("<IQQIQ", 2, 3, 2, 0, 0)
    head = struct.pack("<4sIQQQ", b"GGUF", 3, 1, 1, len(key)) + key + tokens + tensor
    ref = written(tmp_path, head + bytes(-len(head) % 32) + bytes(24))
    (entry,) = read_gguf(open_source(ref), "drafter.gguf").entries
    assert (entry.shape, entry.nbytes) == ((2, 3), 24)
