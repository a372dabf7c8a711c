"""Emitted CUDA C++, compiled for the host with threads for threads, gives what the IR means."""
from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from kir.interp import run
from kir.ir import nodes as n
from kir.ir.build import const, int_value
from kir.ir.parser import parse_program
from kir.ir.types import DType
from kir.ir.visit import substitute
from kir.problem import load_problem, numpy_dtype
from kir.surface import Emitted, backend
from tests.backends.conftest import Arrays
from tests.programs import EXPERTS, parsed

HOST = Path(__file__).with_name("host_cuda.h")
EMULATED = ("copy_async", "copy_async_commit", "copy_async_wait", "load_matrix_2", "load_matrix_4", "load_matrix_2_trans",
            "load_matrix_4_trans", "mma_m16n8k16_f16", "shared_address")
PRODUCTS = ("mma_m16n8k16_f16_f16", "mma_m16n8k8_tf32", "mma_m16n8k32_i8", "mma_m16n8k32_u8")
pytestmark = pytest.mark.gxx


def host_text(emitted: Emitted) -> str:
    """The emitted text without what the host defines itself: includes, and the functions that wrap PTX."""
    from kir.backends.cuda.emit import header
    text = re.sub(r"^#include .*$", "", emitted.text, flags=re.MULTILINE)
    for name in EMULATED + PRODUCTS:
        text = text.replace(header()[name][0].strip(), "")
    text = text.replace("extern __shared__ __align__(1024) unsigned char shared_pool[];",
                        "alignas(1024) static unsigned char shared_pool[1 << 18];")
    assert "asm" not in text
    return text


def launched(p: n.Program, folder: Path, arrays: Arrays, scalars: Mapping[str, int | float]) -> Arrays:
    """Compile for the host, run every kernel on the arrays, and read them back."""
    emitted = backend("cuda").emit(p)
    sizes = {q.name: const(scalars[q.name], q.of) for q in p.params if isinstance(q.of, DType) and q.name in scalars}
    main = []
    for name, value in arrays.items():
        (folder / f"{name}.bin").write_bytes(value.tobytes())
        main.append(f'  auto {name} = read("{name}.bin");')
    types = {"f16": "__half", "f32": "float", "i32": "int", "u32": "unsigned", "i8": "signed char", "u8": "unsigned char"}
    for e in emitted.entries:
        extents = [str(int_value(substitute(x, sizes))) for x in e.grid] + ["1"] * (3 - len(e.grid))
        args = [f"reinterpret_cast<{types[a.dtype]}*>({a.name}.data())" if a.kind == "pointer" else repr(scalars[a.name])
                for a in e.arguments]
        main.append(f"  launch({e.threads}, {', '.join(extents)}, [&] {{ {e.function}({', '.join(args)}); }});")
    main += [f'  write("{name}.bin", {name});' for name in arrays]
    source = f'''#include "{HOST}"
#include <fstream>
#include <iterator>
{host_text(emitted)}
static std::vector<char> read(const char* name) {{
  std::ifstream file(name, std::ios::binary);
  return std::vector<char>(std::istreambuf_iterator<char>(file), {{}});
}}
static void write(const char* name, const std::vector<char>& bytes) {{
  std::ofstream(name, std::ios::binary).write(bytes.data(), bytes.size());
}}
int main() {{
''' + "\n".join(main) + "\n}\n"
    (folder / "host.cpp").write_text(source)
    for command in (["g++", "-std=c++20", "-O1", "-w", "-pthread", "host.cpp", "-o", "host"], ["./host"]):
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr[:3000]
    return {name: np.frombuffer((folder / f"{name}.bin").read_bytes(), v.dtype).reshape(v.shape) for name, v in arrays.items()}


def agrees(p: n.Program, folder: Path, arrays: Arrays, scalars: Mapping[str, int | float], tolerance: float) -> None:
    expected = run(p, {k: v.copy() for k, v in arrays.items()}, scalars).outputs
    got = launched(p, folder, arrays, scalars)
    for name, exact in expected.items():
        a, b = got[name].astype(np.float64), exact.astype(np.float64)
        assert np.all(np.abs(a - b) <= tolerance * np.max(np.abs(b), initial=1e-30)), name


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
  for t in 0..64 parallel thread
    let x = X[t]
    let j = I[t]
    S[t // 8, t % 8] = x
    atomic_max(&best, j)
    barrier()
    let row = S[t % 8, 0 +: 8]
    let total = reduce(row * row, axis=0, op=sum)
    register acc: f32 = 0.0
    for k in 0..8 unroll {factor=4}
      acc = acc + S[k, t // 8] * clamped(x, 0.5)
    if j < 0
      acc = -acc
    Y[t] = acc + total + shfl_xor(x, 5)
    register n: i32 = 0
    while n * n < best
      n = n + 1
    J[t] = (j // 3) * 7 + j % 5 + ceildiv(j, 4) + tdiv(j, 3) + (j & 6) + (n << 1)
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
