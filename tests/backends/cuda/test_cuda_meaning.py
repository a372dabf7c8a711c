"""Emitted CUDA C++, compiled for the host with threads for threads, gives what the IR means."""
from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from kir.ir import nodes as n
from kir.ir.parser import parse_program
from kir.problem import load_problem, numpy_dtype
from tests.backends.conftest import Arrays
from tests.backends.cuda.host_cuda import EMULATED, HOST, agrees
from tests.programs import EXPERTS, parsed

pytestmark = pytest.mark.gxx


@pytest.mark.parametrize(("file", "problem", "sizes"), [
    ("softmax/softmax", "softmax", {"M": 3, "N": 331}), ("rmsnorm/rmsnorm", "rmsnorm", {"M": 2, "N": 1048}),
    ("gemm/gemm_sm80_lanes", "gemm", {"M": 136, "N": 136, "K": 104}), ("", "gemm", {"M": 5, "N": 6, "K": 7}),
    ("", "softmax", {"M": 2, "N": 9}), ("", "conv2d", {})])
def test_experts_and_naive_programs_agree_with_the_interpreter(tmp_path: Path, file: str, problem: str, sizes: dict[str, int]) -> None:
    wanted = load_problem(problem)
    p = parsed(EXPERTS / f"{file}.kir") if file else wanted.naive
    at = wanted.tagged("small")[0]
    at = at.model_copy(update={"name": "here", "sizes": {**at.sizes, **sizes}})
    arrays = wanted.inputs(at, seed=4)
    for t in wanted.spec.tensors:
        if t.name not in arrays:
            arrays[t.name] = np.zeros(wanted.tensor_shape(t, at), numpy_dtype(wanted.tensor_dtype(t)))
    arrays = {q.name: arrays[q.name] for q in p.params if isinstance(q.of, n.Buffer)}
    agrees(p, tmp_path, arrays, wanted.scalars(at), tolerance=2**-9)


BODY = """kir 1
program p
  in X: f32[64]
  in I: i32[64]
  inout Y: f32[64]
  inout J: i32[64]
function clamped(a: f32, b: f32) -> f32
  return min(max(a, -b), b)
kernel main grid (g: 1) threads 64
  shared S: f32[8, 8] layout swizzle(2, 2, 3)
  shared best: i32 = 0
  shared sums: i32[4] = 0
  for t in 0..64 parallel thread
    let x = X[t]
    let j = I[t]
    S[t // 8, t % 8] = x
    atomic_max(&best, j)
    atomic_add(&sums[0 +: 4], iota(4) * j, iota(4) < t % 4)
    barrier()
    let row = S[t % 8, 0 +: 8]
    let total = reduce(row * row, axis=0, op=sum)
    register acc: f32 = 0.0
    for k in 0..8 unroll {factor=4}
      acc = acc + S[k, t // 8] * clamped(x, 0.5)
    if j < 0
      acc = -acc
    Y[t] = acc + total + shfl_xor(x, 5)
    register own: f32[8] = S[t % 8, 0 +: 8]
    own[1 +: 6] = own[0 +: 6] + own[2 +: 6]
    own[4 +: 4] = own[0 +: 4]
    Y[t] = Y[t] + own[t % 8]
    register n: i32 = 0
    while n * n < best
      n = n + 1
    let wide = cast(j, i64) * 1234567890123:i64
    let bits = popc(wide) + clz(wide) * 100 + ffs(wide) * 10000 + cast(brev(wide) >> 40:i64, i32) + popc(j)
    let others = clz(j) * 3 + cast(x * 3.0, i32, rd) * 7 + cast(mulhi(wide, wide), i32)
    J[t] = (j // 3) * 7 + j % 5 + ceildiv(j, 4) + tdiv(j, 3) + (j & 6) + (n << 1) + bits + others + sums[t % 4]
"""


def test_expressions_and_control_agree_with_the_interpreter(tmp_path: Path) -> None:
    random = np.random.default_rng(7)
    arrays: Arrays = {"X": random.normal(size=64).astype(np.float32), "I": random.integers(-50, 50, 64).astype(np.int32),
                      "Y": np.zeros(64, np.float32), "J": np.zeros(64, np.int32)}
    agrees(parse_program(BODY, "p.kir"), tmp_path, arrays, {}, tolerance=1e-6)


def test_the_host_emulates_exactly_what_wraps_ptx() -> None:
    text = HOST.read_text()
    assert all(re.search(rf"\b{name}\(", text) for name in EMULATED if name != "shared_address")
    assert shutil.which("g++")
