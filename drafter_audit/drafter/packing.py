"""How many parameters a stored container holds: elements, parameters and bytes of a packed weight are three numbers.

Layouts, [out, in] being the weight's own shape, and where each was read:

- compressed-tensors 0.20 (compressors/*/base.py): weight_packed I32 [out, ceil(in*bits/32)] with weight_scale
  [out, groups]; weight_packed U8 [out, in/2] for NVFP4 and MXFP4, [out, in*3/4] for MXFP6
- GPTQ (auto_gptq 0.7 qlinear_cuda.py): qweight I32 [in*bits/32, out], qzeros [groups, out*bits/32],
  scales [groups, out]
- AWQ (autoawq 0.2 gemm.py, gemv.py): qweight I32 [in, out*bits/32], qzeros [groups, out*bits/32], scales [groups, out];
  version gemv: [out, in*bits/32]
- ModelOpt 0.47 (export/quant_utils.py): weight U8 [out, in/2] with weight_scale F8_E4M3 [out, in/16] (NVFP4);
  weight U8 [out/2, in] with weight_scale [out, groups] (W4A16_AWQ)
- MXFP4 as gpt-oss has it (transformers integrations/mxfp4.py): *_blocks U8 [..., groups, 16], *_scales U8 [..., groups]
- DeepSeek-V4: weight I8 [out, in/2] with scale F8_E8M0 [out, in/32]
- MLX 0.32 (nn/layers/quantized.py): weight U32 [out, in*bits/32], scales [out, groups], biases where it is affine
- bitsandbytes (functional.py quantize_4bit): weight U8 [elements/2, 1] with absmax and quant_map

The two dtypes of one byte per value, F8_* and I8, hold one parameter an element; so do the dtypes F4 and F6_*.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from math import ceil, prod

from drafter_audit.checkpoint.header import DTYPE_BITS
from drafter_audit.checkpoint.table import TensorInfo, TensorTable
from drafter_audit.drafter.quantization import Quantization, Scheme
from drafter_audit.drafter.widths import WIDTHS, Width, width_of

_CONTAINERS = frozenset({"U8", "I32", "U32"})

# Companions of quantised weights, whatever the format: they describe weights, they are none.
_COMPANION = re.compile(
    r"(?:.*_)?(?:(?:weight|input|output|act|q|k|v|kv|prob|pre_quant)_(?:global_)?scale(?:_inv|_2|_ub)?"
    r"|(?:weight|input|output|q|k|v)_zero_point|weight_shape|weight_format|g_idx|qzeros|SCB|absmax|quant_map)"
)
_LEAF = re.compile(r"[._](?:weight_packed|qweight|weight)$")
_OF_A_MODULE = re.compile(
    r"\.(?:weight|bias|weight_\w+|input_\w*scale|qweight|qzeros|scales?|biases|g_idx|SCB|weight\..+)$"
)


@dataclass(frozen=True)
class PackedWeight:
    """A stored container and what it holds.

    `name` is that of the weight (`lm_head.weight` for `lm_head.weight_packed`), `shape` the weight's own, None where
    the headers tell only how many parameters there are. `bits` is None where nothing tells the width: `logical` is
    then the number of stored elements. `told_by` says what the width follows from.
    """

    name: str
    format: str
    bits: int | None
    logical: int
    shape: tuple[int, ...] | None
    told_by: str

    @property
    def label(self) -> str:
        """The format with its width, such as "GPTQ 4-bit"."""
        return self.format if self.bits is None or self.format[-1].isdigit() else f"{self.format} {self.bits}-bit"


@dataclass(frozen=True)
class Packing:
    """The packed weights of a checkpoint, by stored name, and which tensors are mere companions of weights."""

    table: TensorTable | None
    quantization: Quantization = field(default_factory=Quantization)

    @cached_property
    def companions(self) -> frozenset[str]:
        """The names of scales, zero points, indices and other bookkeeping of quantised weights."""
        return frozenset(tensor.name for tensor in self.table or () if self._is_companion(tensor))

    @cached_property
    def weights(self) -> Mapping[str, PackedWeight]:
        rest = [tensor for tensor in self.table or () if tensor.name not in self.companions]
        return {tensor.name: packed for tensor in rest if (packed := self._read(tensor)) is not None}

    def _is_companion(self, tensor: TensorInfo) -> bool:
        stem, _, leaf = tensor.name.rpartition(".")
        if tensor.dtype == "F8_E8M0" or _is_companion_name(leaf) or stem.endswith(".quant_state"):
            return True
        if leaf in ("scales", "scale", "biases"):  # names that a layer's own parameters may have
            weight = self.get(f"{stem}.weight")
            packed = weight is not None and (weight.dtype in (*_CONTAINERS, "I8") or weight.dtype.startswith("F8"))
            return packed or (leaf == "scales" and self.get(f"{stem}.qweight") is not None)
        return leaf.endswith("_scales") and self.get(f"{tensor.name.removesuffix('scales')}blocks") is not None

    def _read(self, tensor: TensorInfo) -> PackedWeight | None:
        """What a container holds; None for a tensor that stores one parameter an element."""
        for leaf, dtypes, read in _LAYOUTS:
            if tensor.name.endswith(leaf) and tensor.dtype in dtypes:
                packed = read(self, tensor)
                if packed is not None:
                    return packed
        if tensor.dtype not in _CONTAINERS or len(tensor.shape) < 2:
            return None
        name = tensor.name if tensor.name.endswith(".weight") else _weight_name(tensor.name)
        return PackedWeight(name, "unknown packing", None, tensor.elements, None, "nothing tells its width")

    def get(self, name: str) -> TensorInfo | None:
        return self.table.get(name) if self.table is not None else None

    def beside(self, tensor: TensorInfo, *companions: str) -> TensorInfo | None:
        """The first of these companions that is stored: `stem.companion`, or `name_companion` for a stacked weight."""
        stem = _LEAF.sub("", tensor.name)
        names = (f"{stem}{joint}{companion}" for companion in companions for joint in "._")
        return next((found for name in names if (found := self.get(name))), None)

    def schemes(self, tensor: TensorInfo) -> tuple[Scheme, ...]:
        return self.quantization.schemes_of(_LEAF.sub("", tensor.name)) or (Scheme(),)

    def along_rows(self, tensor: TensorInfo, columns: int, scale: TensorInfo | None) -> Width | None:
        """The width of a container that packs its last axis, from what is declared and the scales' groups."""
        groups = scale.shape[-1] if scale is not None and len(scale.shape) >= 2 else None
        return width_of(columns, DTYPE_BITS[tensor.dtype], groups, self.schemes(tensor))

    def by_row(self, tensor: TensorInfo, label: str, scale: TensorInfo | None) -> PackedWeight | None:
        width = self.along_rows(tensor, tensor.shape[-1], scale) if tensor.shape else None
        if width is None:
            return None
        shape = (*tensor.shape[:-1], width.columns)
        return _packed(tensor, label, width.bits, shape, width.told_by)


@cache
def _is_companion_name(leaf: str) -> bool:
    """Asked for each of a hundred thousand tensors, whose last names are few."""
    return _COMPANION.fullmatch(leaf) is not None


def module_of(name: str) -> str:
    """The layer that a weight, its bias or a companion belongs to; any other name as it is.

    >>> module_of("layers.0.mlp.down_proj.weight_packed")
    'layers.0.mlp.down_proj'
    """
    return _OF_A_MODULE.sub("", name)


def _packed(tensor: TensorInfo, label: str, bits: int, shape: tuple[int, ...], told_by: str) -> PackedWeight:
    return PackedWeight(_weight_name(tensor.name), label, bits, prod(shape), shape, told_by)


def _weight_name(name: str) -> str:
    """`X.weight` for `X.weight_packed` and `X.qweight`; `X` for the stacked `X_blocks`."""
    return name.removesuffix("_blocks") if name.endswith("_blocks") else _LEAF.sub(".weight", name)


def _compressed(packing: Packing, tensor: TensorInfo) -> PackedWeight | None:
    scale = packing.beside(tensor, "weight_scale")
    if tensor.dtype == "U8":
        return _float_pairs(packing, tensor, scale) or packing.by_row(tensor, _fp_label(packing), scale)
    return packing.by_row(tensor, "compressed-tensors", scale)


def _fp_label(packing: Packing) -> str:
    declared = packing.quantization.layout.removesuffix("-pack-quantized")
    return declared.upper() if declared.startswith(("mxfp", "nvfp")) else "compressed-tensors"


def _float_pairs(packing: Packing, tensor: TensorInfo, scale: TensorInfo | None) -> PackedWeight | None:
    """FP4, two values a byte: its scales prove it, as their dtype fixes how many weights each is for."""
    group = {"F8_E4M3": 16, "F8_E8M0": 32}.get(scale.dtype) if scale is not None else None
    shape = (*tensor.shape[:-1], tensor.shape[-1] * 2) if tensor.shape else ()
    if scale is None or group is None or not shape or scale.shape != (*shape[:-1], ceil(shape[-1] / group)):
        return None
    return _packed(tensor, "NVFP4" if group == 16 else "MXFP4", 4, shape, f"a scale for {group} weights")


def _gptq_or_awq(packing: Packing, tensor: TensorInfo) -> PackedWeight | None:
    """Which axis is packed follows from the scales [groups, out], the width from the zero points."""
    scales, zeros = packing.beside(tensor, "scales"), packing.beside(tensor, "qzeros")
    if len(tensor.shape) != 2:
        return None
    rows, columns = tensor.shape
    out = scales.shape[-1] if scales is not None and len(scales.shape) == 2 else None
    proved = _ratio(out, zeros)
    if packing.quantization.method == "awq" and packing.quantization.layout.startswith("gemv"):
        return packing.by_row(tensor, "AWQ", None)
    if not out or out == columns:
        return _gptq(packing, tensor, scales, proved)
    bits = 32 * columns // out if 32 * columns % out == 0 else None
    if bits not in WIDTHS or proved not in (None, bits):
        return None
    return _packed(tensor, "AWQ", bits, (out, rows), "the width of its scales")


def _gptq(packing: Packing, tensor: TensorInfo, scales: TensorInfo | None, proved: int | None) -> PackedWeight | None:
    rows, out = tensor.shape
    if scales is None and packing.quantization.method == "awq":
        return None
    groups = scales.shape[0] if scales is not None and scales.shape else None
    schemes = packing.schemes(tensor)
    if proved is not None:
        columns = rows * 32 // proved
        return _packed(tensor, "GPTQ", proved, (out, columns), "the width of its zero points")
    width = width_of(rows, 32, groups, schemes)
    return _packed(tensor, "GPTQ", width.bits, (out, width.columns), width.told_by) if width else None


def _ratio(out: int | None, zeros: TensorInfo | None) -> int | None:
    """Bits from zero points: 32 of them to a container times bits, over `out` weights."""
    if not out or zeros is None or len(zeros.shape) != 2 or zeros.shape[1] * 32 % out:
        return None
    bits = zeros.shape[1] * 32 // out
    return bits if bits in WIDTHS else None


def _byte_weight(packing: Packing, tensor: TensorInfo) -> PackedWeight | None:
    """A U8 or I8 `weight`: FP4 or INT4 pairs of ModelOpt and DeepSeek-V4, or bitsandbytes' flat list."""
    scale = packing.beside(tensor, "weight_scale", "scale")
    pairs = _float_pairs(packing, tensor, scale)
    if pairs is not None or tensor.dtype == "I8" or not tensor.shape:
        return pairs
    flat = any(packing.get(f"{tensor.name}{joint}absmax") for joint in "._")
    if flat:
        label = f"bitsandbytes {packing.quantization.layout.upper()}".strip()
        return PackedWeight(tensor.name, label, 4, tensor.elements * 2, None, "its absmax")
    rows = scale.shape[-2] if scale is not None and len(scale.shape) == len(tensor.shape) > 1 else None
    if rows is not None and rows == 2 * tensor.shape[-2]:
        return _packed(tensor, "ModelOpt", 4, (*tensor.shape[:-2], rows, tensor.shape[-1]), "the rows of its scales")
    return None


def _mlx(packing: Packing, tensor: TensorInfo) -> PackedWeight | None:
    scales = packing.beside(tensor, "scales")
    return packing.by_row(tensor, "MLX", scales) if scales is not None else None


def _mxfp4_blocks(packing: Packing, tensor: TensorInfo) -> PackedWeight | None:
    scales = packing.get(f"{tensor.name.removesuffix('blocks')}scales")
    if scales is None or len(tensor.shape) < 2 or scales.shape != tensor.shape[:-1]:
        return None
    shape = (*tensor.shape[:-2], tensor.shape[-2] * tensor.shape[-1] * 2)
    return _packed(tensor, "MXFP4", 4, shape, "two values a byte, a scale for each block")


_Read = Callable[[Packing, TensorInfo], PackedWeight | None]
_LAYOUTS: tuple[tuple[str, frozenset[str], _Read], ...] = (
    ("weight_packed", _CONTAINERS, _compressed),
    ("qweight", frozenset({"I32", "U32"}), _gptq_or_awq),
    ("_blocks", frozenset({"U8"}), _mxfp4_blocks),
    (".weight", frozenset({"U32", "I32"}), _mlx),
    ("", frozenset({"U8", "I8"}), _byte_weight),
)
