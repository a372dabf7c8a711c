"""Sources that nobody means: a program or one located refusal comes out, never an internal error. Samples of `python -m benchmarks.bad_input.mutilated` and
`python -m benchmarks.bad_input.odd_calls`, and what those found once."""
from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.bad_input import mutilated, odd_calls
from kir.faces.cli._main import run

TRITON = """import triton
import triton.language as tl

@triton.jit
def mixed(a, b):
    return tl.interleave(a, b)

@triton.jit
def k(X, Y, N, S: tl.constexpr):
    o = tl.arange(0, 32)
    acc = tl.load(X + o)
    BODY
    tl.store(Y + o, acc)
"""
TILELANG = """import tilelang
import tilelang.language as T

@tilelang.jit
def f(N, S: int = 0, dtype="float32"):
    @T.prim_func
    def k(X: T.Tensor((N, 64), dtype), Y: T.Tensor((N, 64), dtype)):
        with T.Kernel(N, threads=64) as i:
            v = T.alloc_fragment((64,), dtype)
            T.clear(v)
            BODY
            T.copy(v, Y[i, 0])
    return k
"""
CUDA = """template <int S> __global__ void k(const float* X, float* Y, int N) {
  int t = threadIdx.x;
  float v = X[t];
  BODY
  Y[t] = v;
}
template __global__ void k<0>(const float*, float*, int);
"""
BINDING = """kernel = "k"
recorded = true
sizes = ["N"]
facts = ["N >= 1", "N <= 64"]
grid = ["1"]
[metas]
S = 0
SCALARS
[tensors.X]
shape = SHAPE
dtype = "f32"
[tensors.Y]
shape = SHAPE
dtype = "f32"
"""
NO_STEP = {
    "cuda": ("for (int i = 0; i < N; i += 0) v += X[i];", "for (int i = 0; i < N; i += S) v += X[i];", "for (int i = 0; i < 64; i += N - N) v += X[i];",
             "#pragma unroll\n  for (int i = 0; i < 4; i += S) v += X[i];"),
    "triton": ("for i in range(0, N, 0): acc += i", "for i in range(0, 64, S): acc += i", "for i in tl.range(0, N, S - S): acc += i",
               "for i in range(N, 0, -S): acc += i",
               "for i in tl.static_range(0, 4, 0): acc += i", "for i in tl.static_range(0, 4, S): acc += i"),
    "tilelang": ("for j in range(0, N, 0): v[0] += j", "for j in T.serial(0, N, S): v[0] += j", "for j in T.unroll(0, 4, S): v[0] += j",
                 "for j in T.serial(0, N, N - N): v[0] += j")}


def said(tmp_path: Path, capsys: pytest.CaptureFixture[str], surface: str, body: str, *more: str, bound: bool = True) -> tuple[int, str]:
    """The exit code of `kir parse` on a kernel with such a body, and what it says."""
    text = {"cuda": CUDA, "triton": TRITON, "tilelang": TILELANG}[surface].replace("BODY", body)
    source, binding = tmp_path / ("k.cu" if surface == "cuda" else "k.py"), tmp_path / "k.toml"
    source.write_text(text)
    extent = '["N", "64"]' if surface == "tilelang" else '["64"]'
    scalars = "" if surface == "tilelang" else '[scalars]\nN = "N"'
    binding.write_text(BINDING.replace("SHAPE", extent).replace("SCALARS", scalars).replace("S = 0", "threads_x = 32" if surface == "cuda" else "S = 0"))
    kernel = "k<0>" if surface == "cuda" else "k"
    code = run(["parse", f"{source}::{kernel}", *(["--bind", str(binding), "--normal"] if bound else []), *more])
    found = capsys.readouterr()
    return code, found.out + found.err


@pytest.mark.parametrize(("surface", "loop"), [(surface, loop) for surface, loops in NO_STEP.items() for loop in loops])
def test_a_loop_that_does_not_step(tmp_path: Path, capsys: pytest.CaptureFixture[str], surface: str, loop: str) -> None:
    code, shown = said(tmp_path, capsys, surface, loop)
    assert code == 1 and "has step 0" in shown and "KIR-V009" in shown and "-->" in shown, shown


@pytest.mark.parametrize(("body", "line", "reason"), [
    ("acc += tl.program_id(3)", 12, "a grid has 3 axes"), ("acc += tl.program_id(99999999999999999999)", 12, "a grid has 3 axes"),
    ("acc += tl.num_programs(-1)", 12, "a grid has 3 axes"), ("acc = tl.permute(N, 0)", 12, "of a tile of 0"),
    ("acc = tl.permute(acc, 5)", 12, "of a tile of 1"), ("acc += float('a')", 12, "'a'"), ("acc = tl.clamp(acc, None, [0])", 12, ""),
    ("acc += len(range())", 12, "'range' of nothing")])
def test_a_triton_call_that_is_not_understood(tmp_path: Path, capsys: pytest.CaptureFixture[str], body: str, line: int, reason: str) -> None:
    code, shown = said(tmp_path, capsys, "triton", body, bound=False)
    assert code == 0 and f"k.py:{line}:" in shown and "KIR-F403" in shown and reason in shown, shown


@pytest.mark.parametrize("body", ["w = tl.interleave(N, 1)", "w = mixed(N, N)", "w = tl.interleave(1.0, 2.0)"])
def test_two_scalars_in_turn(tmp_path: Path, capsys: pytest.CaptureFixture[str], body: str) -> None:
    code, shown = said(tmp_path, capsys, "triton", f"{body}\n    tl.store(Y + tl.arange(0, 2), w)", bound=False)
    assert code == 0 and "join(" in shown and "opaque" not in shown, shown


def test_a_helper_of_unknown_shapes(tmp_path: Path) -> None:
    from kir.ir import nodes as n
    from kir.ir.visit import walk
    from kir.surface import frontend

    source = tmp_path / "k.py"
    source.write_text(TRITON.replace("BODY", "pass"))
    program = frontend("triton").parse(source, "mixed")
    assert any(isinstance(x, n.Call) and x.fn == "join" for k in program.kernels for s in k.body for x in walk(s))


@pytest.mark.parametrize(("surface", "body"), [
    ("cuda", "v = __shfl_xor_sync();"), ("cuda", "v += __any_sync(3);"), ("cuda", "v = __powf(v);"), ("cuda", "v = ldexp(v);"),
    ("cuda", "v += __byte_perm(1, 2, 3, 4, 5) * fmaxf(v);"),
    ("tilelang", "v[0] = T.ceildiv(i)"), ("tilelang", "T.reduce_sum()"), ("tilelang", "T.reduce_max(v)"), ("tilelang", "T.assume()"),
    ("tilelang", "v[0] = T.address_of()")])
def test_a_call_with_too_few_arguments(tmp_path: Path, capsys: pytest.CaptureFixture[str], surface: str, body: str) -> None:
    code, shown = said(tmp_path, capsys, surface, body, bound=False)
    assert code == 0 and "KIR-F403" in shown and f"k.{'cu' if surface == 'cuda' else 'py'}:{4 if surface == 'cuda' else 11}:" in shown, shown


def test_shared_memory_of_no_element_stays_as_it_is_declared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "__shared__ float s[32 / 64]; if (t % 16 == 0) s[t / 16] = v; __syncthreads(); if (t < 2) v = s[t] + s[8 + t];"
    code, shown = said(tmp_path, capsys, "cuda", text)
    assert code in (0, 1) and "KIR-C003" not in shown, shown


@pytest.mark.parametrize("surface", mutilated.SURFACES)
def test_a_sample_of_mutilated_sources(tmp_path: Path, surface: str) -> None:
    chosen = list(mutilated.attempts(surface, 12, seed=7))
    assert len({s.kernel for s, _ in chosen}) >= 3
    assert [(text, wrong) for source, text in chosen if (wrong := mutilated.fault(source, text, tmp_path))] == []


@pytest.mark.parametrize("surface", mutilated.SURFACES)
def test_a_sample_of_odd_calls(tmp_path: Path, surface: str) -> None:
    source = mutilated.Source(surface, Path("odd.cu" if surface == "cuda" else "odd.py"), "k", None)
    chosen = list(odd_calls.attempts(surface, 3))[:: 41 if surface == "cuda" else 29]
    assert len(chosen) > 18
    assert [(call, wrong) for call, text in chosen if (wrong := mutilated.fault(source, text, tmp_path))] == []


@pytest.mark.parametrize("body", ["v = " + "(" * 1500 + "1" + ")" * 1500 + ";", "v = " + "- " * 1500 + "1;", "{" * 1500 + "}" * 1500])
def test_a_text_nested_too_deeply(tmp_path: Path, capsys: pytest.CaptureFixture[str], body: str) -> None:
    code, shown = said(tmp_path, capsys, "cuda", body, bound=False)
    assert code == 1 and "KIR-C012" in shown and "Traceback" not in shown, shown
