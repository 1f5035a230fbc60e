"""How close two stored tensors are: from equal byte for byte to unrelated.

Never told by cosine alone: it is 1.000003 on a table that is wrong by a factor of 50 (a known case: Gemma's embedding
stored without its sqrt(hidden)). Imports numpy; callers import this module where they compare rows.

The classes, the first that applies:

    bitwise_equal     one dtype, the same bytes
    equal_after_cast  equal in value once the wider side is rounded to the other's dtype, or one side to BF16 or F16
                      (a half-precision copy that was saved wide); 0 and -0 are equal in value
    nearly_equal      fewer than 5% of the rows differ after that, zero rows not counted
    scaled            b = scale * a, each element to within two roundings to the narrower dtype, and scale is not 1
                      to within the same
    nearly_equal      every row of `b` is within 5% of its row of `a`, in norm
    unrelated         anything else, and whatever holds a NaN or an infinity
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

Kind = Literal["bitwise_equal", "equal_after_cast", "scaled", "nearly_equal", "unrelated"]
Spread = Literal["few_rows", "all_rows"]
"""What is nearly equal differs in a few rows, by whatever amount, or in many, each by a small part of its norm."""

Floats = npt.NDArray[np.floating[Any]]
Mask = npt.NDArray[np.bool_]

MOST_DIFFERING = 0.05
"""Share of the rows below which differing rows are an exception (vLLM's own case: a few rows in one shard)."""

NEAR = 0.05
"""Norm of a row's change over the row's norm, up to which the row is the same one, trained or quantised a little."""

_STORED_AS = MappingProxyType(
    {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "F8_E4M3": "u1", "F8_E5M2": "u1", "BOOL": "u1"}
    | {"I64": "<i8", "U64": "<u8", "I32": "<i4", "U32": "<u4", "I16": "<i2", "U16": "<u2", "I8": "i1", "U8": "u1"}
)
DECODABLE = frozenset(_STORED_AS)
"""The safetensors dtypes that `decode` takes."""

# Bits of precision (the leading one included) and the smallest positive number, of the formats that values round to.
_PRECISION = MappingProxyType({"F64": 53, "F32": 24, "F16": 11, "BF16": 8, "F8_E4M3": 4, "F8_E5M2": 3})
_SMALLEST = MappingProxyType(
    {"F64": 5e-324, "F32": 2.0**-149, "F16": 2.0**-24, "BF16": 2.0**-133, "F8_E4M3": 2.0**-9, "F8_E5M2": 2.0**-16}
)

FLOATS = frozenset(_PRECISION)
"""Those of them that hold weights."""


@dataclass(frozen=True)
class Closeness:
    """How rows of `b` stand to the same rows of `a`.

    `norm_ratio` is ‖b‖ / ‖a‖, `max_abs` the largest |b - a|, `cosine` that of the angle between them, all over the
    rows that are finite on both sides; a ratio is None where it would divide by zero. `differing` are the indices of
    the rows that differ after the cast (of all rows for the last two classes, as a rule), `zero_rows` how many rows
    are zero on both sides and so prove nothing, `non_finite` how many values of both sides are NaN or infinite.
    `rounded_to` is the dtype of the cast that leaves the fewest differing rows, None where none was needed; `scale`
    is the factor of class `scaled`; `spread` tells the two kinds of `nearly_equal` apart.
    """

    kind: Kind
    norm_ratio: float | None
    max_abs: float
    cosine: float | None
    rows: int
    differing: tuple[int, ...]
    zero_rows: int = 0
    non_finite: int = 0
    rounded_to: str | None = None
    scale: float | None = None
    spread: Spread | None = None


def decode(data: bytes, dtype: str) -> npt.NDArray[np.float32]:
    """The values of `data`, little endian as safetensors stores them, as a flat float32 array.

    F64 and 32-bit integers and wider are rounded to float32. Raises ValueError for a dtype not in DECODABLE and for
    bytes that are no whole number of elements.
    """
    with np.errstate(over="ignore"):
        return _values(data, dtype).astype(np.float32, copy=False)


def integers(data: bytes, dtype: str) -> npt.NDArray[np.int64]:
    """The values of a flat tensor of integers, as a vocabulary map is stored; `dtype` one of DECODABLE."""
    return np.frombuffer(data, _STORED_AS[dtype]).astype(np.int64)


def round_to(values: Floats, dtype: str) -> Floats:
    """`values` rounded to the nearest of a floating `dtype`, ties to even, in the array's own type.

    Beyond the range F16 and BF16 become infinite; the 8-bit formats saturate, as quantisers do.
    """
    with np.errstate(over="ignore", under="ignore"):
        if dtype == "BF16":
            return _round_bf16(values.astype(np.float32)).astype(values.dtype)
        if dtype in _EIGHT_BITS:
            return _round_to_grid(values, _POSITIVE[dtype]).astype(values.dtype)
        return values.astype(_STORED_AS[dtype]).astype(values.dtype)


def compare_rows(a: bytes, a_dtype: str, b: bytes, b_dtype: str, *, width: int) -> Closeness:
    """Class and figures of rows of `width` elements each; `a` is the original (the target), `b` what is asked about.

    Raises ValueError where the two do not hold the same whole number of rows, or a dtype is not in DECODABLE. No rows
    at all are equal.
    """
    x, y = _rows(a, a_dtype, width), _rows(b, b_dtype, width)
    if x.shape != y.shape:
        raise ValueError(f"{len(x)} rows against {len(y)}")
    differing, rounded_to = _differing(x, y, a_dtype, b_dtype)
    figures = _figures(x, y)
    same_bytes = a_dtype == b_dtype and a == b
    few = bool(differing.sum() < MOST_DIFFERING * (len(x) - figures["zero_rows"]))
    kind, scale = _classify(x, y, differing, figures, _narrower(a_dtype, b_dtype), same_bytes)
    spread: Spread | None = ("few_rows" if few else "all_rows") if kind == "nearly_equal" else None
    return Closeness(
        kind, **figures, rows=len(x), differing=tuple(np.flatnonzero(differing).tolist()), rounded_to=rounded_to,
        scale=scale, spread=spread,
    )  # fmt: skip


def _classify(
    x: Floats, y: Floats, differing: Mask, figures: dict[str, Any], narrower: str, same_bytes: bool
) -> tuple[Kind, float | None]:
    if figures["non_finite"]:
        return "unrelated", None
    if same_bytes:
        return "bitwise_equal", None
    if not differing.any():
        return "equal_after_cast", None
    if differing.sum() < MOST_DIFFERING * (len(x) - figures["zero_rows"]):
        return "nearly_equal", None
    scale = _scale(x, y, narrower)
    if scale is not None:
        return "scaled", scale
    return "nearly_equal" if _all_near(x, y) else "unrelated", None


def _differing(x: Floats, y: Floats, a_dtype: str, b_dtype: str) -> tuple[Mask, str | None]:
    """The rows that differ after the cast that leaves the fewest, and that cast; no cast where none helps."""
    best, used = (x != y).any(axis=1), None
    vanished = x.any(axis=1) != y.any(axis=1)  # a narrow format rounds a whole row to zero: that is no copy
    floats = {a_dtype, b_dtype} <= _PRECISION.keys()
    for dtype in dict.fromkeys((a_dtype, b_dtype, "BF16", "F16")) if floats else ():
        if not best.any():
            break
        for mask in ((round_to(x, dtype) != y).any(axis=1), (x != round_to(y, dtype)).any(axis=1)):
            if (mask | vanished).sum() < best.sum():
                best, used = mask | vanished, dtype
    return best, used


def _figures(x: Floats, y: Floats) -> dict[str, Any]:
    finite = np.isfinite(x) & np.isfinite(y)
    non_finite = int((~np.isfinite(x)).sum() + (~np.isfinite(y)).sum())
    whole = finite.all(axis=1)
    p, q = x[whole].astype(np.float64), y[whole].astype(np.float64)
    a_norm, b_norm = _norm(p), _norm(q)
    return {
        "norm_ratio": b_norm / a_norm if a_norm else None,
        "max_abs": float(np.abs(q - p).max(initial=0.0)),
        "cosine": float((p * q).sum() / (a_norm * b_norm)) if a_norm and b_norm else None,
        "zero_rows": int((~(p.any(axis=1) | q.any(axis=1))).sum()),
        "non_finite": non_finite,
    }


def _all_near(x: Floats, y: Floats) -> bool:
    p, q = x.astype(np.float64), y.astype(np.float64)
    return bool((_row_norms(q - p) <= NEAR * _row_norms(p)).all())


def _norm(x: Any) -> float:  # noqa: ANN401 - float64 of any shape
    """By einsum: a threaded BLAS wakes its threads for each small array."""
    flat = x.ravel()
    return float(np.sqrt(np.einsum("i,i->", flat, flat)))


def _row_norms(x: Any) -> Any:  # noqa: ANN401 - float64, one figure a row
    return np.sqrt(np.einsum("ij,ij->i", x, x))


def _scale(x: Floats, y: Floats, dtype: str) -> float | None:
    """The one factor between the two, by least squares, None where there is none or it is 1.

    Both may be rounded copies of one original, so each element may be off by two roundings.
    """
    p, q = x.astype(np.float64), y.astype(np.float64)
    square = float((p * p).sum())
    scale = float((p * q).sum()) / square if square else 0.0
    if not scale or not np.isfinite(scale):
        return None
    two_roundings, off = 2.0 ** (1 - _PRECISION[dtype]), np.abs(q - scale * p)
    allowed = two_roundings * np.abs(scale * p) + (1 + abs(scale)) * _SMALLEST[dtype]
    fits = bool((off <= allowed).all()) and _norm(off) <= two_roundings * _norm(scale * p)
    return scale if fits and abs(scale - 1) > two_roundings else None


def _narrower(a_dtype: str, b_dtype: str) -> str:
    """The one with fewer bits of precision; integers are exact and count as F64."""
    return min(a_dtype, b_dtype, "F64", key=lambda dtype: _PRECISION.get(dtype, 54))


def _rows(data: bytes, dtype: str, width: int) -> Floats:
    values = _values(data, dtype)
    if width < 1 or values.size % width:
        raise ValueError(f"{values.size} elements are no whole number of rows of {width}")
    return values.reshape(-1, width)


def _values(data: bytes, dtype: str) -> Floats:
    """The values in the narrowest of float32 and float64 that holds them; 64-bit integers beyond 2**53 are rounded."""
    if dtype not in DECODABLE:
        raise ValueError(f"dtype {dtype} cannot be decoded")
    stored: npt.NDArray[Any] = np.frombuffer(data, _STORED_AS[dtype])
    if dtype == "BF16":
        upper: npt.NDArray[np.uint32] = stored.astype(np.uint32) << np.uint32(16)
        return upper.view(np.float32)
    if dtype in _EIGHT_BITS:
        return np.take(_EIGHT_BITS[dtype], stored)
    plain: Floats = stored.astype(np.float64 if stored.itemsize > 4 or stored.dtype.kind in "iu" else np.float32)
    return plain


def _round_bf16(values: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    bits = values.view(np.uint32)
    rounded: npt.NDArray[np.float32] = ((bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)).view(np.float32)
    return np.where(np.isnan(values), values, rounded)


def _round_to_grid(values: Floats, grid: npt.NDArray[np.float32]) -> Floats:
    """The nearest of `grid` (from 0 upwards; its even places have even last bits) with the sign of each value."""
    size = np.abs(values).astype(np.float64)
    low = np.clip(np.searchsorted(grid, size, side="right") - 1, 0, len(grid) - 2)
    below, above = size - grid[low], grid[low + 1] - size
    up = (below > above) | ((below == above) & (low % 2 == 1))
    return np.where(np.isnan(values), values, np.copysign(grid[low + up], values))


def _eight_bit_values(exponent_bits: int, bias: int) -> Iterator[float]:
    """What the bytes 0..127 stand for if none were set aside for NaN and infinity."""
    mantissa_bits = 7 - exponent_bits
    for byte in range(128):
        exponent, mantissa = byte >> mantissa_bits, (byte & (1 << mantissa_bits) - 1) / (1 << mantissa_bits)
        yield (mantissa * 2.0 if exponent == 0 else 1 + mantissa) * 2.0 ** (exponent - bias)


def _both_signs(positive: list[float]) -> npt.NDArray[np.float32]:
    half = np.array(positive, dtype=np.float32)
    return np.concatenate([half, -half])


# https://arxiv.org/abs/2209.05433: E4M3 has no infinity and one NaN, E5M2 has both, as IEEE formats do.
_EIGHT_BITS = {
    "F8_E4M3": _both_signs([*islice(_eight_bit_values(4, 7), 127), np.nan]),
    "F8_E5M2": _both_signs([*islice(_eight_bit_values(5, 15), 124), np.inf, np.nan, np.nan, np.nan]),
}
_POSITIVE = {name: values[:128][np.isfinite(values[:128])] for name, values in _EIGHT_BITS.items()}
