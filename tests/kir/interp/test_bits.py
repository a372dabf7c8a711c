"""Rows of the instruction table on bits and on rounding, against exact integer and rational arithmetic."""
from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from kir.interp import run
from kir.ir.parser import parse_program

RNG = np.random.default_rng(7)
WORDS = RNG.integers(0, 2**32, 64, dtype=np.uint32)
OTHER = RNG.integers(0, 2**32, 64, dtype=np.uint32)
SMALL = np.array([0, 1, 7, 8, 15, 31, 32, 33] * 8, np.uint32)


def computed(expression: str, dtype: str, out: str, **arrays: np.ndarray) -> np.ndarray:
    """`expression` over the elements a[i], b[i], .. of arrays of one dtype."""
    params = "".join(f"\n  in {name}: {dtype}[64]" for name in arrays)
    text = f"kir 1\nprogram p{params}\n  out y: {out}[64]\nkernel main grid (i: 64) threads 1\n  y[i] = {expression}\n"
    fast, checked = (run(parse_program(text), dict(arrays), mode=mode).outputs["y"] for mode in ("fast", "check"))
    assert fast.tobytes() == checked.tobytes()
    return np.asarray(fast)


def words(f: object, *arrays: np.ndarray) -> list[int]:
    return [int(f(*(int(v) for v in row))) & 0xFFFFFFFF for row in zip(*arrays, strict=True)]  # type: ignore[operator]  # any function


@pytest.mark.parametrize(("expression", "meaning"), [
    ("lop3(a[i], b[i], c[i], lut=234)", lambda a, b, c: (a & b) | c),
    ("lop3(a[i], b[i], c[i], lut=150)", lambda a, b, c: a ^ b ^ c),
    ("lop3(a[i], b[i], c[i], lut=202)", lambda a, b, c: (a & b) | (~a & c)),
    ("funnel_left(a[i], b[i], c[i])", lambda a, b, c: ((b << 32 | a) << (c & 31)) >> 32),
    ("funnel_right(a[i], b[i], c[i])", lambda a, b, c: (b << 32 | a) >> (c & 31)),
    ("funnel_left(a[i], b[i], c[i], clamp=true)", lambda a, b, c: ((b << 32 | a) << min(c, 32)) >> 32),
    ("bit_extract(a[i], c[i], 5:u32)", lambda a, b, c: a >> c & 31),
    ("bit_extract(a[i], 4:u32, c[i])", lambda a, b, c: (a >> 4) & ((1 << c) - 1)),
    ("bit_insert(a[i], b[i], c[i], 5:u32)", lambda a, b, c: (a & ~(31 << c)) | ((b & 31) << c)),
    ("nth_bit(a[i], 0:u32, 2:u32)", lambda a, b, c: ([k for k in range(32) if a >> k & 1] + [-1, -1])[1]),
    ("nth_bit(a[i], 20:u32, 4294967295:u32)", lambda a, b, c: ([k for k in range(20, -1, -1) if a >> k & 1] + [-1])[0]),
    ("nth_bit(a[i], c[i] & 31:u32, 0:u32)", lambda a, b, c: c & 31 if a >> (c & 31) & 1 else -1),
    ("dp4a(a[i], b[i], c[i])", lambda a, b, c: c + sum((a >> s & 255) * (b >> s & 255) for s in (0, 8, 16, 24))),
    ("pack(unpack(a[i], dtype=u8), dtype=u32)", lambda a, b, c: a),
    ("pack(vec(cast(a[i], u16), cast(b[i], u16)), dtype=u32)", lambda a, b, c: (a & 0xFFFF) | (b & 0xFFFF) << 16),
    ("cast(pick(unpack(a[i], dtype=u8), 2), u32)", lambda a, b, c: a >> 16 & 255),
])
def test_operations_on_bits(expression: str, meaning: object) -> None:
    got = computed(expression, "u32", "u32", a=WORDS, b=OTHER, c=SMALL)
    assert got.tolist() == words(meaning, WORDS, OTHER, SMALL)


def test_a_signed_field_extends_its_sign() -> None:
    a = WORDS.view(np.int32)
    got = computed("bit_extract(a[i], 3, 6)", "i32", "i32", a=a)
    fields = [(int(v) >> 3) & 63 for v in a]
    assert got.tolist() == [f - 64 if f & 32 else f for f in fields]


def exact(op: str, x: float, y: float) -> Fraction:
    a, b = Fraction(x), Fraction(y)
    return {"add": a + b, "sub": a - b, "mul": a * b, "div": a / b if b else a}[op]


@pytest.mark.parametrize("op", ["add", "sub", "mul", "div"])
@pytest.mark.parametrize("how", ["rn", "rz", "ru", "rd"])
def test_arithmetic_rounds_as_it_says(op: str, how: str) -> None:
    a = (RNG.standard_normal(64) * 10.0 ** RNG.integers(-6, 6, 64)).astype(np.float32)
    b = (RNG.standard_normal(64) * 10.0 ** RNG.integers(-6, 6, 64)).astype(np.float32)
    got = computed(f"{op}_rounded(a[i], b[i], rounding={how})", "f32", "f32", a=a, b=b)
    for x, y, z in zip(a.tolist(), b.tolist(), got, strict=True):
        value, result = exact(op, x, y), Fraction(float(z))
        below, above = (Fraction(float(np.nextafter(z, np.float32(s) * np.inf))) for s in (-1, 1))
        assert below < value < above
        assert {"rn": abs(result - value) <= min(abs(below - value), abs(above - value)), "rz": abs(result) <= abs(value),
                "ru": result >= value, "rd": result <= value}[how]


def test_flushing_and_saturation() -> None:
    a = np.array([1e-39, -1e-39, 0.5, 2.0, -3.0, np.nan, 1e-20, 1e-38] * 8, np.float32)
    assert np.array_equal(computed("add_rounded(a[i], 0.0, ftz=true)", "f32", "f32", a=a)[:4], np.array([0, 0, 0.5, 2], np.float32))
    assert computed("mul_rounded(a[i], 1.0, sat=true)", "f32", "f32", a=a)[2:6].tolist() == [0.5, 1.0, 0.0, 0.0]
    assert computed("rcp_approx(a[i])", "f32", "f32", a=a)[0] == np.inf
    assert np.isfinite(computed("rcp_approx(a[i] * 100.0, subnormal=true)", "f32", "f32", a=a)[0])
    assert computed("mul_rounded(a[i], a[i], ftz=true)", "f32", "f32", a=a)[6] == 0.0


def test_tf32_keeps_ten_bits() -> None:
    a = np.array([1 + 2.0**-11, 1 + 3 * 2.0**-11, -1 - 2.0**-11, 1 + 2.0**-10, np.inf, 0.0, 1.75, 1 + 2.0**-12] * 8, np.float32)
    assert computed("to_tf32(a[i])", "f32", "f32", a=a)[:4].tolist() == [1.0, 1 + 2.0**-9, -1.0, 1 + 2.0**-10]
    assert computed("to_tf32(a[i], rounding=rna)", "f32", "f32", a=a)[:3].tolist() == [1 + 2.0**-10, 1 + 2.0**-9, -1 - 2.0**-10]
    assert computed("to_tf32(a[i], rounding=rz)", "f32", "f32", a=a)[:3].tolist() == [1.0, 1 + 2.0**-10, -1.0]


def test_lanes_reduce_and_ordered_accesses_communicate() -> None:
    text = """kir 1
program p
  in a: u32[64]
  out y: u32[64]
  inout flag: u32[1]
kernel main grid (b: 1) threads 64
  for t in 0..64 parallel thread
    let most = warp_reduce(a[t], op=max)
    let seen = atomic_load(&flag[0], order=acquire)
    y[t] = most + seen
    if t % 32 < 2
      let low = warp_reduce(a[t], op=add, mask=3)
      y[t] = low + seen
    barrier()
    if t == 0
      atomic_store(&flag[0], 5:u32, order=release)
"""
    a = WORDS % np.uint32(1000)
    got = run(parse_program(text), {"a": a, "flag": np.zeros(1, np.uint32)}, mode="check")
    assert [f for f in got.findings if f.severity == "error"] == []
    stray = run(parse_program(text.replace("t % 32 < 2", "t % 32 < 3")), {"a": a, "flag": np.zeros(1, np.uint32)}, mode="check")
    assert "KIR-I018" in {f.id for f in stray.findings if f.severity == "error"}, "a lane outside the mask reduces with it"
    y = got.outputs["y"]
    assert y[0] == a[0] + a[1] and y[5] == a[:32].max() and y[40] == a[32:].max() and got.outputs["flag"][0] == 5
