"""What single instructions and expressions compute, against independent references."""
from __future__ import annotations

import math
from itertools import product
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kir.base.instructions import table
from kir.interp import run
from kir.interp.calls.atomic import _at_once, _one_by_one, _turns
from kir.interp.calls.elementwise import philox
from kir.interp.calls.sync import WAITING
from kir.interp.evaluation.expressions import CALLS
from kir.interp.numerics import number
from kir.interp.numerics.number import storage
from kir.ir.parser import parse_program
from kir.ir.types import BF16, BOOL, DTYPES, F8E4M3, F16, F32, I4, I8, I32, U8, U32

Array = np.ndarray[Any, Any]


def outputs(text: str, **arrays: Array) -> dict[str, Array]:
    result = run(parse_program("kir 1\n" + text, "p.kir"), arrays)
    assert not result.findings, [f.message for f in result.findings]
    return result.outputs


def mapped(expression: str, x: Array, dtype: str = "f32", out: str = "f32") -> Array:
    """`expression` over a tile x."""
    return outputs(f"program p\n  in X: {dtype}[{len(x)}]\n  out Y: {out}[{len(x)}]\nkernel main grid (b: 1) threads 1\n"
                   f"  let x = X\n  Y = {expression}\n", X=x)["Y"]


def test_every_row_of_the_table_has_a_meaning() -> None:
    assert {name for name, row in table().items() if row.level != "static"} == set(CALLS) | set(WAITING)


# ------------------------------------------------------------------------------------------------------------------- numbers

@given(st.sampled_from(["add", "sub", "mul", "floordiv", "mod", "ceildiv", "tdiv", "trem", "and", "or", "xor", "shl", "shr", "min", "max"]),
       st.sampled_from([I4, I8, I32, U8, U32]), st.integers(-(2**31), 2**32 - 1), st.integers(-(2**31), 2**32 - 1))
def test_integers_wrap_like_literals_fold(op: str, dtype: Any, a: int, b: int) -> None:
    from kir.ir.build import const, fold
    x, y = const(a, dtype), const(b, dtype)
    folded = fold(op, x, y)
    if folded is not None:
        kind = number.storage(dtype)
        with np.errstate(all="ignore"):
            got = number.binary(op, dtype, np.array([x.value]).astype(kind), np.array([y.value]).astype(kind))
        assert int(got[0]) == folded.value


def test_narrow_floats_round_after_each_operation() -> None:
    x = np.array([1.0, 1 / 3, 1000.0], np.float32).astype(ml_dtypes.bfloat16)
    got = mapped("x * x + x", x, "bf16", "bf16")
    square = (x.astype(np.float32) ** 2).astype(ml_dtypes.bfloat16)
    assert np.array_equal(got, (square.astype(np.float32) + x.astype(np.float32)).astype(ml_dtypes.bfloat16))


def test_minimum_of_a_nan_is_the_other_operand() -> None:
    x = np.array([np.nan, 2.0], np.float32)
    assert mapped("min(x, 1.0)", x).tolist() == [1.0, 1.0]
    assert np.isnan(mapped("min_nan(x, x * 0.0)", x)[0])


@pytest.mark.parametrize(("rounding", "value", "wanted"), [
    ("rz", 2.9, 2), ("rz", -2.9, -2), ("ru", 2.1, 3), ("rd", -2.1, -3), ("rn", 300.7, 300), ("rn", math.nan, 0), ("rn", 1e20, 2**31 - 1)])
def test_floats_become_integers(rounding: str, value: float, wanted: int) -> None:
    assert number.cast(np.array([value], np.float32), F32, I32, rounding).tolist() == [wanted]


@given(st.floats(-6e4, 6e4, allow_nan=False), st.sampled_from([F16, BF16]))
def test_directed_rounding_brackets(value: float, dtype: Any) -> None:
    x = np.array([value], np.float32)
    down, up, zero = (float(number.cast(x, F32, dtype, r)[0]) for r in ("rd", "ru", "rz"))
    assert down <= float(x[0]) <= up and abs(zero) <= abs(float(x[0])) and zero in (down, up)
    assert number.cast(x, F32, dtype, "rn")[0] in (np.array([down, up]).astype(number.storage(dtype)))


def test_saturating_and_bit_casts() -> None:
    assert float(number.cast(np.array([1e9], np.float32), F32, F8E4M3, "sat")[0]) == 448.0
    assert number.cast(np.array([300, -5], np.int32), I32, U8, "sat").tolist() == [255, 0]
    assert number.cast(np.array([1.0], np.float32), F32, U32, "bits").tolist() == [0x3F800000]


def test_a_narrow_integer_has_the_low_bits_of_what_a_float_is_cut_off_to() -> None:
    """As `cvt.rzi.s32.f32` and a store of a byte do, which is what compilers make of it; PTX that names the narrow type clamps to that."""
    text = "kir 1\nprogram p\n  in X: f32[6]\n  out Y: {}[6]\nkernel main grid (i: {}) threads 1\n{}"
    x = np.array([300.0, -300.0, 70000.0, np.nan, np.inf, -3e9], np.float32)
    for dtype, expected in (("i8", [44, -44, 112, 0, -1, 0]), ("u8", [44, 0, 112, 0, 255, 0]), ("i16", [300, -300, 4464, 0, -1, 0])):
        for grid, body in ((6, f"  Y[i] = cast(X[i], {dtype})\n"), (1, f"  for k in 0..6\n    Y[k] = cast(X[k], {dtype})\n")):
            assert run(parse_program(text.format(dtype, grid, body)), {"X": x}, {}).outputs["Y"].tolist() == expected
    assert number.cast(x, F32, U8, "sat").tolist() == [255, 0, 255, 0, 255, 0]


def test_tf32_keeps_ten_bits() -> None:
    x = np.array([1 + 2**-10, 1 + 2**-11, 1 + 3 * 2**-12, np.inf, -1 - 2**-10], np.float32)
    assert number.to_tf32(x).tolist() == [1 + 2**-10, 1.0, 1 + 2**-10, np.inf, -1 - 2**-10]


@pytest.mark.parametrize("fn", ["exp", "exp2", "log", "sqrt", "rsqrt", "sin", "tanh", "erf", "sigmoid", "floor", "round_even"])
def test_math_is_correctly_rounded(fn: str) -> None:
    x = np.array([0.1, 0.5, 1.5, 2.5, 3.7], np.float32)
    exact: Any = {"rsqrt": lambda v: 1 / math.sqrt(v), "sigmoid": lambda v: 1 / (1 + math.exp(-v)), "exp2": lambda v: 2.0**v,
             "round_even": round}.get(fn) or getattr(math, fn)
    assert mapped(f"{fn}(x)", x).tolist() == [np.float32(exact(float(v))) for v in x]


def test_bit_counting() -> None:
    x = np.array([0, 1, -1, 0x50], np.int32)
    assert mapped("popc(x)", x, "i32", "i32").tolist() == [0, 1, 32, 2]
    assert mapped("clz(x)", x, "i32", "i32").tolist() == [32, 31, 0, 25]
    assert mapped("ffs(x)", x, "i32", "i32").tolist() == [0, 1, 1, 5]
    assert mapped("brev(x)", x, "i32", "i32").tolist() == [0, -(2**31), -1, 0x0A000000]
    assert mapped("mulhi(x, x)", x, "i32", "i32").tolist() == [0, 0, 0, 0]


def test_special_functions() -> None:
    """Values of Abramowitz and Stegun, tables 9.1, 9.8, 6.1 and 7.1."""
    x = np.array([0.0, 1.0, 2.0, 10.0], np.float32)
    for fn, wanted in {"j0": [1.0, 0.7651976866, 0.2238907791, -0.2459357645], "j1": [0.0, 0.4400505857, 0.5767248078, 0.0434727462],
                       "i0": [1.0, 1.2660658778, 2.2795853023, 2815.7166284663], "i1": [0.0, 0.5651591040, 1.5906368546, 2670.9883037013],
                       "erfcx": [1.0, 0.4275835762, 0.2553956763, 0.0561409927]}.items():
        np.testing.assert_allclose(mapped(f"{fn}(x)", x), wanted, rtol=1e-6, atol=1e-7)
    assert mapped("tgamma(x)", np.array([0.5, 1.0, 5.0, -1.0], np.float32)).tolist()[1:3] == [1.0, 24.0]
    far = np.array([1000.0], np.float32)
    np.testing.assert_allclose(mapped("j0(x)", far), [0.0247866861], rtol=1e-4)


def test_steps_and_exponents() -> None:
    x = np.array([1.0, -1.0, 0.0, 1.5], np.float32)
    assert np.array_equal(mapped("nextafter(x, x * 0.0 + 2.0)", x), np.nextafter(x, np.float32(2)))
    assert np.array_equal(mapped("nextafter(x, x * 0.0 - 2.0)", x), np.nextafter(x, np.float32(-2)))
    assert mapped("ilogb(x)", np.array([8.0, 0.75, 0.0, np.inf], np.float32), out="i32").tolist() == [3, -1, -(2**31), 2**31 - 1]
    assert mapped("ldexp(x, iota(4))", x).tolist() == [1.0, -2.0, 0.0, 12.0]
    assert mapped("remainder(x * 5.0, x * 0.0 + 3.0)", x).tolist() == [-1.0, 1.0, 0.0, 1.5]
    thirds = mapped("div_rz(x, x * 0.0 + 3.0)", np.array([1.0, 2.0, -2.0], np.float32)).astype(np.float64)
    assert (np.abs(thirds) <= np.array([1 / 3, 2 / 3, 2 / 3])).all()


def test_philox_gives_the_published_vectors() -> None:
    """Known answers of Random123 for philox4x32-10."""
    zero, ones = np.zeros(1, np.uint32), np.full(1, 0xFFFFFFFF, np.uint32)
    assert [int(w[0]) for w in philox(np.zeros(1, np.uint64), (zero,) * 4)] == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    assert [int(w[0]) for w in philox(np.full(1, 2**64 - 1, np.uint64), (ones,) * 4)] == [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]


# --------------------------------------------------------------------------------------------------------------------- tiles

def test_reductions_scans_and_sorts() -> None:
    x = np.random.default_rng(0).normal(size=37).astype(np.float32)
    got = outputs("""program p
  in X: f32[37]
  out S: f32[1]
  out M: i32[1]
  out C: f32[37]
  out R: f32[37]
  out O: f32[37]
function pick_larger(a: f32, i: i32, b: f32, j: i32) -> f32, i32
  if a > b
    return a, i
  return b, j
kernel main grid (b: 1) threads 32
  let x = X
  S[0] = reduce(x, axis=0, op=sum)
  let top, at = reduce(x, iota(37), axis=0, combine=pick_larger)
  M[0] = at
  C = scan(x, axis=0, op=sum)
  R = scan(x, axis=0, op=max, reverse=true)
  O = sort(x, descending=true)
""", X=x)
    np.testing.assert_allclose(got["S"][0], x.sum(), rtol=1e-5)
    assert got["M"][0] == x.argmax()
    np.testing.assert_allclose(got["C"], np.cumsum(x), rtol=1e-4, atol=1e-5)
    assert np.array_equal(got["R"], np.maximum.accumulate(x[::-1])[::-1]) and np.array_equal(got["O"], np.sort(x)[::-1])


def test_shapes_of_tiles() -> None:
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    got = outputs("""program p
  in X: f32[4, 6]
  out T: f32[6, 4]
  out G: f32[4, 2]
  out J: f32[4, 12]
  out K: f32[2]
kernel main grid (b: 1) threads 32
  T = trans(X, 1, 0)
  G = gather(X, broadcast(expand(iota(2) * 3, axis=0), 4, 2), axis=1)
  J = reshape(join(X, -X), 4, 12)
  K = pick(X, 1, iota(2) + 2)
""", X=x)
    assert np.array_equal(got["T"], x.T) and np.array_equal(got["G"], x[:, [0, 3]]) and got["K"].tolist() == [8, 9]
    assert np.array_equal(got["J"], np.stack([x, -x], axis=-1).reshape(4, 12))


# --------------------------------------------------------------------------------------------------------------------- warps

def test_lanes_exchange_values() -> None:
    x = np.arange(64, dtype=np.int32) * 3 % 17
    got = outputs("""program p
  in X: i32[64]
  out A: i32[64]
  out B: i32[64]
  out C: i32[64]
  out D: u32[64]
  out E: u32[64]
kernel main grid (g: 1) threads 64
  for t in 0..64 parallel thread
    let x = X[t]
    let a = shfl_xor(x, 5)
    let b = shfl_up(x, 3, width=16)
    let c = shfl_idx(x, 7, width=8)
    let d = ballot(x > 8)
    let e = match_any(x)
    A[t] = a
    B[t] = b
    C[t] = c
    D[t] = d
    E[t] = e
""", X=x)
    lane = np.arange(64)
    assert np.array_equal(got["A"], x[lane ^ 5])
    assert np.array_equal(got["B"], x[np.where(lane % 16 >= 3, lane - 3, lane)])
    assert np.array_equal(got["C"], x[lane // 8 * 8 + 7])
    for w in range(2):
        part = x[32 * w:32 * w + 32]
        assert set(got["D"][32 * w:32 * w + 32]) == {sum(1 << i for i in range(32) if part[i] > 8)}
        assert got["E"][32 * w:32 * w + 32].tolist() == [sum(1 << i for i in range(32) if part[i] == v) for v in part]


@pytest.mark.parametrize("trans", [False, True])
def test_ldmatrix_and_mma_sync_multiply_matrices(trans: bool) -> None:
    rng = np.random.default_rng(3)
    a, b = rng.integers(-4, 5, (16, 16)).astype(np.float16), rng.integers(-4, 5, (16, 8)).astype(np.float16)
    held = b if trans else np.ascontiguousarray(b.T)
    place = "&Bs[t % 16, 0 +: 8]" if trans else "&Bs[t % 8, t // 8 % 2 * 8 +: 8]"
    got = outputs(f"""program p
  in A: f16[16, 16]
  in B: f16[{held.shape[0]}, {held.shape[1]}]
  out C: f32[16, 8]
kernel main grid (g: 1) threads 32
  shared As: f16[16, 16] layout swizzle(1, 4, 3)
  shared Bs: f16[{held.shape[0]}, {held.shape[1]}]
  As = A
  Bs = B
  for t in 0..32 parallel thread
    let a = ldmatrix(&As[t % 16, t // 16 * 8 +: 8], num=4)
    let b = ldmatrix({place}, num=2, trans={str(trans).lower()})
    register zero: f32[4] = 0.0
    let c = mma_sync(a, b, zero, shape=m16n8k16)
    C[t // 4, t % 4 * 2 +: 2] = vec(pick(c, 0), pick(c, 1))
    C[t // 4 + 8, t % 4 * 2 +: 2] = vec(pick(c, 2), pick(c, 3))
""", A=a, B=held)
    assert np.array_equal(got["C"], a.astype(np.float32) @ b.astype(np.float32))


def test_stmatrix_is_the_inverse_of_ldmatrix() -> None:
    x = np.arange(256, dtype=np.float16).reshape(16, 16)
    got = outputs("""program p
  in X: f16[16, 16]
  out Y: f16[16, 16]
kernel main grid (g: 1) threads 32
  shared s: f16[16, 16]
  shared r: f16[16, 16]
  s = X
  for t in 0..32 parallel thread
    let v = ldmatrix(&s[t % 16, t // 16 * 8 +: 8], num=4)
    stmatrix(&r[t % 16, t // 16 * 8 +: 8], v)
  Y = r
""", X=x)
    assert np.array_equal(got["Y"], x)


def test_atomics_return_what_was_there() -> None:
    x = np.array([3, 1, 3, 3, 0, 1, 2, 3] * 4, np.int32)
    got = outputs("""program p
  in X: i32[32]
  out N: i32[4]
  out T: i32[32]
  out L: i32[1]
kernel main grid (g: 1) threads 32
  N = 0
  L = -1
  for t in 0..32 parallel thread
    let turn = atomic_add(&N[X[t]], 1)
    T[t] = turn
    atomic_max(&L[0], X[t])
    let old = atomic_cas(&L[0], 99, 5)
""", X=x)
    assert got["N"].tolist() == np.bincount(x).tolist() and got["L"].tolist() == [3]
    assert got["T"].tolist() == [int((x[:t] == x[t]).sum()) for t in range(32)]


def test_updates_of_one_element_at_once_give_what_they_give_one_by_one() -> None:
    drawn = np.random.default_rng(0)
    for dtype, fn in product((I32, U8, BOOL), ("add", "max", "min", "and", "or", "xor", "exch", "store", "load")):
        if dtype.is_bool and fn == "add":
            continue
        at = drawn.integers(0, 5, 300)
        new = drawn.integers(0, 2**8, 300).astype(storage(dtype))
        begun = drawn.integers(0, 2**8, 5).astype(storage(dtype))
        one, other, turns = begun.copy(), begun.copy(), _turns(at)
        got = _one_by_one(one, at, new, None, f"atomic_{fn}", dtype, turns)
        assert got.tobytes() == _at_once(other, at, new, f"atomic_{fn}", dtype, turns).tobytes() and one.tobytes() == other.tobytes()
        alone = begun.copy()
        for k in range(300):  # nobody comes at once with another
            assert got[k] == alone[at[k]]
            _one_by_one(alone, at[k:k + 1], new[k:k + 1], None, f"atomic_{fn}", dtype, _turns(at[k:k + 1]))
        assert alone.tobytes() == one.tobytes()


# -------------------------------------------------------------------------------------------------------- memory and control

def test_views_reinterpret_and_compute() -> None:
    x = np.arange(16, dtype=np.float32)
    got = outputs("""program p
  in X: f32[16]
  out Y: f32[4, 4]
  out Z: u32[4]
kernel main grid (g: 1) threads 32
  view global mirrored(i, j): f32[4, 6] at X[i * 4 + 4 - j] fill -1.0
  Y = mirrored[0 +: 4, 1 +: 4]
  shared pool: u8[128]
  view shared words: f32[4] at pool[64]
  view shared raw: u32[4] at pool[64]
  words = X[0 +: 4]
  Z = raw
""", X=x)
    assert np.array_equal(got["Y"], x.reshape(4, 4)[:, ::-1])
    assert np.array_equal(got["Z"], x[:4].view(np.uint32))


def test_strided_tensors_keep_their_gaps() -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    got = run(parse_program("""kir 1
program p
  size S: i32
  in X: f32[3, 4] strides [S, 1]
  out Y: f32[3, 4] strides [1, 3]
kernel main grid (i: 3, j: 4) threads 1
  Y[i, j] = X[i, j] + 1.0
"""), {"X": x}, {"S": 7}).outputs
    assert np.array_equal(got["Y"], x + 1)


def test_divergent_loops_functions_and_jumps() -> None:
    x = np.arange(32, dtype=np.int32)
    got = outputs("""program p
  in X: i32[32]
  out Y: i32[32]
  out Z: i32[32]
function collatz(n: i32) -> i32
  register at: i32 = n
  register steps: i32 = 0
  while at > 1
    steps = steps + 1
    if at % 2 == 0
      at = at // 2
      continue
    at = at * 3 + 1
    if steps > 200
      break
  return steps
kernel main grid (g: 1) threads 32
  for t in 0..32 parallel thread
    let n = collatz(X[t])
    Y[t] = n
    register sum: i32 = 0
    for i in t..32 step 3
      if i > 20
        break
      sum = sum + i
    Z[t] = sum
""", X=x)

    def collatz(n: int) -> int:
        steps = 0
        while n > 1:
            n, steps = (n // 2 if n % 2 == 0 else 3 * n + 1), steps + 1
        return steps
    assert got["Y"].tolist() == [collatz(n) for n in range(32)]
    assert got["Z"].tolist() == [sum(i for i in range(t, 32, 3) if i <= 20) for t in range(32)]


def test_a_plan_dispatches_on_its_guards() -> None:
    text = """program p
  size N: i32
  in X: f32[N]
  out Y: f32[N]
kernel even grid (g: 1) threads 1
  Y = X * 2.0
kernel odd grid (g: 1) threads 1
  Y = X * 3.0
plan
  dispatch
    when N % 2 == 0
      launch even
    else
      launch odd
"""
    assert outputs(text, X=np.ones(4, np.float32))["Y"].tolist() == [2.0] * 4
    assert outputs(text, X=np.ones(3, np.float32))["Y"].tolist() == [3.0] * 3


def test_products_in_reduced_precision() -> None:
    rng = np.random.default_rng(5)
    a, b = rng.normal(size=(8, 16)).astype(np.float32), rng.normal(size=(16, 8)).astype(np.float32)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    errors = {}
    for precision in ("ieee", "tf32", "tf32x3"):
        got = outputs(f"""program p
  in A: f32[8, 16]
  in B: f32[16, 8]
  out C: f32[8, 8]
kernel main grid (g: 1) threads 32
  fragment acc: f32[8, 8] = 0.0
  mma acc += A * B precision {precision}
  C = acc
""", A=a, B=b)["C"]
        errors[precision] = float(np.abs(got - exact).max())
    assert errors["ieee"] < 1e-5 and errors["tf32x3"] < 1e-5 < errors["tf32"] < 1e-2


def test_every_dtype_is_stored() -> None:
    assert all(number.storage(d).itemsize == d.bytes for d in DTYPES.values() if d.kind != "token")


def test_a_product_does_not_depend_on_how_it_is_cut_into_tiles() -> None:
    from kir.interp.memory_access.tile_product import product
    rng = np.random.default_rng(5)
    for of, dtype in ((F16, np.float16), (F32, np.float32)):
        a, b = rng.normal(size=(70, 48)).astype(dtype), rng.normal(size=(48, 37)).astype(dtype)
        whole = product(a, b, of, "ieee")
        for rows, columns in ((1, 37), (16, 5), (33, 16), (70, 1)):
            parts = [np.concatenate([product(a[i:i + rows], b[:, j:j + columns], of, "ieee") for j in range(0, 37, columns)], 1)
                     for i in range(0, 70, rows)]
            assert np.concatenate(parts).tobytes() == whole.tobytes()
