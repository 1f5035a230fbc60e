"""A prompt file, from the bundled pack, this machine or the Hub, becomes a PromptSet."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from drafter_audit.errors import NotFoundError, UsageError
from drafter_audit.prompts.prompt import PromptSet
from drafter_audit.prompts.rows import parse_rows
from drafter_audit.sources.local import LocalSource
from drafter_audit.sources.reference import is_url, parse_dataset

if TYPE_CHECKING:
    from drafter_audit.sources.hub import HubSource

PACK = "pack"
MAX_BYTES = 64 * 2**20

_JSONL = (".jsonl", ".ndjson")
_FORM = "give a JSONL file, or hf://datasets/org/name[@revision][/file.jsonl]"
_CONVERT = 'write one with datasets.load_dataset(NAME, split="test").to_json("prompts.jsonl") and name that'


def read_prompts(where: str | None) -> PromptSet:
    """The prompts of the file `where`: a path, `hf://datasets/...`, a dataset's URL; None or "pack": the bundled pack.

    An existing path wins. Raises UsageError with the line for a row that is none and for a file without rows,
    BadReferenceError, NotFoundError; CheckpointError above 64 MiB; what the Hub raises.
    """
    name, data = _file(PACK if where is None else where)
    prompts, notes = parse_rows(data, name)
    return PromptSet(name, sha256(data).hexdigest(), prompts, notes)


def _file(where: str) -> tuple[str, bytes]:
    """The file's name, as results show it, and what it holds."""
    path = Path(where).expanduser()
    if where and path.exists():
        return where, _local(path)
    if where == PACK:
        return PACK, _local(Path(__file__).with_name("pack.jsonl"))
    if is_url(where):
        return _dataset(where)
    raise NotFoundError("no such prompt file", repr(where), _FORM)


def _local(path: Path) -> bytes:
    if path.is_dir():
        raise UsageError("a folder, not a prompt file", str(path), _FORM)
    return LocalSource(str(path), path.parent).read(path.name, limit=MAX_BYTES)


def _dataset(where: str) -> tuple[str, bytes]:
    from drafter_audit.sources.hub import open_hub  # a local file must not pay for the Hub's client

    source = open_hub(parse_dataset(where))
    file = _chosen(source)
    data = source.read(file, limit=MAX_BYTES)
    folder = source.folder
    return f"hf://datasets/{source.name}@{source.revision}/{folder}{'/' if folder else ''}{file}", data


def _chosen(source: HubSource) -> str:
    """The file that the reference names, else the one JSONL file of its folder; UsageError for none or several."""
    named = PurePosixPath(source.reference.path).name
    alone = named in source.files()
    files = [named] if alone else sorted(source.files())
    found = [file for file in files if file.lower().endswith((*_JSONL, ".json") if alone else _JSONL)]
    if not found:
        held = f"{len(files)} files, {', '.join(files[:3])}" if files else "no files"
        raise UsageError(f"no JSONL file in the dataset, which has {held}", source.ref, _CONVERT)
    if len(found) > 1:
        mend = f"name one: hf://datasets/{source.name}/{found[0]}"
        raise UsageError(f"{len(found)} JSONL files ({', '.join(found[:3])})", source.ref, mend)
    return found[0]
