"""Emitted Triton, run by Triton's own interpreter, gives what the IR means."""
from __future__ import annotations

import numpy as np
import pytest

from kir.interp import run
from kir.ir import nodes as n
from kir.ir.parser import parse_program
from kir.problem import load_problem
from tests.backends.conftest import Arrays, Job, Launch, program

pytestmark = pytest.mark.triton


def agree(launch: Launch, jobs: list[Job], tolerance: float) -> None:
    """Both run on copies of the same arrays; outputs equal up to a relative tolerance of their largest magnitude."""
    expected = [run(p, {k: v.copy() for k, v in arrays.items()}, scalars).outputs for p, arrays, scalars in jobs]
    for number, (got, want) in enumerate(zip(launch(jobs), expected, strict=True)):
        for name, exact in want.items():
            a, b = got[name].astype(np.float64), exact.astype(np.float64)
            assert a.shape == b.shape and np.array_equal(np.isfinite(a), np.isfinite(b)), (number, name)
            finite = np.isfinite(b)
            assert np.all(np.abs(a - b)[finite] <= tolerance * np.max(np.abs(b[finite]), initial=0.0)), (number, name, a, b)


def job(p: n.Program, problem: str, sizes: dict[str, int]) -> Job:
    """A program on inputs of a problem at these sizes; outputs start as sevens."""
    wanted = load_problem(problem)
    at = wanted.shapes[0].model_copy(update={"name": "here", "sizes": sizes})
    arrays = wanted.inputs(at, seed=3)
    for q in p.params:
        if isinstance(q.of, n.Buffer) and q.name not in arrays:
            extents = [sizes[d.name] for d in q.of.shape if isinstance(d, n.Var)]
            arrays[q.name] = np.full(extents, 7, np.float16 if q.of.dtype.name == "f16" else np.float32)
    return p, arrays, wanted.scalars(at)


def test_tile_and_naive_programs_agree_with_the_interpreter(launch: Launch) -> None:
    jobs = [job(program("gemm_tile"), "gemm", {"M": 136, "N": 144, "K": 80}), job(program("softmax_tile"), "softmax", {"M": 3, "N": 37}),
            job(program("rmsnorm_tile"), "rmsnorm", {"M": 5, "N": 328})]
    jobs += [job(load_problem("gemm").naive, "gemm", {"M": 3, "N": 5, "K": 7})]
    jobs += [job(load_problem(name).naive, name, {"M": 2, "N": 9}) for name in ("softmax", "rmsnorm")]
    agree(launch, jobs, tolerance=2**-10)


def elementwise(lines: str) -> n.Program:
    """A one-CTA program over X, I -> Y, J of 64 elements, with the lines as its body."""
    body = "\n".join(f"  {line}" for line in lines.strip().splitlines())
    return parse_program(f"""kir 1
program p
  in X: f32[64]
  in I: i32[64]
  out Y: f32[64]
  out J: i32[64]
{FUNCTIONS}kernel main grid (i: 1) threads 32
  let x = X[0 +: 64]
  let j = I[0 +: 64]
{body}
""", "p.kir")


BODIES = [
    "Y[0 +: 64] = min(x, 0.25) * 2.0 - max(x, -x)\nJ[0 +: 64] = (j & 7) ^ (j | 16)",
    "Y[0 +: 64] = select(x < 0.0, exp(x), x / 3.0)\nJ[0 +: 64] = tdiv(j, 3) + trem(j, 3)",
    "Y[0 +: 64] = cast(cast(x, f16), f32)\nJ[0 +: 64] = cast(x * 10.0, i32)",
    "let t = reshape(x, 8, 8)\nY[0 +: 64] = reshape(trans(t, 1, 0), 64)\nJ[0 +: 64] = j << 2",
    "Y[0 +: 64] = scan(x, axis=0, op=sum)\nJ[0 +: 64] = select((j > 3) & (x < 1.0), -j, j)",
    "let t = reshape(x, 8, 8)\nlet m = reduce(t, axis=1, op=max)\nY[0 +: 64] = reshape(t - expand(m, axis=1), 64)\n"
    "J[0 +: 64] = broadcast(reduce(j, axis=0, op=xor), 64)",
    "Y[iota(64) ^ 1] = x\nJ[0 +: 64] = cast(reduce(x, axis=0, op=argmax), i32) + j",
    "fragment acc: f32[64] = 1.0\nregister n: i32 = 0\nfor t in 0..5\n  acc = acc * 1.5 + x where x > 0.0\n"
    "  if t > 2\n    n = n + t\n"
    "Y[0 +: 64] = acc\nJ[0 +: 64] = j + n",
    "register n: i32 = 37\nregister s: i32 = 0\nwhile n > 0\n  s = s + (n & 1)\n  n = n >> 1\n"
    "Y[0 +: 64] = x\nJ[0 +: 64] = broadcast(s, 64)",
    "Y[0 +: 64] = load(X[iota(64) * 2] where iota(64) < 60 else -1.0 clip)\nJ[0 +: 64 ] = load(I[32 +: 64] else 5 clip)",
    "let v = load(X[8 - iota(64)] else 9.0 clip)\nY[0 +: 64] = v\n"
    "J[0 +: 32 step 2] = I[1 +: 32 step 2]\nJ[1 +: 32 step 2] = I[0 +: 32 step 2]",
    "Y[0 +: 64] = broadcast(reduce(x, axis=0, combine=larger), 64)\nJ[0 +: 64] = scan(j, axis=0, combine=both)",
]
FUNCTIONS = """function larger(a: f32, b: f32) -> f32
  return select(a * a < b * b, b, a)
function both(a: i32, b: i32) -> i32
  return a | b
"""


def test_expressions_and_control_agree_with_the_interpreter(launch: Launch) -> None:
    random = np.random.default_rng(5)
    arrays: Arrays = {"X": random.normal(size=64).astype(np.float32), "I": random.integers(-40, 40, 64).astype(np.int32),
                      "Y": np.zeros(64, np.float32), "J": np.zeros(64, np.int32)}
    agree(launch, [(elementwise(lines), arrays, {}) for lines in BODIES], tolerance=1e-6)


def test_a_grid_of_four_axes_is_taken_apart(launch: Launch) -> None:
    p = parse_program("""kir 1
program p
  size A: i32
  size B: i32
  out Y: i32[A, B, 2, 3]
kernel main grid (d: 3, c: 2, b: B, a: A) threads 1
  Y[a, b, c, d] = a * 1000 + b * 100 + c * 10 + d
""", "p.kir")
    agree(launch, [(p, {"Y": np.zeros((2, 3, 2, 3), np.int32)}, {"A": 2, "B": 3})], tolerance=0.0)
