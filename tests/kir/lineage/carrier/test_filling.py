"""Putting answers where holes are: what fits, what does not, and what would mean something else there."""
from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kir.base.diagnostic import KirError
from kir.interp import run
from kir.ir import nodes as n
from kir.ir.parser import parse_program
from kir.ir.printer import program_text
from kir.lineage.carrier import Answer, Contract, check, fill, holes
from tests.kir.lineage.carrier.asking import HERE, HOST, SERIAL, TOY

ANSWER = check(TOY, Answer(SERIAL)).program_or_raise()
HALVES = """kir 1
program toy_sum
  size N: i32
  in X: f32[N]
  out S: f32[1]
  workspace part: f32[2]
function half(a: f32, b: f32) -> f32
  return a + b
kernel first grid (h: 2) threads 32
  register total: f32 = 0.0
  for i in 0..N
    if i % 2 == h
      total = half(total, X[i])
  part[h] = total
kernel second grid () threads 32
  S[0] = half(part[0], part[1])
plan
  launch first
  launch second
"""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Contract:
    """The toy at the level of a program, its output the sum alone, granted that N is at least 2."""
    folder = tmp_path_factory.mktemp("toy_sum")
    text = (HERE / "toy" / "contract.toml").read_text().replace("toy-prefix", "toy-sum").replace('level = "cta"', 'level = "program"')
    text = text.replace('  { name = "P", role = "out", dtype = "f32", shape = ["N"] },\n', "").replace("N = 1 }", "N = 2 }")
    (folder / "contract.toml").write_text(text.replace("shapes = [", 'facts = ["N >= 2"]\nshapes = [', 1))
    (folder / "reference.py").write_text((HERE / "toy" / "reference.py").read_text())
    return Contract(folder)


def hole_in(text: str) -> tuple[n.Program, tuple[int | str, ...]]:
    program = parse_program(text)
    (path, _), = holes(program)
    return program, path


@pytest.mark.parametrize(("old", "new", "id", "said"), [
    ("toy-prefix/1", "toy-prefix/2", "KIR-H105", "names contract"),
    ("reads A[row, 0 +: N] ", "", "KIR-H105", "reads 0 places"),
    ("B[row, 0 +: N], ", "", "KIR-H105", "writes 1 places"),
    ("A[row, 0 +: N]", "A[row, 0 +: N + -1]", "KIR-H105", "dimension N"),
    ("A[row, 0 +: N]", "A[row, 0]", "KIR-H105", "rank 0"),
    ("in A: f32[R, N]", "in A: f16[R, N]", "KIR-H105", "gives f16"),
    ("T[row +: 1]", "T[row +: 2]", "KIR-H105", "dimension 1"),
    ("reads A[row", "reads B[row", "KIR-H107", "same memory"),
    ("threads 32", "threads 64", "KIR-H108", "64 threads"),
    ("  @sums", "  for t in 0..32 parallel thread\n    @sums", "KIR-H108", "smaller team"),
])
def test_a_hole_that_does_not_fit_is_refused(old: str, new: str, id: str, said: str) -> None:
    assert old in HOST
    program, path = hole_in(HOST.replace(old, new, 1))
    with pytest.raises(KirError, match=id) as refused:
        fill(TOY, program, path, ANSWER)
    assert said in str(refused.value) and refused.value.diagnostics[0].origin is not None


def test_an_inner_part_and_its_offset_carry_over() -> None:
    text = HOST.replace("A[row, 0 +: N] writes B[row, 0 +: N]", "A[row, 3 +: 5] writes B[row, 2 +: 5]")
    program, path = hole_in(text)
    filled = fill(TOY, program, path, ANSWER)
    assert "A[row, i_1 + 3]" in program_text(filled) and "0..5" in program_text(filled)
    rng = np.random.default_rng(0)
    a = rng.standard_normal((2, 9)).astype(np.float32)
    out = run(filled, {"A": a}, {"R": 2, "N": 9}).outputs
    assert np.allclose(out["B"][:, 2:7], np.cumsum(a[:, 3:8], axis=1), atol=1e-5)
    assert np.allclose(out["T"], a[:, 3:8].sum(axis=1), atol=1e-5)


@pytest.mark.parametrize(("old", "new"), [
    ("  S[0] = total", "  S[0] = load(X[N] else total clip)"),
    ("  register total: f32 = 0.0", "  register total: f32 = 0.0\n  view global words: u32[N] at X"),
])
def test_what_would_mean_something_else_in_a_part_is_refused(old: str, new: str) -> None:
    verdict = check(TOY, Answer(SERIAL.replace(old, new)))
    assert verdict.accepted, verdict.diagnostics
    program, path = hole_in(HOST)
    assert fill(TOY, program, path, verdict.program_or_raise())
    strided = HOST.replace("A: f32[R, N]", "A: f32[N, R]").replace("A[row, 0 +: N]", "A[0 +: N, row]")
    cut = HOST.replace("A[row, 0 +: N] writes B[row, 0 +: N]", "A[row, 3 +: 5] writes B[row, 2 +: 5]")
    program, path = hole_in(strided if "view" in new else cut)
    with pytest.raises(KirError, match="KIR-H150"):
        fill(TOY, program, path, verdict.program_or_raise())


def test_kernels_workspaces_and_functions_stand_for_a_hole_of_a_program(whole: Contract) -> None:
    answer = check(whole, Answer(HALVES)).program_or_raise()
    host = """kir 1
program outer
  size L: i32
  in A: f32[L]
  out B: f32[1]
  workspace part: f32[L]
  fact L >= 2
function half(a: f32) -> f32
  return a * 0.5
kernel first grid (i: L) threads 1
  part[i] = half(A[i])
kernel main grid () threads 1
  hole sum contract "toy-sum/1" reads part writes B
"""
    program, path = hole_in(host)
    filled = fill(whole, program, path, answer)
    assert [k.name for k in filled.kernels] == ["first", "first_1", "second"]
    assert [w.buffer.name for w in filled.workspaces] == ["part", "part_1"] and [f.name for f in filled.functions] == ["half", "half_1"]
    a = np.arange(7, dtype=np.float32)
    assert run(filled, {"A": a}, {"L": 7}).outputs["B"][0] == 10.5
    with pytest.raises(KirError, match="KIR-H106"):
        fill(whole, *hole_in(host.replace("fact L >= 2", "fact L >= 1")), answer)
    with pytest.raises(KirError, match="KIR-H108"):
        fill(whole, *hole_in(host.replace("main grid ()", "main grid (x: 2)")), answer)
    planned, path = hole_in(host + "plan\n  dispatch\n    when L < 9\n      launch first\n      launch main\n    else\n      launch main\n")
    assert run(fill(whole, planned, path, answer), {"A": a}, {"L": 7}).outputs["B"][0] == 10.5


def in_surfaces(contract: Contract, folder: Path, surface: str, threads: int) -> Contract:
    """The contract with answers in another surface, and other threads."""
    text = (contract.folder / "contract.toml").read_text().replace('["kir", "triton", "cuda"]', f'["kir", "{surface}"]')
    (folder / "contract.toml").write_text(text.replace("threads = 32", f"threads = {threads}"))
    (folder / "reference.py").write_text((contract.folder / "reference.py").read_text())
    return Contract(folder)


def test_a_fragment_of_cuda_is_read_by_its_frontend(whole: Contract, tmp_path: Path) -> None:
    source = """#include <cuda_runtime.h>
__global__ void total(const float* __restrict__ x, float* __restrict__ s, int n) {
  __shared__ float part[32];
  float acc = 0.0f;
  for (int i = threadIdx.x; i < n; i += 32) acc += x[i];
  part[threadIdx.x] = acc;
  __syncthreads();
  if (threadIdx.x == 0) {
    float all = 0.0f;
    for (int j = 0; j < 32; ++j) all += part[j];
    s[0] = all;
  }
}
"""
    binding = """kernel = "total"
sizes = ["N"]
facts = ["N >= 2"]
grid = [1]
[metas]
threads_x = 32
threads_y = 1
threads_z = 1
[scalars]
n = "N"
[tensors.x]
name = "X"
shape = ["N"]
dtype = "f32"
align = 0
[tensors.s]
name = "S"
shape = [1]
dtype = "f32"
align = 0
"""
    contract = in_surfaces(whole, tmp_path, "cuda", 32)
    verdict = check(contract, Answer(source, "cuda", binding))
    assert verdict.accepted, [str(d) for d in verdict.diagnostics]
    for old, new, id in (("  __syncthreads();\n", "", "KIR-H131"), ("i < n", "i <= n", "KIR-H131"), ("i += 32", "i += 64", "KIR-H130"),
                         ("s[0] = all", "system(\"id\")", "KIR-H123"),
                         ("<cuda_runtime.h>", '"../../../etc/passwd"', "KIR-H113"), ("__global__", "__device__", "KIR-H114")):
        assert old in source
        found = check(contract, Answer(source.replace(old, new), "cuda", binding)).diagnostics
        assert found and found[0].id == id and found[0].origin is not None, (new, [str(d) for d in found])


def test_a_fragment_of_triton_is_read_by_its_frontend(whole: Contract, tmp_path: Path) -> None:
    contract = in_surfaces(whole, tmp_path, "triton", 128)
    source = """import triton
import triton.language as tl

@triton.jit
def total(x_ptr, s_ptr, n, BLOCK: tl.constexpr):
    acc = 0.0
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        acc += tl.sum(tl.load(x_ptr + at, mask=at < n, other=0.0), axis=0)
    tl.store(s_ptr, acc)
"""
    binding = """kernel = "total"
sizes = ["N"]
facts = ["N >= 2"]
grid = [1]
[metas]
BLOCK = 32
[scalars]
n = "N"
[tensors.x_ptr]
name = "X"
shape = ["N"]
dtype = "f32"
align = 0
[tensors.s_ptr]
name = "S"
shape = [1]
dtype = "f32"
align = 0
[options]
num_warps = 4
"""
    verdict = check(contract, Answer(source, "triton", binding))
    assert verdict.accepted, [str(d) for d in verdict.diagnostics]
    wrong = check(contract, Answer(source.replace("at < n", "at <= n"), "triton", binding))
    assert wrong.diagnostics[0].id == "KIR-H131"
    for text, bound, id in ((source, "", "KIR-F012"), (source.replace("@triton.jit\n", ""), binding, "KIR-H114"),
                            (source.replace("tl.sum", "tl.summ"), binding, "KIR-H123"), (source, "x", "KIR-F010"),
                            (source, binding.replace("BLOCK = 32\n", ""), "KIR-"), (source + "\n!", binding, "KIR-H113")):
        found = check(contract, Answer(text, "triton", bound)).diagnostics
        assert found[0].id.startswith(id) and all(d.origin is not None and d.origin.file == "<answer>" for d in found), [str(d) for d in found]
    assert check(contract, Answer("x", "cuda")).diagnostics[0].id == "KIR-H110"
