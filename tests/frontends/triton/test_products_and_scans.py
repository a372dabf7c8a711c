"""Products of microscaled operands, scans by functions in loops, parameters given anew, divisions that round down: what they mean, and what is refused."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from kir.backends.triton import BACKEND
from kir.frontends.triton.frontend import TritonFrontend
from kir.interp import run
from kir.ir import nodes as n
from kir.ir.binding import Binding, Tensor
from kir.ir.bindings.specialize import specialize
from kir.ir.parser import parse_program
from kir.ir.visit import walk
from tests.frontends.reading import opaque
from tests.frontends.triton.reading import execute, read, written_back

E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


@pytest.mark.parametrize(("left", "right", "fast"), [("e5m2", "e2m1", False), ("e2m1", "bf16", True), ("e4m3", "e5m2", False)])
def test_products_of_microscaled_operands(tmp_path: Path, left: str, right: str, fast: bool) -> None:
    """A scale for 32 elements along K, the power of two of its bits less 127; 255 is NaN. A product has no scales where None is given."""
    draw, m, columns, k = np.random.default_rng(0), 16, 32, 64
    kinds = {"e5m2": ml_dtypes.float8_e5m2, "e4m3": ml_dtypes.float8_e4m3fn, "bf16": ml_dtypes.bfloat16}

    def operand(kind: str, rows: int, along: int) -> tuple[np.ndarray, np.ndarray]:
        if kind == "e2m1":
            raw = draw.integers(0, 256, (rows, along // 2)).astype(np.uint8)
            return raw, E2M1[np.stack([raw & 15, raw >> 4], -1).reshape(rows, along)]
        made = draw.normal(size=(rows, along)).astype(kinds[kind])
        return (made if kind == "bf16" else made.view(np.uint8)), made.astype(np.float64)
    a, exact_a = operand(left, m, k)
    b, exact_b = operand(right, columns, k)
    scales = [draw.integers(118, 131, (rows, 2)).astype(np.uint8) for rows in (m, columns)]
    scales[0][3, 1] = 255
    power = [np.where((s == 255) & (not fast), np.nan, np.where(s == 255, np.inf, 2.0 ** (s.astype(float) - 127))) for s in scales]
    bare = right == "bf16"
    source = f"""
@triton.jit
def kernel(a, b, sa, sb, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    m, i, g = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K // 32)
    ka, kb = tl.arange(0, K // {1 + (left == "e2m1")}), tl.arange(0, K // {1 + (right == "e2m1")})
    x = tl.load(a + m[:, None] * (K // {1 + (left == "e2m1")}) + ka[None, :])
    y = tl.load(b + i[None, :] * (K // {1 + (right == "e2m1")}) + kb[:, None])
    p = tl.load(sa + m[:, None] * (K // 32) + g[None, :])
    q = tl.load(sb + i[:, None] * (K // 32) + g[None, :])
    acc = tl.dot_scaled(x, p, "{left}", y, {"None" if bare else "q"}, "{right}", tl.full((M, N), 1.0, tl.float32), fast_math={fast})
    tl.store(c + m[:, None] * N + i[None, :], acc)
"""
    out = execute(tmp_path, source, {"a": a, "b": b, "sa": scales[0], "sb": scales[1], "c": np.zeros((m, columns), np.float32)},
                  metas={"M": m, "N": columns, "K": k})
    with np.errstate(invalid="ignore"):
        want = 1 + (exact_a * np.repeat(power[0], 32, 1)) @ (exact_b * (1 if bare else np.repeat(power[1], 32, 1))).T
    np.testing.assert_allclose(out["c"], want, rtol=1e-5, atol=1e-3)
    written_back(tmp_path, source)
    for old, new in ((f'"{left}"', '"e3m2"'), (f"fast_math={fast}", "lhs_k_pack=False"), ("dot_scaled(x, p", "dot_scaled(tl.load(a), None")):
        assert any("scaled product" in reason for reason in opaque(read(tmp_path, source.replace(old, new))))


def test_a_scan_by_a_function_in_a_loop_whose_names_are_read_twice(tmp_path: Path) -> None:
    """What a loop leaves in a name may have another type than what it finds there: it is read again, with the functions that it combines by."""
    source = """
@triton.jit
def both(ma, sa, mb, sb):
    m = tl.maximum(ma, mb)
    return m, sa * tl.exp(ma - m) + sb * tl.exp(mb - m)

@triton.jit
def kernel(x, y, N, B: tl.constexpr):
    top, total = float("-inf"), 0.0
    for s in range(0, N, B):
        i = s + tl.arange(0, B)
        m, e = tl.associative_scan((tl.load(x + i, mask=i < N, other=float("-inf")), tl.where(i < N, 1.0, 0.0)), 0, both)
        now = tl.maximum(m, top)
        sums = e * tl.exp(m - now) + total * tl.exp(top - now)
        tl.store(y + i, now + tl.log(sums), mask=i < N)
        top, total = tl.max(now, 0), tl.sum(tl.where(i == s + B - 1, sums, 0.0), 0)
"""
    x = np.random.default_rng(0).normal(size=13).astype(np.float32)
    out = execute(tmp_path, source, {"x": x, "y": np.zeros(13, np.float32)}, metas={"B": 4}, scalars={"N": 13})
    np.testing.assert_allclose(out["y"], np.logaddexp.accumulate(x), rtol=1e-5)
    written_back(tmp_path, source)


def test_a_pointer_whose_name_what_is_loaded_takes_and_operators_by_their_methods(tmp_path: Path) -> None:
    source = """
@triton.jit
def kernel(x, at, y, n, scale, first, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    first = tl.load(at + first)
    at = tl.load(at + i, mask=i < n, other=0)
    x = tl.load(x + at, mask=i < n, other=0.0).to(tl.float32)
    x = (x * scale).__add__(1.0)
    tl.store(y + i, x * at.__lshift__(1).__and__(6) + first, mask=i < n)
"""
    x, at = np.random.default_rng(0).normal(size=13).astype(np.float16), np.arange(13, dtype=np.int32)[::-1].copy()
    out = execute(tmp_path, source, {"x": x, "at": at, "y": np.zeros(13, np.float32)}, grid=4, metas={"B": 4}, scalars={"n": 13, "scale": 3, "first": 2})
    np.testing.assert_array_equal(out["y"], (x[at].astype(np.float32) * 3 + 1) * ((at << 1) & 6) + at[2])
    written_back(tmp_path, source)


def test_divisions_of_what_may_be_negative_are_written_so_that_they_round_as_they_did_and_read_back(tmp_path: Path) -> None:
    """Triton truncates: the dividend is moved first, and a remainder is taken twice. Loops keep what they say of unrolling."""
    program = parse_program("""kir 1
program p
  size n: i32
  in X: i32[64]
  out Y: i32[64]
  out Z: i32[64]
  out W: i32[64]
  fact n >= 1
kernel main grid (b: 1) threads 128
  for k in 0..ceildiv(64 - n, 16) unroll {factor=2}
    let x = X[k * 16 +: 16]
    Y[k * 16 +: 16] = x // 5
    Z[k * 16 +: 16] = x % 5
    W[k * 16 +: 16] = ceildiv(x, 5)
""")
    text = BACKEND.emit(program).text
    assert "loop_unroll_factor=2" in text
    binding = Binding(recorded=True, grid=[1], scalars={"n": 16}, tensors={k: Tensor(shape=[64], dtype="i32") for k in "XYZW"})
    (tmp_path / "k.py").write_text(text, encoding="utf-8")
    (ref,) = TritonFrontend().kernels(tmp_path / "k.py")
    again = specialize(TritonFrontend().parse(tmp_path / "k.py", ref.name), binding)
    assert not any(isinstance(e, n.Binary) and e.op == "tdiv" for k in again.kernels for e in walk(k))
    x = np.arange(-32, 32).astype(np.int32)
    for made in (program, again):
        out = run(made, {"X": x, **({} if made is program else {k: np.zeros(64, np.int32) for k in "YZW"})}, {"n": 16}).outputs
        for name, want in (("Y", x // 5), ("Z", x % 5), ("W", -(-x // 5))):
            np.testing.assert_array_equal(out[name][:48], want[:48])
