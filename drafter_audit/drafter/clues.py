"""What kinds and dialects are told by: config, tensor names and shapes, never a repository's name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from drafter_audit.checkpoint.table import TensorInfo, TensorTable
from drafter_audit.drafter.config_view import ConfigView
from drafter_audit.drafter.names import canonical, layer_index
from drafter_audit.drafter.packing import Packing
from drafter_audit.drafter.quantization import read_quantization


@dataclass(frozen=True)
class Clues:
    """A config and, where weights were read, the tensors under their canonical names.

    `quant_file` is what hf_quant_config.json holds, empty where there is none or config.json speaks for itself.
    """

    config: ConfigView
    table: TensorTable | None
    metadata: Mapping[str, str]
    quant_file: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def packing(self) -> Packing:
        """What the packed weights hold. Raises ConfigError where the quantisation is declared in a wrong type."""
        return Packing(self.table, read_quantization(self.config, self.quant_file))

    @cached_property
    def tensors(self) -> Mapping[str, TensorInfo]:
        """Canonical name -> header entry, a packed weight under the name it has unpacked (`fc.weight` for
        `fc.weight_packed`); empty where no weights were read. Of two spellings the one without a prefix wins."""
        found: dict[str, TensorInfo] = {}
        packed = self.packing.weights
        plain = {
            tensor.name: packed[tensor.name].name if tensor.name in packed else tensor.name
            for tensor in self.table or ()
        }
        for tensor in sorted(self.table or (), key=lambda tensor: canonical(plain[tensor.name]) != plain[tensor.name]):
            found.setdefault(canonical(plain[tensor.name]), tensor)
        return found

    @property
    def has_weights(self) -> bool:
        return self.table is not None

    def shape(self, name: str) -> tuple[int, ...] | None:
        """The shape of a tensor, of a packed weight the one it has unpacked; None where that is not known."""
        tensor = self.tensors.get(name)
        packed = self.packing.weights.get(tensor.name) if tensor else None
        return packed.shape if packed else tensor.shape if tensor else None

    def dim(self, name: str, axis: int, *, rank: int = 2) -> int | None:
        """One dimension of a tensor, None where it is absent or of another rank."""
        shape = self.shape(name)
        return shape[axis] if shape is not None and len(shape) == rank else None

    def stored(self, *parts: str) -> bool:
        """Whether a canonical name contains one of `parts`."""
        return any(part in name for name in self.tensors for part in parts)

    @cached_property
    def layers(self) -> frozenset[int]:
        """Indices of the decoder layers that are stored."""
        return frozenset(index for name in self.tensors if (index := layer_index(name)) is not None)

    @cached_property
    def first_layer_input(self) -> int | None:
        """Width that layer 0's attention reads: 2 x hidden in an EAGLE-3 drafter, hidden in a plain layer."""
        for projection in ("q_proj", "q_a_proj", "kv_a_proj_with_mqa", "qkv_proj"):
            width = self.dim(f"layers.0.self_attn.{projection}.weight", 1)
            if width is not None:
                return width
        return None
