"""Classes of closeness on arrays made by hand, and dtypes against numpy's own and the formats' published tables."""

from __future__ import annotations

import numpy as np
import pytest

from drafter_audit.measure.closeness import DECODABLE, Closeness, compare_rows, decode, round_to

WIDTH = 16


def table(rows: int = 64, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 0.02, (rows, WIDTH)).astype(np.float32)


def bf16(values: np.ndarray) -> bytes:
    """By the definition: of the two neighbours that share the upper half, the nearer; of equals the even one."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32).ravel()
    down = bits & np.uint32(0xFFFF0000)
    up = down + np.uint32(0x10000)
    exact = values.astype(np.float64).ravel()
    to_down, to_up = np.abs(exact - down.view(np.float32)), np.abs(exact - up.view(np.float32))
    take_up = (to_up < to_down) | ((to_up == to_down) & ((down >> 16) & 1 == 1))
    return (np.where(take_up, up, down) >> 16).astype("<u2").tobytes()


def f32(values: np.ndarray) -> bytes:
    return values.astype("<f4").tobytes()


def both_f32(a: np.ndarray, b: np.ndarray) -> Closeness:
    return compare_rows(f32(a), "F32", f32(b), "F32", width=a.shape[1])


# --- dtypes


def test_bf16_is_the_upper_half_of_float32() -> None:
    """1.0 is 0x3F80, -2.0 is 0xC000, the smallest positive number 2**-133 is 0x0001."""
    data = np.array([0x3F80, 0xC000, 0x0001, 0x8000], "<u2").tobytes()
    values = decode(data, "BF16")
    assert values.tolist() == [1.0, -2.0, 2.0**-133, 0.0]
    assert np.signbit(values[3])


def test_eight_bit_floats_are_those_of_the_published_table() -> None:
    """Micikevicius et al. 2022, table 1: largest, smallest normal and smallest numbers of both formats."""
    e4m3 = decode(bytes([0x7E, 0x08, 0x07, 0x01, 0x00, 0xFE, 0x7F]), "F8_E4M3")
    assert e4m3[:6].tolist() == [448.0, 2.0**-6, 0.875 * 2.0**-6, 2.0**-9, 0.0, -448.0]
    assert np.isnan(e4m3[6])
    e5m2 = decode(bytes([0x7B, 0x04, 0x03, 0x01, 0x00, 0x7C, 0xFC, 0x7D]), "F8_E5M2")
    assert e5m2[:7].tolist() == [57344.0, 2.0**-14, 0.75 * 2.0**-14, 2.0**-16, 0.0, np.inf, -np.inf]
    assert np.isnan(e5m2[7])


@pytest.mark.parametrize(
    ("dtype", "stored"),
    [("F64", "<f8"), ("F32", "<f4"), ("F16", "<f2"), ("I64", "<i8"), ("I32", "<i4"), ("I16", "<i2"), ("I8", "i1"),
     ("U64", "<u8"), ("U32", "<u4"), ("U16", "<u2"), ("U8", "u1"), ("BOOL", "?")],
)  # fmt: skip
def test_plain_dtypes_are_numpys(dtype: str, stored: str) -> None:
    values = np.array([0, 1, 1, 0], stored)
    decoded = decode(values.tobytes(), dtype)
    assert decoded.dtype == np.float32
    assert decoded.tolist() == [0.0, 1.0, 1.0, 0.0]


def test_every_other_dtype_is_refused() -> None:
    assert "F4" not in DECODABLE
    with pytest.raises(ValueError, match="F8_E8M0 cannot be decoded"):
        decode(b"\0", "F8_E8M0")


def test_rounding_takes_the_even_one_of_two_equally_near() -> None:
    # Between 1 and 1 + 2**-7 lies 1 + 2**-8; 1 has an even last bit. The next midpoint goes up, to 1 + 2**-6.
    halves = np.array([1 + 2**-8, 1 + 3 * 2**-8, -(1 + 2**-8)], np.float32)
    assert round_to(halves, "BF16").tolist() == [1.0, 1 + 2**-6, -1.0]
    # E4M3 at 1: steps of 1/8. At the bottom: steps of 2**-9.
    eighths = np.array([1.0625, 1.1875, 2.0**-10, 3 * 2.0**-10, 1000.0, -0.0], np.float32)
    assert round_to(eighths, "F8_E4M3").tolist() == [1.0, 1.25, 0.0, 2.0**-8, 448.0, -0.0]
    assert round_to(np.array([1.125, 1.375], np.float32), "F8_E5M2").tolist() == [1.0, 1.5]


@pytest.mark.parametrize(("dtype", "count"), [("F8_E4M3", 254), ("F8_E5M2", 248)])
def test_what_a_format_holds_it_rounds_to_itself(dtype: str, count: int) -> None:
    values = decode(bytes(range(256)), dtype)
    finite = values[np.isfinite(values)]
    assert len(finite) == count
    assert np.array_equal(round_to(finite, dtype), finite)


# --- classes


def test_the_same_bytes() -> None:
    found = both_f32(table(), table())
    assert (found.kind, found.rows, found.differing, found.max_abs) == ("bitwise_equal", 64, (), 0.0)
    assert found.spread is None
    assert (found.norm_ratio, found.cosine) == (1.0, pytest.approx(1.0))


@pytest.mark.parametrize("swap", [False, True])
def test_a_copy_rounded_to_bf16(swap: bool) -> None:
    sides = [(f32(table()), "F32"), (bf16(table()), "BF16")]
    (a, a_dtype), (b, b_dtype) = reversed(sides) if swap else sides
    found = compare_rows(a, a_dtype, b, b_dtype, width=WIDTH)
    assert (found.kind, found.rounded_to, found.differing) == ("equal_after_cast", "BF16", ())
    assert 0 < found.max_abs < 2**-8 * 0.1


def test_a_copy_rounded_to_f16_from_bf16() -> None:
    """Neither of the two is the wider one: values below f16's normal numbers lose bits."""
    original = np.concatenate([table(), table() * 2.0**-16])
    stored = bf16(original)
    half = decode(stored, "BF16").astype(np.float16).astype("<f2").tobytes()
    found = compare_rows(stored, "BF16", half, "F16", width=WIDTH)
    assert (found.kind, found.rounded_to) == ("equal_after_cast", "F16")


def test_a_half_precision_copy_saved_wide() -> None:
    wide = decode(bf16(table()), "BF16").reshape(-1, WIDTH)
    found = both_f32(table(), wide)
    assert (found.kind, found.rounded_to) == ("equal_after_cast", "BF16")


def test_a_copy_rounded_to_f8() -> None:
    values = table() * 50
    grid = decode(bytes(range(256)), "F8_E4M3")
    nearest = np.nanargmin(np.abs(values.reshape(-1, 1) - grid), axis=1).astype(np.uint8)
    found = compare_rows(f32(values), "F32", nearest.tobytes(), "F8_E4M3", width=WIDTH)
    assert (found.kind, found.rounded_to) == ("equal_after_cast", "F8_E4M3")


def test_the_sign_of_zero_is_no_difference_in_value() -> None:
    found = both_f32(np.array([[0.0, 1.0]]), np.array([[-0.0, 1.0]]))
    assert (found.kind, found.rounded_to) == ("equal_after_cast", None)


def test_denormals_are_compared_and_not_flushed() -> None:
    tiny = np.full((4, 4), 2.0**-140, np.float32)
    assert both_f32(tiny, tiny).kind == "bitwise_equal"
    assert both_f32(tiny, tiny * 2).kind == "scaled"


@pytest.mark.parametrize("scale", [5376**0.5, 1 / 5376**0.5, 3584**0.5, -1.0, 1.5])
def test_one_factor_between_bf16_tables(scale: float) -> None:
    """Gemma multiplies its embedding by the square root of its width; cosine alone would call that equal."""
    found = compare_rows(bf16(table()), "BF16", bf16(table() * np.float32(scale)), "BF16", width=WIDTH)
    assert found.kind == "scaled"
    assert found.scale == pytest.approx(scale, rel=0.004)
    assert found.norm_ratio == pytest.approx(abs(scale), rel=0.004)
    assert abs(found.cosine or 0) > 0.9999


def test_a_small_factor_in_float32_is_still_a_factor() -> None:
    assert both_f32(table(), table() * np.float32(1.001)).kind == "scaled"


def test_a_factor_of_each_row_is_not_one_factor() -> None:
    factors = np.linspace(1, 3, 64, dtype=np.float32)[:, None]
    assert both_f32(table(), table() * factors).kind == "unrelated"


def test_a_few_rows_differ() -> None:
    changed = table()
    changed[[5, 6]] = table(2, seed=1)
    found = both_f32(table(), changed)
    assert (found.kind, found.differing, found.spread) == ("nearly_equal", (5, 6), "few_rows")
    assert found.cosine is not None
    assert found.cosine < 0.99


def test_a_few_rows_differ_after_the_cast() -> None:
    changed = table()
    changed[17] = table(1, seed=1)
    found = compare_rows(f32(table()), "F32", bf16(changed), "BF16", width=WIDTH)
    assert (found.kind, found.differing, found.rounded_to) == ("nearly_equal", (17,), "BF16")


def test_five_in_a_hundred_are_not_few() -> None:
    changed = table(100)
    changed[:5] = table(5, seed=1)
    assert both_f32(table(100), changed).kind == "unrelated"
    changed[4] = table(100)[4]
    assert both_f32(table(100), changed).kind == "nearly_equal"


def test_zero_rows_are_not_counted_among_the_equal_ones() -> None:
    """Else padding would make two unrelated rows a few."""
    a, b = np.zeros((100, WIDTH), np.float32), np.zeros((100, WIDTH), np.float32)
    a[:2], b[:2] = table(2), table(2, seed=1)
    found = both_f32(a, b)
    assert (found.kind, found.zero_rows, found.differing) == ("unrelated", 98, (0, 1))


def test_all_rows_trained_a_little() -> None:
    found = both_f32(table(), table() + table(seed=1) * np.float32(0.02))
    assert (found.kind, len(found.differing), found.spread) == ("nearly_equal", 64, "all_rows")


def test_another_table_is_unrelated() -> None:
    found = both_f32(table(), table(seed=1))
    assert found.kind == "unrelated"
    assert found.cosine is not None
    assert abs(found.cosine) < 0.2


def test_permuted_rows_are_unrelated() -> None:
    assert both_f32(table(), table()[::-1]).kind == "unrelated"


def test_zeros_prove_nothing_and_divide_by_nothing() -> None:
    zeros = np.zeros((3, WIDTH), np.float32)
    found = both_f32(zeros, zeros)
    assert (found.kind, found.zero_rows, found.norm_ratio, found.cosine) == ("bitwise_equal", 3, None, None)
    found = both_f32(zeros, table(3))
    assert (found.kind, found.norm_ratio, found.cosine) == ("unrelated", None, None)
    found = both_f32(table(3), zeros)
    assert (found.kind, found.norm_ratio) == ("unrelated", 0.0)


def test_what_a_narrow_format_rounds_to_nothing_is_no_copy() -> None:
    zeros = bytes(4 * WIDTH)
    assert compare_rows(f32(table(4) * 1e-4), "F32", zeros, "F8_E4M3", width=WIDTH).kind == "unrelated"


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_nothing_is_claimed_of_nan_and_infinity(value: float) -> None:
    broken = table()
    broken[3, 2] = value
    found = both_f32(broken, broken)
    assert (found.kind, found.non_finite) == ("unrelated", 2)
    found = both_f32(table(), broken)
    assert (found.kind, found.non_finite, found.differing) == ("unrelated", 1, (3,))
    assert found.max_abs == 0.0  # of the finite rows


def test_one_row_is_enough() -> None:
    assert both_f32(table(1), table(1)).kind == "bitwise_equal"
    assert both_f32(table(1), table(1) * 2).kind == "scaled"
    assert both_f32(table(1), table(1, seed=1)).kind == "unrelated"


def test_integers_are_compared_by_value() -> None:
    small, wide = np.array([1, 2, 3], "<i4"), np.array([1, 2, 3], "<i8")
    found = compare_rows(small.tobytes(), "I32", wide.tobytes(), "I64", width=1)
    assert (found.kind, found.rounded_to) == ("equal_after_cast", None)
    big = 2**24  # float32 cannot tell it from its successor
    a, b = np.array([big], "<i8"), np.array([big + 1], "<i8")
    assert compare_rows(a.tobytes(), "I64", b.tobytes(), "I64", width=1).differing == (0,)


def test_rows_must_match() -> None:
    with pytest.raises(ValueError, match="no whole number of rows"):
        compare_rows(bytes(12), "F32", bytes(12), "F32", width=2)
    with pytest.raises(ValueError, match="3 rows against 6"):
        compare_rows(bytes(12), "F32", bytes(12), "F16", width=1)
    assert compare_rows(b"", "F32", b"", "F32", width=4).kind == "bitwise_equal"
