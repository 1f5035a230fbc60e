"""A target that an engine runs, as its files describe it: nothing of it is loaded here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from drafter_audit.checkpoint.config import read_config
from drafter_audit.drafter.config_view import ConfigView
from drafter_audit.drafter.target import UNQUANTISED, describe_target
from drafter_audit.errors import CannotRunError, UsageError
from drafter_audit.model.target.sizes import TargetSizes
from drafter_audit.model.target.stated import end_ids
from drafter_audit.sources.open import open_source
from drafter_audit.sources.reference import parse_reference

_DTYPES = ("float32", "bfloat16", "float16")

_WITHOUT_EMBEDDING = ("deepseek_v2", "deepseek_v3", "deepseek_v32", "kimi_k2", "kimi_k25")
"""Families of which vLLM 0.32 cannot give boundary 0: there its forward adds a residual that is not there yet
(model_executor/models/deepseek_v2.py, DeepseekV2Model.forward; run for deepseek_v3)."""


@dataclass(frozen=True)
class ServedTarget(TargetSizes):
    """A target's sizes, by its config alone, and what an engine is told of it.

    `path` is what it is given: a folder, or a repository that it fetches at `revision`. `own_dtype` is the
    checkpoint's, "auto" where it says none; `asked_dtype` goes before it. Raises UsageError for an `asked_dtype` that
    no engine runs.
    """

    path: str
    revision: str | None
    own_dtype: str
    quantized: bool
    end_ids: tuple[int, ...]
    model_types: tuple[str, ...] = ()
    asked_dtype: str | None = None

    def __post_init__(self) -> None:
        if self.asked_dtype not in (None, *_DTYPES):
            raise UsageError(f"no dtype {self.asked_dtype!r}", "--dtype", f"name one of {', '.join(_DTYPES)}")

    @property
    def dtype(self) -> str:
        """In which the target is expected to run: the engine says in which it does."""
        return self.asked_dtype or (self.own_dtype if self.own_dtype in _DTYPES else "float32")

    @property
    def engine_dtype(self) -> str:
        """What the engine is told; left to itself it would cast float32 to 16 bits."""
        return self.asked_dtype or self.own_dtype

    @property
    def cpu_dtype(self) -> str:
        """The same for a CPU, by the rule for targets that run here."""
        return self.asked_dtype or (self.own_dtype if self.quantized else "float32")

    @property
    def notes(self) -> tuple[str, ...]:
        return () if self.end_ids else ("no file states an end token: its texts end at the cap alone",)

    def given(self, boundaries: Sequence[int], *, named: bool) -> tuple[int, ...]:
        """Those of `boundaries` that the engine can give. Raises UsageError where one that it cannot was `named`."""
        lacks = any(each in _WITHOUT_EMBEDDING for each in self.model_types)
        if lacks and named and 0 in boundaries:
            what = f"vLLM gives no boundary 0 of a {self.model_types[-1]}"
            raise UsageError(what, "--boundaries", "leave 0 out: it is the embedding's output")
        return tuple(boundary for boundary in boundaries if boundary or not lacks)


def served_target(ref: str, dtype: str | None = None) -> ServedTarget:
    """The target `ref` as its files tell it, to run in `dtype`. Raises CannotRunError where they do not tell all, and
    what opening a reference raises."""
    source = open_source(ref)
    if source.kind == "bundled" or source.weights_file or (source.kind == "hub" and parse_reference(ref).path):
        raise CannotRunError("an engine loads a folder, or a whole repository", ref, "name one of them with --target")
    found = describe_target(source, ref=ref, said_by="--target")
    view = ConfigView(read_config(source), ref)
    if found.num_layers is None or found.hidden_size is None or found.vocab_size is None:
        raise CannotRunError("its config tells no layers, width or vocabulary", ref, "name a language model")
    return ServedTarget(
        ref=ref,
        path=source.name,
        revision=source.revision,
        own_dtype=_dtype(view),
        quantized=found.quantization != UNQUANTISED,
        num_layers=found.num_layers,
        hidden_size=found.hidden_size,
        vocab_size=found.vocab_size,
        end_ids=end_ids(source, view),
        max_positions=found.max_position_embeddings,
        model_types=found.model_types,
        asked_dtype=dtype,
    )


def _dtype(view: ConfigView) -> str:
    said = view.get("dtype") or view.get("torch_dtype") or "auto"
    return str(said).removeprefix("torch.")
