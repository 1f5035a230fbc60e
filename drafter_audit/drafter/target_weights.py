"""Where a target's embedding and head lie: the headers of the shards that hold them are read, and no others."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from drafter_audit.checkpoint.config import read_config
from drafter_audit.checkpoint.header import Header
from drafter_audit.checkpoint.load import checkpoint_files, read_header
from drafter_audit.checkpoint.shard_index import read_index
from drafter_audit.checkpoint.table import TensorInfo, TensorTable
from drafter_audit.drafter.config_view import ConfigView
from drafter_audit.drafter.packing import Packing
from drafter_audit.errors import CheckpointError
from drafter_audit.sources.base import Source, SourceKind
from drafter_audit.sources.names import leaves_folder

# Plain models, then the multimodal wrappers of transformers 5 and 4, GPT-2's kin, and Meta's own layout.
EMBEDDINGS = (
    "model.embed_tokens.weight",
    "model.language_model.embed_tokens.weight",
    "language_model.model.embed_tokens.weight",
    "thinker.model.embed_tokens.weight",
    "transformer.wte.weight",
    "tok_embeddings.weight",
    "embed_tokens.weight",
)
HEADS = ("lm_head.weight", "language_model.lm_head.weight", "thinker.lm_head.weight", "output.weight")

EMBEDDING, HEAD = "embed_tokens.weight", "lm_head.weight"  # a drafter's canonical names for them

PACKED = ("weight_packed", "qweight")  # what the weights of a quantised module are called

_USUAL_INDEX = "model.safetensors.index.json"
_READ_WHOLE_UP_TO = 1_000_000  # of an index; one of 139,000 tensors has 13 MB
# At both ends of a larger one: writers sort by name or by layer, so embedding and head stand near one of them.
_PEEK, _LONG_PEEK = 131_072, 1_048_576


@dataclass(frozen=True)
class CountedSource:
    """A source whose reads are counted and stop at `limit` bytes, if there is one. A file read whole is read once.

    What is asked for is counted, whether it then comes from a cache or not: so every run reads the same rows.
    """

    inner: Source
    limit: int = sys.maxsize
    _spent: list[int] = field(default_factory=list)
    _whole: dict[str, bytes] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def ref(self) -> str:
        return self.inner.ref

    @property
    def kind(self) -> SourceKind:
        return self.inner.kind

    @property
    def name(self) -> str:
        return self.inner.name

    @property
    def revision(self) -> str | None:
        return self.inner.revision

    @property
    def weights_file(self) -> str | None:
        return self.inner.weights_file

    @property
    def spent(self) -> int:
        """Bytes asked for so far; what a file's end cut short is counted in full."""
        return sum(self._spent)

    def files(self) -> Mapping[str, int | None]:
        return self.inner.files()

    def read(self, name: str, *, limit: int) -> bytes:
        """The whole file. Raises CheckpointError, before it is read, where it would pass the limit."""
        if name not in self._whole:
            self.take(self.files().get(name) or 0)
            self._whole[name] = self.inner.read(name, limit=min(limit, self.limit))
        return self._whole[name]

    def read_range(self, name: str, start: int, stop: int, *, keep: bool = False) -> bytes:
        """Bytes `[start, stop)`. Raises CheckpointError where they would pass the limit."""
        self.take(min(stop, self.files().get(name) or stop) - start)
        return self.inner.read_range(name, start, stop, keep=keep)

    def beside(self, other: Source) -> CountedSource:
        """`other`, its reads on the same account."""
        return replace(self, inner=other, _whole={})

    def up_to(self, limit: int) -> CountedSource:
        """The same, on the same account, stopped at `limit` bytes in all."""
        return replace(self, limit=limit)

    def take(self, count: int) -> None:
        """Books `count` bytes. Raises CheckpointError where they would pass the limit."""
        with self._lock:
            if self.spent + count > self.limit:
                what = f"with all that was read of the drafter, evidence would take over {self.limit} bytes"
                raise CheckpointError(what, self.name, "name the one weight file that holds the tensor")
            self._spent.append(max(0, count))


@dataclass(frozen=True)
class Found:
    """A tensor of the target; `packed` says why its bytes are not its values, None where they are."""

    tensor: TensorInfo
    packed: str | None


class TargetWeights:
    """Finds tensors of one target by name. A header is read once."""

    def __init__(self, source: CountedSource) -> None:
        self.source = source
        self._headers: dict[str, Header] = {}

    def find(self, names: Sequence[str]) -> Found | None:
        """The first of `names` that is stored, plain or packed; None where none is. Raises AuditError."""
        spelled = [spelling for name in names for spelling in spellings(name)]
        for file in self._files_to_try(spelled):
            stored = {
                name: TensorInfo(name, dtype, shape, file, start, nbytes, strides)
                for name, dtype, shape, start, nbytes, strides in self._header(file).entries
            }
            name = next((name for name in spelled if name in stored), None)
            if name is not None:
                return Found(stored[name], why_unreadable(stored[name], stored.values()))
        return None

    def _header(self, file: str) -> Header:
        if file not in self._headers:
            self._headers[file] = read_header(self.source, file)
        return self._headers[file]

    def _files_to_try(self, names: Sequence[str]) -> Iterator[str]:
        """Files that may hold one of `names`, the likely ones first; the caller stops at the first that does."""
        size = self.source.files().get(_USUAL_INDEX) if self.source.weights_file is None else None
        if size is not None and size > _READ_WHOLE_UP_TO:
            yield from self._peek(size, names, _PEEK)
            shards = sorted(name for name in self.source.files() if name.endswith(".safetensors") and "/" not in name)
            yield from shards[:1] + shards[-1:]
            yield from self._peek(size, names, _LONG_PEEK)
        files, index = checkpoint_files(self.source)
        if index is None:
            yield from files
            return
        weight_map = read_index(self.source, index).weight_map
        yield from dict.fromkeys(weight_map[name] for name in names if name in weight_map)

    def _peek(self, size: int, names: Sequence[str], length: int) -> Iterator[str]:
        """Shards that the two ends of a large index name; each shard's own header has the last word."""
        for start in (0, max(0, size - length)):
            text = self.source.read_range(_USUAL_INDEX, start, min(size, start + length))
            for name in names:
                entry = re.search(rb'"%s"\s*:\s*"([^"\\]+)"' % re.escape(name).encode(), text)
                file = entry[1].decode(errors="replace") if entry else ""
                if file in self.source.files() and not leaves_folder(file):
                    yield file


def counterpart(weights: TargetWeights, name: str) -> Found | None:
    """The target's tensor for the drafter's `name`, embedding or head, None where it has none under a known name.

    A head that is tied to the embedding is the embedding. Raises AuditError.
    """
    if name == EMBEDDING:
        return weights.find(EMBEDDINGS)
    source = weights.source
    raw = read_config(source) if "config.json" in source.files() else {}
    tied = ConfigView(raw, f"{source.name}: config.json").boolean("tie_word_embeddings")
    head = None if tied else weights.find(HEADS)
    # A model without a head of its own is tied, unless it says that it is not; families differ in the default.
    return weights.find(EMBEDDINGS) if head is None and tied is not False else head


def spellings(name: str) -> tuple[str, ...]:
    """The names under which a weight may be stored, the plain one first.

    >>> spellings("lm_head.weight")
    ('lm_head.weight', 'lm_head.weight_packed', 'lm_head.qweight')
    """
    module = name.removesuffix("weight")
    return (name, *(module + packed for packed in PACKED))


def why_unreadable(tensor: TensorInfo, stored: Iterable[TensorInfo]) -> str | None:
    """Why the bytes of a tensor are not its rows: it is packed, a view, or scales are among those `stored` with it."""
    module, _, last = tensor.name.rpartition(".")
    if tensor.strides is not None:
        return f"{tensor.name} is stored as a view with strides of its own"
    packing = Packing(TensorTable(tuple(each for each in stored if each.name.startswith(f"{module}.")), ()))
    if last in PACKED or tensor.name in packing.weights:
        return f"{tensor.name} is packed"
    scale = min(packing.companions, default=None)
    return f"{tensor.name} is quantised, with {scale}" if scale else None
